"""``secure-fgl charter refuse``: say no to a charter, signed and with a reason."""

from __future__ import annotations

from typing import Annotated

import typer

from secure_fgl.cli._shared.charters import CharterArgument, PartyOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def refuse(
    file: CharterArgument,
    party: PartyOption,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Why; all parties will read it.")
    ],
    format: FormatOption = Format.table,
) -> int:
    """Add this party's signed refusal to FILE. Such a charter never runs; draw up another one.

    The party notes the refusal in its folder and starts this charter no more,
    even from a copy that has its signature and not its refusal.
    """
    from secure_fgl.charters import joining
    from secure_fgl.cli._shared.charters import load_charter, tell, write_charter

    charter = joining.refuse(party, load_charter(file), reason)
    write_charter(file, charter)
    tell(charter, file, as_json=format is Format.json)
    return 0
