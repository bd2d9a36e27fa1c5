"""``secure-fgl broker leaf``: a site's own server between its carrier and the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.charters import RunOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def broker_leaf(
    party: Annotated[Path, typer.Argument(metavar="PARTY", help="The party's folder.")],
    hub: Annotated[
        list[str],
        typer.Option("--hub", metavar="HOST:PORT", help="Where the broker takes leaf nodes."),
    ],
    broker: Annotated[
        Path, typer.Option("--broker", metavar="FOLDER", help="A folder for this server; new.")
    ],
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the party's carrier reaches it.")
    ] = "localhost:4222",
    run: RunOption = None,
    format: FormatOption = Format.table,
) -> int:
    """Write FOLDER/nats.conf for a server of this site's own, and let the carrier
    use it.

    For a site from which one machine alone may connect outwards: the carrier
    connects to this server, and this server to the broker, with the carrier's
    key, which FOLDER/nats.conf holds. The broker's operator opens a port for it
    and names this party: broker config --leaves HOST:PORT --leaf PARTY. The
    broker lets this server do what the party may do, and nothing else. Start
    it: nats-server -c FOLDER/nats.conf. site join leads the carrier back to the
    broker itself.
    """
    from secure_fgl.charters.party import PartyKit
    from secure_fgl.cli._shared.output import print_json, print_pairs
    from secure_fgl.transports.broker.config import write_leaf

    kit = PartyKit.load(party, run)
    path = write_leaf(party, kit.charter, kit.name, broker, hubs=hub, listen=listen)
    facts = {"config": str(path), "listen": listen, "hub": ", ".join(hub), "party": kit.name}
    if format is Format.json:
        print_json(facts)
    else:
        print_pairs(list(facts.items()), wrap=False)
    return 0
