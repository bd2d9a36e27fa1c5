"""``secure-fgl site waive``: accept that an attack was not answered, under this client's key."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.charters import RunOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def waive(
    party: Annotated[
        Path, typer.Argument(metavar="PARTY", help="The client's folder, with identity.json.")
    ],
    attack: Annotated[
        str, typer.Option("--attack", metavar="ID", help="Which attack, as the policy names it.")
    ],
    owner: Annotated[
        str, typer.Option("--owner", metavar="NAME", help="Who answers for it: a person.")
    ],
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why it is accepted.")],
    until: Annotated[
        str, typer.Option("--until", metavar="YYYY-MM-DD", help="The last day; 366 days at most.")
    ],
    run: RunOption = None,
    format: FormatOption = Format.table,
) -> int:
    """Sign a waiver for a run whose policy holds models back until an attack is answered.

    It is written to PARTY/runs/RUN/waivers. Models come out where the waivers of all
    clients lie: copy yours into the others' folders of that run, and theirs into
    yours. Only clients sign: the records in the model are theirs.
    """
    from secure_fgl.charters.party import load_identity
    from secure_fgl.cli._shared.output import print_json, say
    from secure_fgl.store.sides.waiving import waive as signed

    facts = {"attack": attack, "owner": owner, "reason": reason, "until": until}
    path = signed(party, load_identity(party), run=run, **facts)
    if format is Format.json:
        print_json({"file": str(path), **facts})
        return 0
    typer.echo(str(path))
    say("Next: give it to the other parties, for their PARTY/runs/RUN/waivers.")
    return 0
