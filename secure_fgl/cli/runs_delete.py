"""``secure-fgl runs delete``: destroy the keys to what a run kept, then its folder."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def runs_delete(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder of this machine.")],
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    unfinished: Annotated[
        bool, typer.Option("--unfinished", help="Also a run without a result; it is not resumed.")
    ] = False,
    format: FormatOption = Format.table,
) -> int:
    """Destroy the keys to a run's captures, models and kept state, then its folder.

    What backups hold of the folder stays locked, unless the keys were copied, too.
    Ledgers, plan and report are in the folder: take a bundle out first (audit
    bundle) if the evidence is to stay. What the run spent of a privacy budget
    stays spent.

    One party's side of a run between organisations is refused: site forget.
    """
    from secure_fgl.cli._shared.output import print_json, say
    from secure_fgl.errors import USAGE, UsageError
    from secure_fgl.past_runs import delete

    if not yes:
        if not sys.stdin.isatty():
            raise UsageError("Nobody was there to be asked; nothing was removed.", fix="say --yes")
        if not typer.confirm(f"Destroy the run in {run}, its keys and its evidence?", err=True):
            say("Nothing was removed.")
            return USAGE
    done = delete(run, unfinished=unfinished)
    if format is Format.json:
        print_json({"run": done.run, "folder": str(run), "keys": list(done.keys)})
        return 0
    keys = f"the keys of {', '.join(done.keys)}, then " if done.keys else ""
    say(f"Destroyed {keys}the folder {run}.", stderr=False)
    return 0
