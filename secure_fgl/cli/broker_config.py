"""``secure-fgl broker config``: a server's configuration from the charters of its runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def broker_config(  # noqa: PLR0913, PLR0917 - one option a line of the configuration
    charters: Annotated[
        list[Path], typer.Argument(metavar="CHARTER...", help="Of each run that it carries.")
    ],
    broker: Annotated[
        Path, typer.Option("--broker", metavar="FOLDER", help="The folder of charter draw.")
    ],
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the server listens.")
    ] = "0.0.0.0:4222",
    name: Annotated[str, typer.Option(help="Of this server, in a cluster.")] = "",
    cluster: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where the cluster's other servers reach it.")
    ] = "",
    route: Annotated[
        list[str], typer.Option(metavar="HOST:PORT", help="Of another server of the cluster.")
    ] = [],  # noqa: B006 - typer's way to say "none given"; never changed
    leaves: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where sites' own servers connect.")
    ] = "",
    leaf: Annotated[
        list[str], typer.Option("--leaf", metavar="PARTY", help="A party that has such a server.")
    ] = [],  # noqa: B006 - as above
    format: FormatOption = Format.table,
) -> int:
    """Write FOLDER/nats.conf, and issue the server's certificate anew.

    Each run is an account, each party a user by the key in its facts. A party
    hears what is sent to it and may publish one reply to each message; the
    aggregator may publish to every party. Nobody else may connect, nobody
    administers, nothing is stored, and one port is open. Start the server with
    it: nats-server -c FOLDER/nats.conf. Write it again, and run nats-server
    --signal reload, when another run begins. A charter that somebody did not
    sign is refused (exit 5).

    With --name it is one server of several: its files go to FOLDER/NAME, and
    that folder, under the same path, to its machine. Each names the others with
    --route. With --leaves it takes sites' own servers (see broker leaf) at a
    port of theirs, for the parties named with --leaf.
    """
    from secure_fgl.cli._shared.charters import load_charter
    from secure_fgl.cli._shared.output import print_json, print_pairs
    from secure_fgl.transports.broker.config import Cluster, write_config

    found = [load_charter(path) for path in charters]
    for charter in found:
        charter.check()
    several = Cluster(name, cluster, tuple(route), leaves, tuple(leaf))
    path = write_config(found, broker, listen=listen, cluster=several)
    facts = {
        "config": str(path),
        "listen": listen,
        "runs": [charter.run for charter in found],
        "parties": sum(len(charter.carriers) for charter in found),
    }
    if format is Format.json:
        print_json(facts)
        return 0
    shown = {**facts, "runs": ", ".join(charter.run for charter in found)}
    print_pairs([(key, str(value)) for key, value in shown.items()], wrap=False)
    return 0
