"""How long it takes to verify a bundle with many ledger entries, and where the time goes.

A synthetic run of real sessions (no training, eight weights) writes its ledgers through
protocols.evidence.ledger, in memory; rounds are played until there are enough entries. Nothing is
asserted.

    python benchmarks/bench_verify.py [--entries 100000] [--clients 40] [--policy unsafe_plaintext]
"""

from __future__ import annotations

import hashlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

if __package__ in (None, ""):  # run as a file: the floors lie one folder up
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from audits.bundle.archive import pack, read_manifest, unpack, view_of
from audits.bundle.making import make
from audits.checks.bundle import verify_bundle
from audits.evidence.run_files import RunView, policy_text, result_digest
from audits.evidence.steps import Case
from audits.evidence.verify import verify
from benchmarks._measure import interleaved, medians, parser, show
from benchmarks.bench_he import constant
from crypto.signing import SigningKey
from protocols.evidence.ledger import MemoryStore
from protocols.plan.plan import DataPlan
from protocols.plan.planning import make_plan
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.roles import Role
from secure_fgl.run.closing import close_all
from secure_fgl.run.driver import Driver, Meter
from secure_fgl.run.naming import client_names
from secure_fgl.run.parties import Making, set_up
from secure_fgl.store.bundles import environment
from secure_fgl.transports.memory import MemoryTransport

WEIGHTS = 8


class Heads(dict[str, str]):
    """Takes what would be files."""

    def text(self, name: str, content: str) -> None:
        """Keep a file's text."""
        self[Path(name).name.removesuffix(".checkpoint")] = content

    def remove(self, name: str) -> None:
        """Nothing else is kept."""


def played(entries: int, clients: int, name: str) -> RunView:
    """Return a finished run with at least that many ledger entries.

    Args:
        entries: of all ledgers together.
        clients: how many.
        name: of the policy.
    """
    vectors: Any = [np.full(WEIGHTS, 0.1)] * clients
    policy, algorithm = PrivacyPolicy.preset(name), constant(WEIGHTS, vectors)
    per_round = 8 * clients if policy.name != "unsafe_plaintext" else 4 * clients
    rounds = -(-entries // per_round)
    data = DataPlan(name="none", task="none", features=1, classes=1, records=1, synthetic=True)
    plan = make_plan(
        algorithm, policy, data=data, clients=client_names(clients), rounds=rounds, scheme=None
    )
    stores = {name: MemoryStore() for name in (*plan.clients, "aggregator")}
    form, sites = policy.admit(algorithm), list(range(clients))
    making = Making(plan, policy, form, sites, scheme=None, store=stores.__getitem__, seed=1)
    parties = set_up(making)
    driver = Driver(parties, MemoryTransport(parties.others), Meter())
    driver.start()
    state, number = algorithm.init(np.random.default_rng(0)), 0
    while number < rounds and sum(s.ledger.size for s in parties.sessions()) < entries:
        number += 1
        state = driver.play(form.round(state, driver.cohort), number)
    driver.finish()
    heads = Heads()
    none = {"best_round": None, "val_accuracy": None}
    result = {"metrics": none, "model_sha256": None}
    ended = {"best": "", "metrics": hashlib.sha256(b"").hexdigest(), "model": ""}
    close_all(parties, heads, lambda: {**ended, "document": result_digest(result)})
    document = {**parties.document(), "transport": "memory"}
    return RunView(
        plan_text=plan.text().encode(),
        policy_text=policy_text(policy).encode(),
        roster_text=(json.dumps(document, indent=2, sort_keys=True) + "\n").encode(),
        result_text=json.dumps(result).encode(),
        ledgers={name: store.lines for name, store in stores.items()},
        checkpoints=dict(heads),
    )


def main() -> int:
    """Measure and print."""
    options = parser("Verification of a bundle.", repeats=3)
    options.add_argument("--entries", type=int, default=100_000)
    options.add_argument("--clients", type=int, default=40)
    options.add_argument("--policy", default="unsafe_plaintext")
    args = options.parse_args()
    start = time.perf_counter()
    view = played(args.entries, args.clients, args.policy)
    made = time.perf_counter() - start
    files = make(view, environment=environment(), day="2026-01-01", signer=SigningKey.generate())
    data = pack(files)
    found = verify_bundle(data)
    left = [f"{s.name}: {s.detail}" for s in found.steps if str(s.status) == "FAIL"]
    folder = view_of(files)
    parts = {
        "bundle": lambda: verify_bundle(data),
        "folder": lambda: verify(folder),
        "open": lambda: read_manifest(unpack(data)),
        "parse": lambda: Case(folder).ledger_index,
    }
    seconds = medians(interleaved(parts, args.repeats))
    case = Case(folder)
    show(
        {
            "entries": sum(map(len, case.ledger_index.entries.values())),
            "clients": len(case.roster.names(Role.CLIENT)),
            "policy": args.policy,
            "bytes": len(data),
            "made_s": made,
            "failed": "; ".join(left) or "nothing",
            **{f"{name}_s": value for name, value in seconds.items()},
        },
        args.format,
    )
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
