"""``secure-fgl audit release``: whether a run's models may leave, signed if they may."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secure_fgl.cli._shared.report_files import WAIVERS as _KEPT
from secure_fgl.cli._shared.verb import Format, FormatOption, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from audits.findings.gate import Answer

_MARGIN = re.compile(r"0\.\d{1,4}")


@verb
def release(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    require: Annotated[
        str, typer.Option("--require", metavar="LIST", help="Attacks by id, such as A12,A05.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="The statement to write.")
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option(
            "--key", metavar="KEY.pem", help="The Ed25519 key (PEM, mode 600) that signs."
        ),
    ] = None,
    margin: Annotated[
        str,
        typer.Option(metavar="0.02", help="Judge anew by this margin where it is below their own."),
    ] = "",
    waivers: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help=f"As of audit report; by default the run's {_KEPT}."),
    ] = None,
    format: FormatOption = Format.table,
) -> int:
    """Say whether the models of a run may leave, by what attacks on it found.

    Every row of each attack must say PASS, or FAIL or INCONCLUSIVE with a waiver
    that is in force today; or NOT_TESTED with one, where other rows of that attack
    were judged. What was not run, does not apply, crashed or is invalid lets
    nothing out, and no waiver changes that. Verdicts are read from the run's
    attacks.json, which no ledger binds: whoever signs takes it away and runs
    secure-fgl audit attack again first, on captures and data of their own.

    If all is answered, FILE is written: an in-toto statement with the models'
    digests, verdicts and waivers, signed with KEY. secure-fgl site model
    --released asks for it, and any registry can. Without --out nothing is signed.

    Exit code, the first that applies:

    5: the evidence is broken.

    6: something left that was not planned.

    7: more privacy was spent than planned, or a claim is falsified.

    3: an attack is not answered, which is named; nothing is written.

    0: none of these.
    """
    from audits.findings.gate import answers, predicate, withheld
    from audits.report.build import build_report
    from secure_fgl.cli._shared.gate import FailOn, codes_of, tell_codes
    from secure_fgl.cli._shared.output import say
    from secure_fgl.cli._shared.report_files import with_waivers
    from secure_fgl.errors import FINDINGS, OK, UsageError
    from secure_fgl.store.bundles import load_key, today, write_new
    from secure_fgl.store.finished_run import Run
    from secure_fgl.store.sides.release import released

    if (out is None) is not (key is None):
        raise UsageError("--out and --key belong together.", fix="give both, or neither")
    signer = load_key(key) if key is not None else None
    if margin and (not _MARGIN.fullmatch(margin) or not float(margin)):
        raise UsageError("--margin is a number such as 0.02.", why="it is between 0 and 1")
    wanted = _ids(require)
    folder = Run(run)
    view = with_waivers(folder.view(), waivers, drop=False)
    made = build_report(view)
    found = answers(made, wanted, margin)
    why = withheld(found)
    codes = [code for code in codes_of(made, FailOn.never, strict=False) if code != OK]
    codes += [FINDINGS] if why else []
    written = None
    if not codes and out is not None and signer is not None:
        said = predicate(made, found, margin, today())
        written = write_new(out, released(view, folder.folder, said, signer))
    _print(found, why, written, format)
    for line in why:
        say(f"NOT ANSWERED: {line}.", style="bold red")
    tell_codes(codes or [OK])
    return codes[0] if codes else OK


def _ids(text: str) -> list[str]:
    """Return the attacks that are named; an unknown one is an error, not one that passed."""
    from audits.attacks import attacks
    from secure_fgl.cli._shared.inputs import choose

    known = [attack.id for attack in attacks()]
    return list(dict.fromkeys(choose("attack", name.strip(), known) for name in text.split(",")))


def _print(found: Sequence[Answer], why: Sequence[str], out: Path | None, format: Format) -> None:
    from secure_fgl.cli._shared.output import WORDS, cell, console, grid, print_json

    if format is Format.json:
        told: dict[str, Any] = {"file": str(out) if out is not None else None}
        told |= {"attacks": [answer.document() for answer in found], "not_answered": list(why)}
        print_json(told)
        return
    table = grid(["Attack", "Verdict", "Margin", "Accepted by"])
    for answer in found:
        waiver = answer.waiver
        owner = f"{waiver.owner} until {waiver.until}: {waiver.reason}" if waiver else ""
        verdict = cell(answer.verdict, WORDS.get(answer.verdict, ""))
        table.add_row(cell(answer.named), verdict, cell(answer.margin), cell(owner))
    console(stderr=False).print(table)
    if out is not None:
        typer.echo(str(out))
