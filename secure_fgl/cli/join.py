"""``secure-fgl site join``: keep a charter that all signed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def join(
    party: Annotated[Path, typer.Argument(metavar="PARTY", help="The party's folder.")],
    charter: Annotated[Path, typer.Argument(metavar="CHARTER", help="The charter, merged.")],
    format: FormatOption = Format.table,
) -> int:
    """Keep a charter that every party signed, in PARTY/runs/RUN; no other run is
    started here.

    Exits 5 if a signature is missing or wrong, if somebody refused it, or if it
    names this party with other keys. Nothing is kept then.
    """
    from secure_fgl.charters.joining import keep
    from secure_fgl.cli._shared.charters import load_charter
    from secure_fgl.cli._shared.output import print_json, print_pairs
    from secure_fgl.transports.broker.config import keep_connection

    kit = keep(party, load_charter(charter))
    keep_connection(party, kit.charter, kit.name)
    servers = ", ".join(kit.charter.broker.urls)
    facts = {"run": kit.charter.run, "party": kit.name, "broker": servers}
    if format is Format.json:
        print_json({**facts, "charter": kit.charter.signed.hex()})
    else:
        print_pairs(list(facts.items()), wrap=False)
    return 0
