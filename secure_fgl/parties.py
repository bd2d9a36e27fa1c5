"""Setting up all parties of a simulated run: identities, roster, papers, ledgers, sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from crypto.he import Scheme
from crypto.samplers import derive, entropy
from protocols.budget import Reserve
from protocols.disclosures import Disclosure
from protocols.forms import Form
from protocols.guards import find
from protocols.ledger import Ledger, Store
from protocols.papers import Papers, Zeros
from protocols.plan import Plan
from protocols.planner import AGGREGATOR_NAME, AUTHORITY_NAME
from protocols.policy import PrivacyPolicy
from protocols.roster import Identity, Role, Roster, run_id
from protocols.sessions.aggregator import AggregatorSession
from protocols.sessions.client import ClientSession
from protocols.sessions.key_authority import KeyAuthoritySession


def clock() -> str:
    """Return the time (UTC, to the second) for ledger entries."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def client_names(count: int) -> tuple[str, ...]:
    """Return names of equal length: ``client-1`` … or ``client-01`` …"""
    width = len(str(count))
    return tuple(f"client-{i:0{width}d}" for i in range(1, count + 1))


def bare_backend(policy: PrivacyPolicy) -> str:
    """Return what protects sums where nothing is encrypted."""
    if policy.unsafe:
        return "unsafe-clear"
    return "masks" if find(policy.rules.get(Disclosure.SUM, ()), "mask") else "none"


def learning_seed(seed: int, *labels: str) -> int:
    """Derive a seed of learning randomness; never used for a secret."""
    content = "/".join(("secure-fgl", str(seed), *labels)).encode()
    return int.from_bytes(hashlib.sha256(content).digest()[:6], "big")


@dataclass
class Parties:
    """All sessions of one run in one process.

    Attributes:
        run: the run's name; nonce and roster are what it was made from.
        aggregator: drives the run.
        others: every other session, by name.
    """

    run: str
    nonce: bytes
    roster: Roster
    identities: Mapping[str, Identity]
    aggregator: AggregatorSession
    others: Mapping[str, ClientSession | KeyAuthoritySession]

    def sessions(self) -> list[AggregatorSession | ClientSession | KeyAuthoritySession]:
        """Return all sessions."""
        return [self.aggregator, *self.others.values()]

    def checkpoints(self) -> dict[str, str]:
        """Return every party's signed checkpoint of its ledger as it stands."""
        return {
            session.name: session.ledger.checkpoint(self.identities[session.name].signing)
            for session in self.sessions()
        }

    def document(self) -> dict[str, Any]:
        """Return what ``roster.json`` holds."""
        return {"run": self.run, "nonce": self.nonce.hex(), "parties": self.roster.document()}


def set_up(  # noqa: PLR0913 - what a run is made of, by name
    plan: Plan,
    policy: PrivacyPolicy,
    form: Form[Any],
    sites: Sequence[Any],
    *,
    scheme: Scheme | None,
    store: Callable[[str], Store],
    seed: int,
    zeros: Zeros | None = None,
    reserve: Callable[[str], Reserve] | None = None,
    transport: str = "memory",
) -> Parties:
    """Make every party's keys and sessions.

    Args:
        plan: the approved plan; its clients, in order, get `sites`.
        policy: the policy the plan was made for.
        form: the admitted form.
        sites: one per client.
        scheme: encryption of sums, None without it.
        store: returns a ledger's storage by party name.
        seed: of the stochastic rounding (no privacy claim rests on it, O15).
        zeros: encryptions of zero made ahead of time, for all clients of this process.
        reserve: returns the door to a site's privacy budget by client name.
        transport: its name; every ledger begins with it.
    """
    roles = {AGGREGATOR_NAME: Role.AGGREGATOR, **dict.fromkeys(plan.clients, Role.CLIENT)}
    if any(item.id == "key.call" for item in plan.items):
        roles[AUTHORITY_NAME] = Role.KEY_AUTHORITY
    identities = {name: Identity.generate(name, role) for name, role in roles.items()}
    roster = Roster(identity.party for identity in identities.values())
    nonce = entropy(16)
    run = run_id(nonce, roster, plan.digest, policy.digest)
    rounding = derive(seed.to_bytes(32, "big"), "secure-fgl", "rounding")

    def papers(name: str) -> Papers:
        held = Papers(identities[name], roster, plan, policy, run, scheme, transport=transport)
        if roles[name] is Role.CLIENT:
            held.zeros, held.reserve = zeros, reserve(name) if reserve else None
        return held

    def ledger(name: str) -> Ledger:
        return Ledger(name, run, store(name), clock)

    others: dict[str, ClientSession | KeyAuthoritySession] = {
        name: ClientSession(papers(name), ledger(name), rounding, site=site, form=form)
        for name, site in zip(plan.clients, sites, strict=True)
    }
    if AUTHORITY_NAME in roles:
        authority = KeyAuthoritySession(papers(AUTHORITY_NAME), ledger(AUTHORITY_NAME), rounding)
        others[AUTHORITY_NAME] = authority
    aggregator = AggregatorSession(papers(AGGREGATOR_NAME), ledger(AGGREGATOR_NAME), rounding, form)
    return Parties(run, nonce, roster, identities, aggregator, others)
