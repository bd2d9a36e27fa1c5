"""Parties with a folder each that agreed on one charter; for tests with and without a server."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from protocols.plan.plan import roles_of
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters import joining
from secure_fgl.charters.broker import Broker, new_carrier_key
from secure_fgl.charters.charter import Charter
from secure_fgl.charters.identity_file import Passphrase
from secure_fgl.charters.party import PartyKit, new_identity
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.store.sides.party_side import place_of
from secure_fgl.transports.broker.config import keep_connection

CLIENTS = 4  # the fewest that `masks` admits: each client and three others (O10)
NOWHERE = Broker(("tls://localhost:4222",), "")
"""A broker that no test without a server connects to."""


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
    """Everybody's folder, by the name of the party."""

    charter: Charter
    folders: Mapping[str, Path]

    @property
    def others(self) -> list[str]:
        """All parties but the aggregator."""
        return [name for name in self.folders if name != AGGREGATOR_NAME]

    def kit(self, name: str) -> PartyKit:
        """Return one party's kit, read anew."""
        return PartyKit.load(self.folders[name])

    def end(self) -> bytes:
        """Return the aggregator's word that the run is over."""
        return self.charter.end(self.kit(AGGREGATOR_NAME).me.signing)

    def result(self) -> dict[str, Any]:
        """Return what the aggregator wrote at the end."""
        found: dict[str, Any] = json.loads(
            (side(self.folders[AGGREGATOR_NAME]) / "result.json").read_text()
        )
        return found


def assemble(
    config: Config,
    folder: Path,
    locked: Mapping[str, Passphrase] | None = None,
    *,
    broker: Broker = NOWHERE,
) -> Parties:
    """Let every party make its keys, agree on one charter and keep it.

    Args:
        config: of the run.
        folder: new; each party gets one of its name in it.
        locked: by the party's name, what its keys are put under; where that is asked for, see
            `charters.passphrase`.
        broker: that the charter names.
    """
    federation = Federation.from_config(config)
    plan, under = federation.plan(), locked or {}
    roles = roles_of(plan, federation.policy)
    folders = {name: folder / name for name in roles}
    announced = [
        new_identity(folders[name], name, role, under.get(name)) for name, role in roles.items()
    ]
    charter = Charter.draw_up(
        announced,
        {name: new_carrier_key(place) for name, place in folders.items()},
        broker=broker,
        plan=plan,
        policy=federation.policy,
        config=config,
        organisations={name: f"Organisation {name}" for name in roles},
        spec=federation.own_spec(),
    )
    return Parties(_kept(folders, charter), folders)


def _kept(folders: Mapping[str, Path], charter: Charter) -> Charter:
    """Let everybody sign a charter, and keep it with what its carrier needs to know."""
    for place in folders.values():
        charter = joining.sign(place, charter)
    for name, place in folders.items():
        joining.keep(place, charter)
        keep_connection(place, charter, name)
    return charter


def another(parties: Parties, config: Config) -> Charter:
    """Let the very same identities agree on one more charter, and keep it beside the first."""
    federation, first = Federation.from_config(config), parties.charter
    charter = Charter.draw_up(
        [first.roster.party(name) for name in first.carriers],
        first.carriers,
        broker=first.broker,
        plan=federation.plan(),
        policy=federation.policy,
        config=config,
        organisations=first.organisations,
        spec=federation.own_spec(),
    )
    return _kept(parties.folders, charter)


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
