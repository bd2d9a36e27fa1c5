"""Plays an algorithm through plan, sessions, ledgers and the memory transport, with a wiretap."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from algorithms.tasks import Site
from algorithms.tasks.evaluation import begun
from crypto.homomorphic.he import scheme as find_scheme
from protocols.disclosures.names import Disclosure
from protocols.evidence.ledger import MemoryStore
from protocols.forms import Algorithm
from protocols.plan.plan import DataPlan, Plan
from protocols.plan.planning import make_plan
from protocols.policy.guard import find
from protocols.policy.policy import PrivacyPolicy
from protocols.sessions.engine import Delivery
from protocols.wire.envelope import Envelope
from secure_fgl.run.driver import Driver, Meter
from secure_fgl.run.naming import client_names
from secure_fgl.run.parties import Making, Parties, set_up
from secure_fgl.transports import Transport
from secure_fgl.transports.memory import MemoryTransport


@dataclass
class Tap:
    """A transport that keeps a copy of every byte that travels, in both directions.

    Attributes:
        sent: what each delivered delivery held, in order; ``(addressee, bytes)``.
    """

    inner: Transport
    sent: list[tuple[str, bytes]] = field(default_factory=list)

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        answers = self.inner.exchange(deliveries)
        self.sent += [(p.to, bytes(p.data)) for p in (*deliveries, *answers)]
        return answers

    def envelopes(self, item: str = "") -> list[Envelope]:
        """Return the decoded envelopes whose item begins with `item`."""
        found = [Envelope.decode(data) for _, data in self.sent]
        return [envelope for envelope in found if envelope.header.item.startswith(item)]


@dataclass
class Played:
    """What a play leaves behind."""

    state: Any
    plan: Plan
    parties: Parties
    tap: Tap
    ledgers: dict[str, MemoryStore]


def plan_of(
    algorithm: Algorithm[Any], policy: PrivacyPolicy, clients: int, rounds: int, records: int = 1
) -> Plan:
    data = DataPlan(name="toy", task="none", features=1, classes=1, records=records, synthetic=True)
    wanted = find(policy.rules.get(Disclosure.SUM, ()), "he")
    return make_plan(
        algorithm,
        policy,
        data=data,
        clients=client_names(clients),
        rounds=rounds,
        scheme=find_scheme() if wanted else None,
    )


def play(
    algorithm: Algorithm[Any],
    sites: Sequence[Site],
    policy: str | PrivacyPolicy = "unsafe_plaintext",
    *,
    rounds: int = 1,
    plan: Plan | None = None,
) -> Played:
    """Run `algorithm` for some rounds; every byte goes through the real sessions."""
    policy = PrivacyPolicy.preset(policy) if isinstance(policy, str) else policy
    plan = plan or plan_of(algorithm, policy, len(sites), rounds)
    form = begun(policy.admit(algorithm), algorithm.init(np.random.default_rng(0)))
    ledgers: dict[str, MemoryStore] = {}

    def store(name: str) -> MemoryStore:
        return ledgers.setdefault(name, MemoryStore())

    wanted = find(policy.rules.get(Disclosure.SUM, ()), "he")
    scheme = find_scheme() if wanted else None
    parties = set_up(Making(plan, policy, form, sites, scheme=scheme, store=store, seed=1))
    tap = Tap(MemoryTransport(parties.others))
    driver = Driver(parties, tap, Meter())
    driver.start()
    state = algorithm.init(np.random.default_rng(0))
    for number in range(1, rounds + 1):
        state = driver.play(form.round(state, driver.cohort), number)
    for session in parties.sessions():
        session.close()
    return Played(state, plan, parties, tap, ledgers)
