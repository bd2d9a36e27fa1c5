"""``secure-fgl site sweep``: destroy what this party is to keep no longer, and sign it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.charters import RunOption
from secure_fgl.cli._shared.verb import Format, FormatOption, exit_code, verb


@verb
def sweep(
    party: Annotated[
        Path, typer.Argument(metavar="PARTY", help="The party's folder, with identity.json.")
    ],
    run: RunOption = None,
    format: FormatOption = Format.table,
) -> int:
    """Destroy what is over by the policy of each run: captures, models, ledgers.

    For a timer, once a day. Without --run all runs of this party are swept. Keys
    go first, then pieces; what and when is signed, and audit verify finds it. The
    party's keys, and so their passphrase, are needed only when something is over.

    Exit code: that of the first run that could not be swept (5 its evidence is
    broken), 0.
    """
    from secure_fgl.charters.party import load_identity, name_and_role
    from secure_fgl.cli._shared.output import print_json, say
    from secure_fgl.errors import OK
    from secure_fgl.reasons import explain
    from secure_fgl.store.sides.forgetting import Destroyed, sweep_runs

    name, _ = name_and_role(party)
    swept, failed = list[dict[str, object]](), list[Exception]()
    for joined, found in sweep_runs(party, lambda: load_identity(party), name=name, run=run):
        if isinstance(found, Destroyed):
            what = ", ".join(found.note.what)
            swept.append({"run": joined, "destroyed": [*found.note.what], "at": found.note.at})
            say(f"{joined}: destroyed {what}, {found.pieces} pieces, at {found.note.at}.")
        else:
            failed.append(found)
            say(f"{joined}: {' '.join(explain(found))}", style="bold red")
    if format is Format.json:
        print_json({"swept": swept, "failed": len(failed)})
    elif not swept and not failed:
        say("Nothing is over.")
    return exit_code(failed[0]) if failed else OK
