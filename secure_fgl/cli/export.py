"""``secure-fgl audit export``: drafts for other people's forms."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

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
            help="cnil-pia (JSON), dpia-md (GDPR, Article 35), art30-csv (GDPR, Article 30), "
            "nist-800-226 (claims of differential privacy), oscal (assessment results), dpv "
            "(inventory, JSON-LD), sarif (2.1.0), or junit (XML).",
        ),
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File to write; by default stdout.")
    ] = None,
    catalog: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Of oscal: your own catalogue of controls (OSCAL, JSON)."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="A site's own tables, searched for before."),
    ] = None,
) -> int:
    """Write a draft for an impact assessment, a record of processing, or a CI.

    It fills in what the record of the run shows, and leaves purposes, legal bases,
    gravity, likelihood and opinions to people. It is no legal advice.

    sarif and junit say what was found to viewers of code scanning and to a CI: what
    was not tested is never passed, and in junit a critical or high finding is a
    failure. Waivers that the run keeps are judged today.

    oscal names the controls of your catalogue, and no others: those with a
    property secure-fgl whose value is an attack (A05), a step of audit verify
    (step tree) or a finding's rule. Whether a control is met is for people to say.

    Exit code, the first that applies:

    5: the evidence is broken, and no draft but junit is made of it.

    3: with --data, the draft would hold what these tables hold; it is not written.

    6: something left that was not planned; the draft says so.

    0: none of these.
    """
    from audits.accounting.account import account
    from audits.exporters import EXPORTERS, of_account, of_broken
    from audits.exporters import export as draft
    from audits.report.build import build_report
    from protocols.errors import EvidenceError
    from secure_fgl.cli._shared.gate import FailOn, codes_of, tell_codes
    from secure_fgl.cli._shared.inputs import choose
    from secure_fgl.cli._shared.output import say
    from secure_fgl.cli._shared.report_files import advice, with_waivers
    from secure_fgl.errors import BROKEN, DRIFT, OK
    from secure_fgl.scanning import at_hand, refuse_found
    from secure_fgl.store.finished_run import Run

    form = choose("form", to, EXPORTERS)
    view = with_waivers(Run(run).view(), None, drop=False)  # in force today, as for a report
    made = build_report(view)
    codes = codes_of(made, FailOn.never, strict=False)
    if codes[0] == BROKEN and not of_broken(form):
        failed = [s for s in made.integrity.steps if s.status == "FAIL"]
        with advice():
            raise EvidenceError(failed[0].name, f"{failed[0].detail}; no draft is made of it")
    spent = account(view) if of_account(form) else None
    controls, plan = _catalog(form, catalog), view.plan_text.decode("utf-8", "replace")
    content = draft(made, form, plan, spent, controls)
    refuse_found(form, content, at_hand(data))
    if out is None:
        sys.stdout.write(content.decode("utf-8"))
    else:
        _save(out, content)
        typer.echo(str(out))
    if form not in ("junit", "sarif"):
        say("A draft: people fill in the rest, check it and sign it.")
    tell_codes(applies := [code for code in codes if code in (BROKEN, DRIFT)] or [OK])
    return applies[0]


def _catalog(form: str, path: Path | None) -> Any:
    """Return the catalogue that is given; raises UsageError unless it is, and only if it is due."""
    from audits.exporters import of_catalog
    from secure_fgl.cli._shared.inputs import _document
    from secure_fgl.errors import UsageError

    if of_catalog(form) is (path is None):
        what = f"{form} needs --catalog FILE." if path is None else f"{form} takes no --catalog."
        raise UsageError(what, fix="give your own catalogue of controls, with --to oscal")
    fix = "give a catalogue of OSCAL, as JSON"
    return None if path is None else _document(path, "catalogue", fix)


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
