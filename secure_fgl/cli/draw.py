"""``secure-fgl charter draw``: put what all are asked to agree on into one file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secure_fgl.cli._shared.charters import OutOption
from secure_fgl.cli._shared.options import PluginOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from secure_fgl.charters.broker import Broker
    from secure_fgl.charters.charter import Charter
    from secure_fgl.charters.facts import Facts
    from secure_fgl.federation import Federation

_TIME = re.compile(r"([1-9]\d{0,5})(s|m|h)")
_UNITS = {"s": 1, "m": 60, "h": 3600}


@verb
def draw(  # noqa: PLR0913, PLR0917 - one option a fact
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML configuration.")],
    facts: Annotated[
        list[Path], typer.Argument(metavar="FACTS...", help="NAME.facts.json of every party.")
    ],
    out: OutOption,
    server: Annotated[
        list[str],
        typer.Option("--server", metavar="HOST", help="Of the broker, HOST or HOST:PORT; repeat."),
    ] = [],  # noqa: B006 - typer's way to say "none given"; never changed
    broker: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Of the broker; its root certificate is made there."),
    ] = None,
    deadline: Annotated[
        str, typer.Option(metavar="TIME", help="How long one exchange may take: 90s, 10m, 2h.")
    ] = "10m",
    consortium: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="consortium.yaml, to which parties and server are held."),
    ] = None,
    plugins: PluginOption = [],  # noqa: B006 - typer's way to say "none given"; never changed
    format: FormatOption = Format.table,
) -> int:
    """Draw up a charter: parties, organisations, broker, plan, policy,
    configuration and spec.yaml.

    Nobody has signed it yet. No data is read. --server, or transport.url of the
    configuration, is where all parties connect; with --broker the charter holds
    the root certificate under which they know the server, without it they take
    one that their system knows. Roles that must not work together are of two
    organisations, and clients of one organisation count once: four
    organisations with data are the fewest, or three where the policy says
    minimum_cohort: 2. A client of the aggregator's, a witness's or a tag
    server's organisation is one of the policy's colluders.
    """
    from dataclasses import replace

    from protocols.wire.roles import Role
    from secure_fgl.charters.charter import too_few
    from secure_fgl.cli._shared.charters import load_facts, tell, write_charter
    from secure_fgl.cli._shared.output import say
    from secure_fgl.config import Config
    from secure_fgl.consortium import Consortium
    from secure_fgl.errors import UsageError
    from secure_fgl.federation import Federation
    from secure_fgl.transports.broker.config import new_root

    configuration = Config.load(config)
    meeting = _broker(server or [*filter(None, [configuration.transport.url])], deadline)
    announced = [load_facts(path) for path in facts]
    if consortium is not None:
        Consortium.load(consortium).check(announced, meeting.hosts[0])
    clients = [found for found in announced if found.party.role is Role.CLIENT]
    if wrong := too_few(found.organisation for found in clients):
        raise UsageError(f"No charter can be drawn up: these are {wrong}.")
    federation = Federation.from_config(configuration, plugins)
    if broker is not None:
        meeting = replace(meeting, root=new_root(broker))
    charter = _drawn(federation, announced, meeting)
    write_charter(out, charter, new=True)
    for found in announced:
        if found.renewal is not None:
            say(f"{found.party.name} has new keys, signed by those of {found.last_fingerprint}.")
    tell(charter, out, as_json=format is Format.json)
    return 0


def _broker(servers: Sequence[str], deadline: str) -> Broker:
    from secure_fgl.charters.broker import Broker, url_of
    from secure_fgl.errors import UsageError

    if not servers:
        raise UsageError("No server is named.", fix="--server fl.example.org, or transport.url")
    return Broker(tuple(map(url_of, servers)), "", _seconds(deadline))


def _drawn(federation: Federation, announced: Sequence[Facts], broker: Broker) -> Charter:
    from secure_fgl.charters.charter import Charter

    return Charter.draw_up(
        [found.party for found in announced],
        {found.party.name: found.carrier for found in announced},
        broker=broker,
        plan=federation.plan(),
        policy=federation.policy,
        config=federation.config,
        organisations={found.party.name: found.organisation for found in announced},
        spec=federation.own_spec(),
    )


def _seconds(text: str) -> int:
    from secure_fgl.errors import UsageError

    found = _TIME.fullmatch(text)
    if found is None:
        raise UsageError(f"--deadline {text[:20]} is no time.", fix="write 90s, 10m or 2h")
    return int(found[1]) * _UNITS[found[2]]
