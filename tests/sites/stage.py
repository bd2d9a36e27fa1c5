"""Four clients and an aggregator, each with a folder of its own, for runs over real processes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocols.plan.parties import roles_of
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters.charter import Charter
from secure_fgl.charters.party import PartyKit
from secure_fgl.charters.passphrase import Passphrase
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.store.sides.places import place_of
from secure_fgl.transports.nvflare import joining, party

CLIENTS = 4  # the fewest that `masks` admits: each client and three others (O10)
SERVER_SITE = "localhost"


def cora(root: Path, *, rounds: int = 2) -> Config:
    """Return a small FedAvg on Cora, sums under masks."""
    return Config.parse(
        {
            "algorithm": {"name": "fed_avg", "rounds": rounds},
            "model": {"hidden": 16},
            "data": {
                "name": "cora",
                "root": str(root),
                "partition": {"name": "louvain_balanced", "clients": CLIENTS},
            },
            "policy": "masks",
            "seed": 1,
        }
    )


def banks(*, rounds: int = 1, policy: str = "masks", algorithm: str = "fed_avg") -> Config:
    """Return a small run on data that needs no file."""
    return Config.parse(
        {
            "algorithm": {"name": algorithm, "rounds": rounds},
            "model": {"hidden": 8},
            "data": {
                "name": "synthetic_banks",
                "options": {"customers": 40, "transactions": 60},
                "partition": {"name": "by_owner", "clients": 5},
            },
            "policy": policy,
            "seed": 1,
        }
    )


def side(party: Path) -> Path:
    """Return a party's side of the one run that it joined."""
    return place_of(party) / "run"


@dataclass
class Parties:
    """Everybody's folder, by the name of the site."""

    charter: Charter
    folders: Mapping[str, Path]

    def kit(self, site: str) -> PartyKit:
        """Return one party's kit, read anew."""
        return PartyKit.load(self.folders[site])

    def end(self) -> bytes:
        """Return the aggregator's word that the run is over."""
        return self.charter.end(self.kit(SERVER_SITE).me.signing)

    def result(self) -> dict[str, Any]:
        """Return what the aggregator wrote at the end."""
        found: dict[str, Any] = json.loads(
            (side(self.folders[SERVER_SITE]) / "result.json").read_text()
        )
        return found


def assemble(
    config: Config,
    folder: Path,
    locked: Mapping[str, Passphrase] | None = None,
    *,
    called: str = "site",
) -> Parties:
    """Let every party make its keys, agree on one charter and keep it.

    Args:
        config: of the run.
        folder: new; each party gets one of its name in it.
        locked: by the party's name, what its keys are put under; where that is asked for, see
            `keys.passphrase`.
        called: what the sites are called, with their numbers.
    """
    federation = Federation.from_config(config)
    plan = federation.plan()
    known = roles_of(plan, federation.policy)
    others = [name for name in known if name != AGGREGATOR_NAME]
    where = {name: f"{called}-{number}" for number, name in enumerate(others, 1)}
    where[AGGREGATOR_NAME] = SERVER_SITE
    folders = {site: folder / name for name, site in where.items()}
    under = locked or {}
    announced = [
        party.new_identity(folders[where[name]], name, role, under.get(name))
        for name, role in known.items()
    ]
    facts: Any = {"plan": plan, "policy": federation.policy, "config": config}
    charter = Charter.draw_up(
        announced,
        where,
        **facts,
        organisations={name: f"Organisation {name}" for name in where},
        spec=federation.own_spec(),
    )
    for place in folders.values():
        charter = joining.sign(place, charter)
    for place in folders.values():
        joining.keep(place, charter)
    return Parties(charter, folders)


def another(parties: Parties, config: Config) -> Charter:
    """Let the very same identities agree on one more charter, and keep it beside the first."""
    federation, first = Federation.from_config(config), parties.charter
    charter = Charter.draw_up(
        [first.roster.party(name) for name in first.sites],
        first.sites,
        plan=federation.plan(),
        policy=federation.policy,
        config=config,
        organisations=first.organisations,
        spec=federation.own_spec(),
    )
    for place in parties.folders.values():
        charter = joining.sign(place, charter)
    for place in parties.folders.values():
        joining.keep(place, charter)
    return charter


def gather(parties: Parties, into: Path) -> Path:
    """Put all parties' sides of a run into one folder, with all that lies in them."""
    into.mkdir(parents=True, exist_ok=True)
    (into / "charter.json").write_bytes(parties.charter.encode())
    for folder in parties.folders.values():
        for file in side(folder).rglob("*"):
            if file.is_file():
                target = into / file.relative_to(side(folder))
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(file.read_bytes())
    return into
