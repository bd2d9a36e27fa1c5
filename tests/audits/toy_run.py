"""A small run through the real sessions: four clients, a toy algorithm, everything in memory.

The sites hold a constant each and what they answer is no learning, but every byte goes through the
gateways, inboxes and ledgers that a real run uses.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from algorithms.tasks import ClientModel
from audits.evidence.run_files import RunView, result_digest
from audits.formats import FORMATS, render
from audits.report.build import build_report
from crypto.homomorphic.he import Scheme, scheme
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import SCHEMES, encryption
from protocols.errors import RoundLost
from protocols.evidence.ledger import Ledger, MemoryStore
from protocols.forms import Algorithm, Form
from protocols.messages import ReleasedMessage, SumMessage, Vector, count, real
from protocols.plan.plan import DataPlan, Plan, roles_of
from protocols.plan.planning import make_plan
from protocols.policy.policy import PrivacyPolicy
from protocols.roles.aggregator import AggregatorSession
from protocols.roles.client import ClientSession
from protocols.roles.key_authority import KeyAuthoritySession
from protocols.roles.matcher import MatcherSession
from protocols.roles.relay import RelaySession
from protocols.roles.tag_server import TagServerSession
from protocols.roles.witness import WitnessSession
from protocols.rounds import Ask, Cohort, Reply, Round
from protocols.sessions.engine import Delivery
from protocols.sessions.part import State
from protocols.wire.envelope import NONE, Envelope, Header
from protocols.wire.roles import Role
from protocols.wire.roster import AGGREGATOR_NAME, Identity, Roster, run_id
from protocols.wire.run_context import RunContext

ROUNDING = bytes(32)
METRICS = (
    {"round": 0, "test_accuracy": 0.25, "val_accuracy": 0.125},
    {"round": 1, "test_accuracy": 0.5, "val_accuracy": 0.375},
    {"round": 2, "test_accuracy": 0.75, "val_accuracy": 0.375},
)
METRICS_TEXT = "".join(f"{json.dumps(row)}\n" for row in METRICS).encode()
WEIGHTS = {"final": "f0" * 32, "best": "be" * 32}
RESULT = {
    "metrics": {"best_round": 1, "test_accuracy": 0.5, "val_accuracy": 0.375},
    "lost_rounds": [],
    "model_sha256": WEIGHTS["final"],
    "rounds": 2,
}
CLIENTS = ("client-1", "client-2", "client-3", "client-4")
FIVE = (*CLIENTS, "client-5")
AGGREGATOR, AUTHORITY = AGGREGATOR_NAME, "key-authority"


class Given(ReleasedMessage):
    """The toy's model."""

    weights: Vector = real("d", unit="weight", meaning="the model", wire="f4")


class Answer(SumMessage):
    """The toy's update."""

    delta: Vector = real("d", unit="weight", meaning="change of the model")
    count: int = count(unit="record", meaning="records")


class Drift(SumMessage):
    """An update that says nothing exact, so that noise can cover all of it."""

    delta: Vector = real("d", unit="weight", meaning="change of the model")


class Again(ReleasedMessage):
    """The toy's model once more, for a second sum in one round."""

    weights: Vector = real("d", unit="weight", meaning="the model", wire="f4")


def toy() -> Algorithm[Given]:
    """Return an algorithm of eight weights that moves by the mean of what the sites hold."""

    def step(site: float, given: Given) -> Answer:
        return Answer(delta=np.full(8, site), count=3)

    def round(state: Given, cohort: Cohort) -> Round[Given]:
        reply = yield Ask(cohort, given=state, back=Answer)
        total = reply.total(Answer)
        return Given(weights=(state.weights + total.delta / total.count).astype(np.float32))

    return _algorithm(round, {Given: step})


def two_sums() -> Algorithm[Given]:
    """Return a toy that asks for two sums in every round."""

    def step(site: float, given: Given) -> Answer:
        return Answer(delta=np.full(8, site), count=3)

    def again(site: float, given: Again) -> Drift:
        return Drift(delta=np.full(8, site))

    def round(state: Given, cohort: Cohort) -> Round[Given]:
        reply = yield Ask(cohort, given=state, back=Answer)
        total = reply.total(Answer)
        yield Ask(cohort, given=Again(weights=state.weights), back=Drift)
        return Given(weights=(state.weights + total.delta / total.count).astype(np.float32))

    return _algorithm(round, {Given: step, Again: again})


def told() -> Algorithm[Given]:
    """Return a toy that, after its sum, tells the clients something and wants nothing back."""

    def step(site: float, given: Given) -> Answer:
        return Answer(delta=np.full(8, site), count=3)

    def tell(site: float, given: Again) -> None:
        return None

    def round(state: Given, cohort: Cohort) -> Round[Given]:
        yield Ask(cohort, given=state, back=Answer)
        yield Ask(cohort, given=Again(weights=state.weights))
        return state

    return _algorithm(round, {Given: step, Again: tell})


