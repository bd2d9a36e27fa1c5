"""``secure-fgl runs list``: what was run, under which policy, and how good it was."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def runs_list(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder that holds runs' folders.")
    ] = Path("runs"),
    format: FormatOption = Format.table,
) -> int:
    """List the runs in a folder, by name: algorithm, data, policy, score, evidence.

    The evidence is as it was when the run ended; audit verify checks it now.
    """
    from secure_fgl.cli._shared.output import cell, console, grid, print_json, say
    from secure_fgl.past_runs import listed

    found = list(listed(folder))
    if format is Format.json:
        print_json({"folder": str(folder), "runs": [run.document() for run in found]})
        return 0
    if not found:
        say(f"No run lies in {folder}.")
        return 0
    table = grid(["Run", "What", "Policy", "Score", "State, evidence"])
    for run in found:
        size = f"{run.clients} clients, {run.rounds} rounds" if run.clients else ""
        what = "\n".join(filter(None, (f"{run.algorithm} {run.data}".strip(), size)))
        what += f"\nruns as {run.runs_as}" if run.runs_as else ""
        state = "\n".join(filter(None, (run.state, run.verdict)))
        table.add_row(*map(cell, (run.name, what, run.policy, run.score, state)))
    table.caption = "Evidence: as it was judged when the run ended. audit verify RUN checks it now."
    table.caption_justify = "left"
    console(stderr=False).print(table)
    return 0
