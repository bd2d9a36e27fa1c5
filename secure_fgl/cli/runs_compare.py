"""``secure-fgl runs compare``: what two runs differ in."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def runs_compare(
    first: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    second: Annotated[Path, typer.Argument(metavar="RUN", help="Another one.")],
    format: FormatOption = Format.table,
) -> int:
    """Compare the settings, plans, metrics and results of two runs.

    What differs in what left, in attacks and in findings: audit diff.
    """
    from secure_fgl.cli._shared.output import cell, console, grid, print_json, say
    from secure_fgl.past_runs import differences
    from secure_fgl.store.finished_run import Run

    found = differences(Run(first), Run(second))
    if format is Format.json:
        rows = [asdict(difference) for difference in found]
        print_json({"first": str(first), "second": str(second), "differences": rows})
        return 0
    if not found:
        say("They differ in nothing that their plans, settings and results say.")
        return 0
    table = grid(["", "Name", str(first), str(second)])
    for row in found:
        table.add_row(*map(cell, (row.what, row.name, row.first or "-", row.second or "-")))
    console(stderr=False).print(table)
    return 0