def countless() -> Algorithm[Given]:
    """Return a toy whose clients send no exact count: a policy with noise admits it."""

    def step(site: float, given: Given) -> Drift:
        return Drift(delta=np.full(8, site))

    def round(state: Given, cohort: Cohort) -> Round[Given]:
        reply = yield Ask(cohort, given=state, back=Drift)
        total = reply.total(Drift)
        return Given(weights=(state.weights + total.delta).astype(np.float32))

    return _algorithm(round, {Given: step})


def _algorithm(round: Any, answers: Any) -> Algorithm[Given]:
    return Algorithm(
        name="toy",
        citation="none",
        init=lambda rng: Given(weights=np.zeros(8, np.float32)),
        model=lambda site, given: ClientModel((np.zeros(1, np.float32),)),
        forms=(Form.of("mean", round, answers=answers),),
        dims={"d": 8},
    )


@dataclass
class Toy:
    """A finished run with all its keys, so that a test can also play an insider who has them."""

    plan: Plan
    policy: PrivacyPolicy
    roster: Roster
    nonce: bytes
    run: str
    identities: dict[str, Identity]
    stores: dict[str, MemoryStore] = field(default_factory=dict)
    checkpoints: dict[str, str] = field(default_factory=dict)
    finished: bool = False
    lost: list[int] = field(default_factory=list)

    def view(self, *, reports: bool = True) -> RunView:
        """Return the run as an auditor gets it, with its report files."""
        roster = {
            "run": self.run,
            "nonce": self.nonce.hex(),
            "transport": "memory",
            "parties": self.roster.document(),
        }
        made = RunView(
            plan_text=self.plan.text().encode(),
            policy_text=text(self.policy.document()),
            roster_text=text(roster),
            result_text=text({**RESULT, "lost_rounds": self.lost}) if self.finished else b"",
            metrics_text=METRICS_TEXT,
            weights=dict(WEIGHTS) if self.finished else {},
            ledgers={name: store.lines for name, store in self.stores.items()},
            checkpoints=dict(self.checkpoints),
        )
        return with_reports(made) if reports else made


def stated(**changed: Any) -> dict[str, str]:
    """Return what the aggregator's ledger ends with: digests of result, metrics and models."""
    metrics = hashlib.sha256(METRICS_TEXT).hexdigest()
    document = result_digest({**RESULT, **changed})
    return {
        "best": WEIGHTS["best"], "document": document, "metrics": metrics, "model": WEIGHTS["final"]
    }  # fmt: skip


def text(document: Any) -> bytes:
    """Return JSON as the run folder holds it."""
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()


def save(view: RunView, folder: Path) -> Path:
    """Write a view without models as a run folder, and return it."""
    documents = {"plan.json": view.plan_text, "policy.json": view.policy_text}
    documents |= {"roster.json": view.roster_text, "result.json": view.result_text}
    files = {folder / name: data for name, data in documents.items()}
    files[folder / "metrics.jsonl"] = view.metrics_text
    files |= {folder / "ledger" / f"{p}.jsonl": data for p, data in view.ledgers.items()}
    heads = view.checkpoints.items()
    files |= {folder / "heads" / f"{p}.checkpoint": note.encode() for p, note in heads}
    for path, data in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


def with_reports(view: RunView) -> RunView:
    """Return the view with freshly rendered report files."""
    return replace(view, reports=render(build_report(view), FORMATS))


Lose = Callable[[Header, str], bool]
"""Tells, by an envelope's header and addressee, whether it is lost on its way."""


def maskless(name: str = "he") -> PrivacyPolicy:
    """Return a preset without its masks: an aggregator must then be trusted to be semi-honest."""
    policy = PrivacyPolicy.preset(name)
    chain = tuple(guard for guard in policy.rules[Disclosure.SUM] if guard.guard != "mask")
    rules = {**policy.rules, Disclosure.SUM: chain}
    return policy.model_copy(update={"name": f"{name}_maskless", "rules": rules})


def lose(client: str, *items: str, round: int | None = None) -> Lose:
    """Return a loss of what a client sends or gets: of items that end so, in a round."""

    def lost(header: Header, to: str) -> bool:
        there = client in (header.sender, to) and round in (None, header.round)
        return there and header.item.endswith(items or ("",))

    return lost


def reserve(**asked: Any) -> dict[str, str | int]:
    """Take from a budget without a store: the facts that a client records."""
    cap = asked["cap"]
    stated = {"delta": repr(cap.delta), "epsilon": repr(cap.epsilon), "head": "ab" * 32}
    return {"dataset": asked["dataset"], "entries": 1, **stated}


