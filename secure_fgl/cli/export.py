"""``secure-fgl audit export``: drafts for other people's forms."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.verb import verb


@verb
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="FORM",
            help="dpia-md (impact assessment, GDPR, Article 35), cnil-pia (the same as JSON, for "
            "the CNIL's tool), art30-csv (GDPR, Article 30), sarif (2.1.0), or junit (XML).",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write; by default stdout.")
    ] = None,
) -> int:
    """Write a draft for an impact assessment, a record of processing, or a CI.

    It fills in what the record of the run shows, and leaves purposes, legal bases,
    gravity, likelihood and opinions to people. It is no legal advice.

    sarif and junit say what was found to viewers of code scanning and to a CI: what
    was not tested is never passed, and in junit a critical or high finding is a
    failure. Waivers that the run keeps are judged today.

    Exit code, the first that applies:

    5: the evidence is broken, and no draft but junit is made of it.

    6: something left that was not planned; the draft says so.

    0: none of these.
    """
    from audits.exporters import EXPORTERS, OF_BROKEN
    from audits.report.build import build_report
    from protocols.errors import EvidenceError
    from secure_fgl.cli._shared.gate import FailOn, codes_of, tell_codes
    from secure_fgl.cli._shared.inputs import choose
    from secure_fgl.cli._shared.output import say
    from secure_fgl.cli._shared.report_files import advice, with_waivers
    from secure_fgl.errors import BROKEN, DRIFT, OK
    from secure_fgl.store.finished_run import Run

    form = choose("form", to, tuple(EXPORTERS))
    view = with_waivers(Run(run).view(), None, drop=False)  # in force today, as for a report
    made = build_report(view)
    codes = codes_of(made, FailOn.never, strict=False)
    if codes[0] == BROKEN and form not in OF_BROKEN:
        failed = [s for s in made.integrity.steps if s.status == "FAIL"]
        with advice():
            raise EvidenceError(failed[0].name, f"{failed[0].detail}; no draft is made of it")
    content = EXPORTERS[form](made, view.plan_text.decode("utf-8", "replace"))
    if out is None:
        sys.stdout.write(content.decode("utf-8"))
    else:
        _save(out, content)
        typer.echo(str(out))
    if form not in ("junit", "sarif"):
        say("A draft: people fill in the rest, check it and sign it.")
    tell_codes(applies := [code for code in codes if code in (BROKEN, DRIFT)] or [OK])
    return applies[0]


def _save(path: Path, content: bytes) -> None:
    from secure_fgl.errors import UsageError
    from secure_fgl.store.files import create

    try:
        create(path, content)
    except FileExistsError as error:
        raise UsageError(
            f"{path} exists already.",
            why="a draft that people have worked on is not overwritten",
            fix="choose another --out",
        ) from error
    except OSError as error:
        raise UsageError(
            f"The draft cannot be written to {path} ({error.strerror}).", fix="choose another --out"
        ) from error
