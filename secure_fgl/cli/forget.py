"""``secure-fgl site forget``: destroy what this party kept of a run, and note it under its key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.charters import RunOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def forget(
    party: Annotated[
        Path, typer.Argument(metavar="PARTY", help="The party's folder, with identity.json.")
    ],
    captures: Annotated[
        bool, typer.Option("--captures", help="Destroy the captured rounds.")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="Destroy models and kept state, too.")
    ] = False,
    run: RunOption = None,
    format: FormatOption = Format.table,
) -> int:
    """Destroy what this party kept of a run: keys first, then pieces, and sign what and when.

    With --captures the rounds that the policy let it capture for audits: what
    needs them can then be tested no more. With --all its models, and the state
    of a run that is not over, too, which then cannot go on at this party.

    Ledger, charter, plan and report stay: they are evidence and hold no data.
    audit verify finds the signed note, and does not fail for what is gone.
    Copies elsewhere, in backups, stay locked unless the keys were copied too.
    """
    from secure_fgl.charters.party import load_identity
    from secure_fgl.cli._shared.output import print_json, say
    from secure_fgl.errors import UsageError
    from secure_fgl.store.sides.forgetting import forget as destroyed

    if captures == everything:
        raise UsageError("What is to be destroyed?", fix="say --captures, or --all, and not both")
    found = destroyed(party, load_identity(party), run=run, everything=everything)
    facts = {
        "destroyed": list(found.note.what),
        "at": found.note.at,
        "pieces": found.pieces,
        "note": str(found.file),
        "before": found.before,
    }
    if format is Format.json:
        print_json(facts)
        return 0
    what = ", ".join(found.note.what)
    if found.before:
        say(f"Nothing was left of {what}: destroyed at {found.note.at}.")
    else:
        say(f"Destroyed the keys of {what}, then {found.pieces} pieces, at {found.note.at}.")
    typer.echo(str(found.file))
    return 0