class Bus:
    """Sessions of all parties, wired in process, through bytes.

    Attributes:
        lose: what is lost on its way.
    """

    def __init__(
        self,
        policy: PrivacyPolicy,
        rounds: int,
        clients: tuple[str, ...] = CLIENTS,
        site: Callable[[str], float] = lambda name: 0.25,
        synthetic: bool = True,
        algorithm: Algorithm[Any] | None = None,
        tag_key: bytes | None = None,
        transport: str = "memory",
        config: str = "",
    ) -> None:
        algorithm = algorithm or toy()
        wanted = encryption(policy.rules.get(Disclosure.SUM, ()))
        he: Scheme | None = scheme(SCHEMES[wanted]) if wanted else None
        data = DataPlan(
            name="toy", task="node", features=1, classes=2, records=4, synthetic=synthetic
        )
        plan = make_plan(algorithm, policy, data=data, clients=clients, rounds=rounds, scheme=he)
        roles = roles_of(plan, policy)
        people = {name: Identity.generate(name, role) for name, role in roles.items()}
        roster, nonce = Roster(p.party for p in people.values()), bytes(range(16))
        run = run_id(nonce, roster, plan.digest, policy.digest)
        self.toy = Toy(plan, policy, roster, nonce, run, people)
        self.form, self.algorithm = algorithm.forms[0], algorithm
        self.lose: Lose = lambda header, to: False

        def tools(name: str) -> tuple[RunContext, Ledger, bytes]:
            store = self.toy.stores.setdefault(name, MemoryStore())
            ledger = Ledger(name, run, store, lambda: "2026-01-02T03:04:05Z")
            mine = RunContext(people[name], roster, plan, policy, run, he, reserve=reserve)
            mine.tag_key, mine.transport = tag_key, transport
            mine.config = hashlib.sha256(config.encode()).hexdigest() if config else NONE
            return mine, ledger, ROUNDING

        self.others: dict[str, Any] = {
            name: ClientSession(*tools(name), site=site(name), form=self.form) for name in clients
        }
        if "key-authority" in roles:
            self.others["key-authority"] = KeyAuthoritySession(*tools("key-authority"))
        made = {
            Role.WITNESS: WitnessSession,
            Role.TAG_SERVER: TagServerSession,
            Role.MATCHER: MatcherSession,
        }
        self.others |= {name: made[r](*tools(name)) for name, r in roles.items() if r in made}
        if "relay" in roles:
            self.others["relay"] = RelaySession(*tools("relay"))
        self.aggregator = AggregatorSession(*tools(AGGREGATOR_NAME), self.form)

    def deliver(self, deliveries: Iterable[Delivery]) -> None:
        """Carry deliveries and answers until the aggregator has nothing more to send."""
        outgoing = list(deliveries)
        while outgoing:
            for delivery in outgoing:
                if self._lost(delivery):
                    continue
                for answer in self.others[delivery.to].receive(delivery.data):
                    if not self._lost(answer):
                        self.aggregator.receive(answer.data)
            outgoing = self.aggregator.advance()

    def _lost(self, delivery: Delivery) -> bool:
        return self.lose(Envelope.decode(delivery.data).header, delivery.to)

    def ask(self, ask: Ask, number: int) -> Reply:
        """Return the reply to one Ask."""
        self.deliver(self.aggregator.prepare(number))
        self.deliver(self.aggregator.ask(ask, number))
        return self.aggregator.reply()

    def play(self, rounds: int) -> None:
        """Play rounds of the algorithm; a round with too few clients is skipped."""
        state = self.algorithm.init(np.random.default_rng(0))
        cohort = Cohort(self.toy.plan.clients)
        self.deliver(self.aggregator.start())
        for number in range(1, rounds + 1):
            steps = self.form.round(state, cohort)
            ask = next(steps)
            try:
                while True:
                    ask = steps.send(self.ask(ask, number))
            except StopIteration as stop:
                state = stop.value
            except RoundLost:
                self.toy.lost.append(number)

    def finish(self, *, whole: bool = True) -> Toy:
        """Close all sessions, sign their heads, return the run; `whole`: it reached its end."""
        self.toy.finished = whole
        if whole and self.aggregator.state is State.READY:
            self.deliver(self.aggregator.farewell())
        ends = stated(lost_rounds=self.toy.lost) if whole else None
        for session in (self.aggregator, *self.others.values()):
            session.close(ends if session is self.aggregator else None)
            key = self.toy.identities[session.name].signing
            self.toy.checkpoints[session.name] = session.ledger.checkpoint(key)
        return self.toy


def run_toy(
    policy: str | PrivacyPolicy = "he",
    *,
    rounds: int = 2,
    clients: tuple[str, ...] = CLIENTS,
    site: Callable[[str], float] = lambda name: 0.25,
    synthetic: bool = True,
    losing: Lose | None = None,
    algorithm: Algorithm[Any] | None = None,
    tag_key: bytes | None = None,
) -> Toy:
    """Return a finished toy run."""
    chosen = PrivacyPolicy.preset(policy) if isinstance(policy, str) else policy
    bus = Bus(chosen, rounds, clients, site, synthetic, algorithm, tag_key)
    bus.lose = losing or bus.lose
    bus.play(rounds)
    return bus.finish()
