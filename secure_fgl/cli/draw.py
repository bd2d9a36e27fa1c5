"""``secure-fgl charter draw``: put what all are asked to agree on into one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.charters import OutOption
from secure_fgl.cli._shared.options import PluginOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def draw(
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="A YAML configuration.")],
    facts: Annotated[
        list[Path], typer.Argument(metavar="FACTS...", help="NAME.facts.json of every party.")
    ],
    server: Annotated[
        str, typer.Option("--server", metavar="NAME", help="The engine's server: the aggregator's.")
    ],
    out: OutOption,
    consortium: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="consortium.yaml, to which parties and server are held."),
    ] = None,
    plugins: PluginOption = [],  # noqa: B006 - typer's way to say "none given"; never changed
    format: FormatOption = Format.table,
) -> int:
    """Draw up a charter: parties, organisations, sites, plan, policy, configuration and spec.yaml.

    Nobody has signed it yet. No data is read. A client is reached at the site
    of the engine that is called as it is, the aggregator at the server. Roles that
    must not work together are of two organisations, and clients of one organisation
    count once: four organisations with data are the fewest, or three where the policy
    says minimum_cohort: 2. A client of the aggregator's, a witness's or a tag server's
    organisation is one of the policy's colluders.
    """
    from protocols.wire.roles import Role
    from protocols.wire.roster import AGGREGATOR_NAME
    from secure_fgl.cli._shared.charters import load_facts, tell, write_charter
    from secure_fgl.cli._shared.output import say
    from secure_fgl.config import Config
    from secure_fgl.consortium import Consortium
    from secure_fgl.errors import UsageError
    from secure_fgl.federation import Federation
    from secure_fgl.transports.nvflare.charter import Charter
    from secure_fgl.transports.nvflare.facts import check_site
    from secure_fgl.transports.nvflare.rules.apart import too_few

    check_site(server)
    announced = [load_facts(path) for path in facts]
    if consortium is not None:
        Consortium.load(consortium).check(announced, server)
    clients = [found for found in announced if found.party.role is Role.CLIENT]
    if wrong := too_few(found.organisation for found in clients):
        raise UsageError(f"No charter can be drawn up: these are {wrong}.")
    configuration = Config.load(config)
    federation = Federation.from_config(configuration, plugins)
    names = [found.party.name for found in announced]
    charter = Charter.draw_up(
        [found.party for found in announced],
        {name: server if name == AGGREGATOR_NAME else name for name in names},
        plan=federation.plan(),
        policy=federation.policy,
        config=federation.config,
        organisations={found.party.name: found.organisation for found in announced},
        spec=federation.own_spec(),
    )
    write_charter(out, charter, new=True)
    for found in announced:
        if found.renewal is not None:
            say(f"{found.party.name} has new keys, signed by those of {found.last_fingerprint}.")
    tell(charter, out, as_json=format is Format.json)
    return 0
