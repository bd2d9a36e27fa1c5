"""A toy run between organisations: every party with a folder of its own, as sessions leave it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from protocols.policy.policy import PrivacyPolicy
from protocols.sessions.part import State
from protocols.wire.roster import weights_digest
from secure_fgl.charters.broker import _USER, Broker, _encoded
from secure_fgl.charters.charter import Charter
from secure_fgl.config import Config
from secure_fgl.run.model_digest import npz_bytes
from secure_fgl.store.sides.party_side import place_of
from tests.audits.toy_run import (
    AGGREGATOR,
    FIVE,
    METRICS_TEXT,
    RESULT,
    Bus,
    Lose,
    Toy,
    countless,
    stated,
    text,
)

MODELS = {"final": {"w": np.ones(3, np.float32)}, "best": {"w": np.zeros(3, np.float32)}}
DIGESTS = {name: weights_digest(arrays) for name, arrays in MODELS.items()}
CONFIG = Config.parse({"algorithm": {"name": "fed_avg"}, "data": {"name": "synthetic_banks"}})


@dataclass
class Federation:
    """A finished run between organisations.

    Attributes:
        toy: the run, with all keys.
        charter: signed by all.
        folders: by party, its folder.
    """

    toy: Toy
    charter: Charter
    folders: Mapping[str, Path]

    def run(self, party: str) -> Path:
        """Return a party's side of the run folder."""
        return self.place(party) / "run"

    def place(self, party: str) -> Path:
        """Return the folder of the run at a party."""
        return place_of(self.folders[party])

    def ledger(self, party: str) -> Path:
        """Return a party's ledger."""
        return self.run(party) / "ledger" / f"{party}.jsonl"


def public_key(number: int) -> str:
    """Return a public key of a connection, as in a party's facts."""
    return _encoded(_USER + bytes([number]) * 32)


def agreed(toy: Toy, policy: PrivacyPolicy) -> Charter:
    """Return the charter of a toy run, signed by all."""
    shared = CONFIG.shared().model_copy(update={"policy": policy.name})
    names = [party["name"] for party in toy.roster.document()]
    carriers = {name: public_key(number) for number, name in enumerate(names)}
    broker = Broker(("tls://localhost:4222",))
    owners = {name: f"Organisation {name}" for name in names}
    charter = Charter(
        toy.nonce, toy.roster, carriers, broker, toy.plan, toy.policy, shared, {}, owners
    )
    for name in names:
        charter = charter.signed_by(name, toy.identities[name].signing)
    return charter


def play(
    root: Path,
    policy: str = "he",
    *,
    rounds: int = 2,
    losing: Lose | None = None,
    left: str = "",
    noised: bool = False,
) -> Federation:
    """Play a toy run whose parties have folders of their own.

    Args:
        root: below it the folders are made.
        policy: a preset.
        rounds: of training.
        losing: which envelopes are lost.
        left: a client whose session never ends.
        noised: nothing exact is sent, so that a policy with noise admits it.
    """
    chosen = PrivacyPolicy.preset(policy)
    shared = CONFIG.shared().model_copy(update={"policy": chosen.name})
    algorithm: Any = countless() if noised else None
    bus = Bus(
        chosen, rounds, FIVE, algorithm=algorithm, transport="broker", config=shared.agreed_text()
    )
    bus.lose = losing or bus.lose
    bus.play(rounds)
    toy = bus.toy
    if bus.aggregator.state is State.READY:
        bus.deliver(bus.aggregator.farewell())
    toy.finished = True
    for session in (bus.aggregator, *bus.others.values()):
        if session.name == left:
            continue
        facts = {"lost_rounds": toy.lost, "model_sha256": DIGESTS["final"]}
        told = {**stated(**facts), "model": DIGESTS["final"], "best": DIGESTS["best"]}
        session.close(told if session is bus.aggregator else None)
        key = toy.identities[session.name].signing
        toy.checkpoints[session.name] = session.ledger.checkpoint(key)
    charter = agreed(toy, chosen)
    folders = {name: root / name for name in toy.stores}
    for name, folder in folders.items():
        _write(toy, charter, name, folder)
    return Federation(toy, charter, folders)


def _write(toy: Toy, charter: Charter, party: str, folder: Path) -> None:
    roster = {"run": toy.run, "nonce": toy.nonce.hex(), "transport": "broker"}
    files: dict[str, bytes] = {
        "identity.json": json.dumps({"name": party, "seed": "5ec2e7" * 10}).encode(),
        "charter.json": charter.encode(),
        "keys/state": b"a key to kept state",
        "run/plan.json": toy.plan.text().encode(),
        "run/policy.json": text(toy.policy.document()),
        "run/config.yaml": charter.config.agreed_text().encode(),
        "run/roster.json": text({**roster, "parties": toy.roster.document()}),
        f"run/ledger/{party}.jsonl": toy.stores[party].lines,
        "run/private/x": b"kept state",
    }
    if note := toy.checkpoints.get(party):
        files[f"run/heads/{party}.checkpoint"] = note.encode()
    if party == AGGREGATOR:
        files["run/metrics.jsonl"] = METRICS_TEXT
        mine = {"lost_rounds": toy.lost, "run_dir": "/srv/x", "model_sha256": DIGESTS["final"]}
        files["run/result.json"] = text({**RESULT, **mine})
        files |= {f"run/checkpoints/{name}.npz": npz_bytes(MODELS[name]) for name in MODELS}
    for name, data in files.items():
        party_s = name.startswith(("identity", "keys"))
        path = folder / ("." if party_s else f"runs/{toy.run}") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def changed(path: Path, change: Callable[[bytes], bytes]) -> bytes:
    """Change a file and return what it held."""
    before = path.read_bytes()
    path.write_bytes(change(before))
    return before


__all__ = ["CONFIG", "Federation", "agreed", "changed", "play"]
