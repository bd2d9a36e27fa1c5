"""``secure-fgl audit diff``: what moved between two runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secure_fgl.cli._shared.gate import FailOn
from secure_fgl.cli._shared.verb import Format, FormatOption, verb

if TYPE_CHECKING:
    from audits.report.sections import Change, Changes

COLOUR = {"new": "bold red", "worse": "bold red", "no longer measured": "yellow"}
_WHERE = "A run folder, or the report.json of one."


@verb
def diff(
    old: Annotated[Path, typer.Argument(metavar="OLD", help=_WHERE)],
    new: Annotated[Path, typer.Argument(metavar="NEW", help=_WHERE)],
    format: FormatOption = Format.table,
    fail_on: Annotated[
        FailOn,
        typer.Option(
            help="Exit 3 from this severity on for what is new or worse, or failed and was not "
            "measured again."
        ),
    ] = FailOn.high,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 4 if something is no longer measured.")
    ] = False,
) -> int:
    """Compare two runs: findings, attacks, epsilons, and what left.

    Of a folder the report is made anew from its files; a report.json is taken
    at its word. An attack moved if its value left the earlier interval, or its
    verdict changed.

    Exit code, the first that applies; all are listed on stderr:

    5: the evidence of one of the two is broken.

    6: in NEW something left that was not planned.

    3: something at or above --fail-on is new or worse and nobody accepted it,
    or an attack that succeeded was not run again.

    4: with --strict, something is no longer measured.

    0: none of these.
    """
    from audits.findings.changes import changes
    from secure_fgl.cli._shared.gate import ordered, tell_codes
    from secure_fgl.cli._shared.output import print_json, say
    from secure_fgl.cli._shared.report_files import load_snapshot
    from secure_fgl.errors import BROKEN, DRIFT, FINDINGS, INCONCLUSIVE

    before, after = load_snapshot(old), load_snapshot(new)
    found = changes(before, after)
    failing = [c for c in found.changes if _fails(c, fail_on)]
    applies = {
        BROKEN: before.broken or after.broken,
        DRIFT: after.drifted,
        FINDINGS: bool(failing),
        INCONCLUSIVE: strict and any(c.move == "no longer measured" for c in found.changes),
    }
    codes = ordered({code for code, applied in applies.items() if applied})
    if format is Format.json:
        print_json({**found.model_dump(mode="json"), "exit_code": codes[0], "exit_codes": codes})
    else:
        _table(found, after.run)
    for change in failing:
        say(f"{change.move.upper()} {change.severity}: {change.what}")
    tell_codes(codes)
    return codes[0]


def _fails(change: Change, fail_on: FailOn) -> bool:
    from audits.findings.changes import lost

    if lost(change):
        return fail_on.reached(change.severity)
    grave = change.move in ("new", "worse") and fail_on.reached(change.severity)
    return grave and not change.waived


def _table(found: Changes, run: str) -> None:
    from secure_fgl.cli._shared.output import cell, console, grid, say

    say(f"Run {found.baseline_run} -> run {run}", style="bold", stderr=False)
    for note in found.notes:
        say(note, style="yellow", stderr=False)
    table = grid(["Move", "Severity", "What", "Before", "Now"])
    for change in found.changes:
        grave = f"{change.severity}, waived" if change.waived else change.severity
        table.add_row(
            cell(change.move, COLOUR.get(change.move, "green")),
            cell(grave),
            cell(change.what),
            cell(change.old or "-"),
            cell(change.new or "-"),
        )
    if table.row_count:
        console(stderr=False).print(table)
    say(f"{len(found.changes)} moved, {found.same} did not.", stderr=False)
