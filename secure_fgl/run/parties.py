"""Setting up all parties of a simulated run: identities, roster, contexts, ledgers, sessions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from crypto.homomorphic.he import Scheme
from crypto.oprf import KEY_BYTES
from crypto.samplers import derive, entropy
from protocols.disclosures.match.run import shared_key
from protocols.disclosures.names import Disclosure
from protocols.evidence.ledger import Ledger, Store
from protocols.forms import Form
from protocols.plan.plan import Plan, roles_of
from protocols.policy.budget import Reserve
from protocols.policy.guard import find
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.noising import PrivateSteps
from protocols.roles.aggregator import AggregatorSession
from protocols.roles.client import ClientSession
from protocols.sessions.engine import Session
from protocols.sessions.store.locked import LockedStateStore
from protocols.sessions.store.recording import Recorder
from protocols.sessions.store.state_keeper import Outcome, StateKeeper
from protocols.wire.envelope import NONE
from protocols.wire.roles import Role, session_of
from protocols.wire.roster import AGGREGATOR_NAME, Identity, Roster, run_id
from protocols.wire.run_context import RunContext, Zeros
from secure_fgl.errors import UsageError
from secure_fgl.run.clock import clock
from secure_fgl.run.cores import over_cores
from secure_fgl.store.state_store import FileStateStore, KeptStateStore, StateStores


def bare_backend(policy: PrivacyPolicy) -> str:
    """Return what protects sums where nothing is encrypted."""
    if policy.unsafe:
        return "unsafe-clear"
    return "masks" if find(policy.rules.get(Disclosure.SUM, ()), "mask") else "none"


SessionT = TypeVar("SessionT", bound=Session)
_LEARNING = (Role.CLIENT, Role.AGGREGATOR)  # who is told what the algorithm says

SEED = "identity"  # the piece in a party's store from which its keys are made
CONFIG = "config"  # the piece that binds a run to its configuration


@dataclass
class Parties:
    """All sessions of one run that are in this process.

    Attributes:
        run: the run's name; nonce and roster are what it was made from.
        aggregator: drives the run.
        others: every other session, by name; without the clients' where workers play them.
        outcomes: of a run that was taken up, how every Ask before the kill ended.
        reasons: why clients refused whose sessions are in other processes; it never travelled.
    """

    run: str
    nonce: bytes
    roster: Roster
    identities: Mapping[str, Identity]
    aggregator: AggregatorSession
    others: Mapping[str, Session]
    outcomes: Sequence[Outcome] = ()
    reasons: dict[str, BaseException] = field(default_factory=dict)

    def reason(self, name: str) -> BaseException | None:
        """Return why a party of this machine refused, None if that is not known."""
        session = self.others.get(name)
        return session.last_error if session is not None else self.reasons.get(name)

    def sessions(self) -> list[Session]:
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


@dataclass(frozen=True)
class Making:
    """What every session of a run is made of.

    Attributes:
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
        config: what the run was configured with; a run that is taken up must have the same.
        tag_key: of tags in ``hmac`` mode, which all clients hold; None without.
        plugins: digests of the plug-ins that this process has read; see `RunContext`.
    """

    plan: Plan
    policy: PrivacyPolicy
    form: Form[Any]
    sites: Sequence[Any]
    scheme: Scheme | None
    store: Callable[[str], Store]
    seed: int
    zeros: Zeros | None = None
    reserve: Callable[[str], Reserve] | None = None
    transport: str = "memory"
    config: str = ""
    tag_key: bytes | None = field(default=None, repr=False)
    plugins: Mapping[str, str] = field(default_factory=dict)

    @property
    def roles(self) -> dict[str, Role]:
        """Every party's role, by name."""
        return roles_of(self.plan, self.policy)

    @property
    def rounding(self) -> bytes:
        """Key of the stochastic rounding stream."""
        return derive(self.seed.to_bytes(32, "big"), "secure-fgl", "rounding")

    def site(self, name: str) -> Any:
        """Return a client's site; None for other parties."""
        return self._sites.get(name)

    @cached_property
    def _sites(self) -> dict[str, Any]:
        return dict(zip(self.plan.clients, self.sites, strict=True))

    def context(self, me: Identity, first: RunContext) -> RunContext:
        """Return what one party holds; `first` is the context of any party of this run."""
        held = first.of_party(me)
        if me.party.role is Role.CLIENT:
            held.zeros, held.tag_key = self.zeros, self.tag_key
            held.reserve = self.reserve(me.party.name) if self.reserve else None
            if self.plan.training is not None:
                held.training = PrivateSteps(self.plan.training)
                self.site(me.party.name).training = held.training
        return held

    def first_context(self, me: Identity, roster: Roster, run: str) -> RunContext:
        """Check plan, policy and roster against each other; see `context`."""
        facts = (self.plan, self.policy, run, self.scheme)
        config = hashlib.sha256(self.config.encode()).hexdigest() if self.config else NONE
        return RunContext(
            me, roster, *facts, transport=self.transport, config=config, spread=over_cores,
            plugins=self.plugins,
        )  # fmt: skip

    def session(self, context: RunContext) -> Session:
        """Return one party's session at the beginning of a run."""
        name = context.me.party.name
        ledger = Ledger(name, context.run, self.store(name), clock)
        if context.me.party.role is Role.CLIENT:
            site = self.site(name)
            return ClientSession(context, ledger, self.rounding, site=site, form=self.form)
        if context.me.party.role is Role.AGGREGATOR:
            return AggregatorSession(context, ledger, self.rounding, self.form)
        made: Session = session_of(context.me.party.role)(context, ledger, self.rounding)
        return made

    def keeper(self, context: RunContext, state_store: KeptStateStore) -> StateKeeper:
        """Return what keeps a party's state."""
        form = self.form if context.me.party.role in _LEARNING else None
        return StateKeeper(state_store, context, form, self.site(context.me.party.name))

    def recorder(
        self, context: RunContext, state_store: FileStateStore, ledger: Ledger
    ) -> Recorder:
        """Return what keeps a party's captured rounds, and names them in its ledger."""
        return Recorder(state_store, context, self.form, self.site(context.me.party.name), ledger)


def set_up(making: Making, state_stores: Callable[[str], StateStores] | None = None) -> Parties:
    """Make every party's keys and sessions.

    Args:
        making: what the sessions are made of.
        state_stores: returns run's stores by its name; None keeps no state.
    """
    if shared_key(making.policy.rules.get(Disclosure.MATCH, ())):
        making = replace(making, tag_key=entropy(KEY_BYTES))
    seeds = {name: entropy(32) for name in making.roles}
    identities = {n: Identity.from_seed(n, role, seeds[n]) for n, role in making.roles.items()}
    roster, nonce = Roster(identity.party for identity in identities.values()), entropy(16)
    run = run_id(nonce, roster, making.plan.digest, making.policy.digest)
    sessions = {}
    first = making.first_context(identities[AGGREGATOR_NAME], roster, run)
    for name, me in identities.items():
        context = making.context(me, first)
        sessions[name] = making.session(context)
        if state_stores is not None:
            state_store = state_stores(run).new(name)
            LockedStateStore(state_store, run, name).put(SEED, seeds[name])
            LockedStateStore(state_store, run, name).put(CONFIG, making.config.encode())
            sessions[name].keeper = making.keeper(context, state_store)
            sessions[name].commit()
    return _parties(run, nonce, roster, identities, sessions)


def take_up(
    making: Making,
    document: Mapping[str, Any],
    state_stores: StateStores,
    found: Callable[[str], bytes],
) -> Parties:
    """Return all sessions of a run that was killed, as they were kept.

    Args:
        making: what the sessions are made of; `store` goes on with what is there.
        document: what ``roster.json`` holds.
        state_stores: the run's.
        found: returns what a party's ledger holds, by name.

    Raises:
        UsageError: plan, policy or parties are not those of the run.
        LedgerError: a state is missing, or is older than its ledger.
    """
    run, nonce = str(document["run"]), bytes.fromhex(document["nonce"])
    open_state_stores = {name: state_stores.open(name) for name in making.roles}
    for name, state_store in open_state_stores.items():
        if LockedStateStore(state_store, run, name).get(CONFIG) != making.config.encode():
            raise UsageError(
                "The configuration is not the one that the killed run began with.",
                why=f"{name} kept another one",
                fix="resume with the run folder's own configuration, as it was",
            )
    identities = {
        name: Identity.from_seed(
            name, role, LockedStateStore(open_state_stores[name], run, name).get(SEED)
        )
        for name, role in making.roles.items()
    }
    roster = Roster(identity.party for identity in identities.values())
    if run != run_id(nonce, roster, making.plan.digest, making.policy.digest):
        raise UsageError(
            "This is not the run that was killed: its plan, policy or parties differ.",
            fix="resume with the run folder's own configuration",
        )
    sessions: dict[str, Any] = {}
    outcomes: Sequence[Outcome] = ()
    first = making.first_context(identities[AGGREGATOR_NAME], roster, run)
    for name, me in identities.items():
        context = making.context(me, first)
        keeper = making.keeper(context, open_state_stores[name])

        def reopen(facts: Mapping[str, Any], name: str = name) -> Ledger:
            data = found(name)
            store = making.store(name)
            return Ledger.take_up(name, run, store, clock, found=data, facts=facts)

        sessions[name] = keeper.restore(session_of(me.party.role), reopen)
        if me.party.role is Role.AGGREGATOR:
            outcomes = tuple(keeper.outcomes())
    return _parties(run, nonce, roster, identities, sessions, outcomes)


def _parties(
    run: str,
    nonce: bytes,
    roster: Roster,
    identities: Mapping[str, Identity],
    sessions: Mapping[str, Any],
    outcomes: Sequence[Outcome] = (),
) -> Parties:
    others = {name: session for name, session in sessions.items() if name != AGGREGATOR_NAME}
    aggregator = sessions[AGGREGATOR_NAME]
    return Parties(run, nonce, roster, identities, aggregator, others, outcomes)
