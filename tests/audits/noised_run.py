"""A run with noise, written by hand: plan, policy, roster and ledgers, without any session.

What the sessions write is tested elsewhere; here every fact of a ledger can be chosen.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from audits.accounting.account import account_of
from audits.accounting.models import Account
from audits.evidence.run_files import RunView, policy_text
from audits.evidence.steps import Case, Verification
from protocols.disclosures.names import Disclosure
from protocols.evidence.ledger import Ledger, MemoryStore
from protocols.plan.plan import DataPlan, FieldPlan, Item, MessagePlan, NoisePlan, Plan
from protocols.plan.steps import Service, Step
from protocols.policy.guard import describe
from protocols.policy.guards import UnsafeClear
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy import accounting
from protocols.privacy.noising import ROUNDING_BETA
from protocols.wire.control import Acknowledgement, Refusal
from protocols.wire.roles import Role
from protocols.wire.roster import Identity, Roster, run_id

SUM, SEALED = Disclosure.SUM, Disclosure.SEALED
TRAIN, SCORE = "train.up.SUM", "score.up.SUM"
ENTRIES = 8
EPSILON, DELTA = 8.0, 1e-5


def roster_text(document: dict[str, Any]) -> bytes:
    """Return a roster as it is saved."""
    return (json.dumps(document, indent=2, sort_keys=True) + "\n").encode()


def noise_plan(policy: PrivacyPolicy, releases: int, **changes: Any) -> NoisePlan:
    """Return just enough noise for the target."""
    bits = next(g.bits for g in policy.rules[SUM] if g.guard == "quantise")  # type: ignore[union-attr]
    honest = policy.smallest_cohort - policy.colluders
    l2 = accounting.rounded_sensitivity(float(2 ** (bits - 1) - 1), ENTRIES, ROUNDING_BETA)
    l1 = accounting.rounded_l1(l2, ENTRIES)
    mechanism = changes.get("mechanism", "discrete_gaussian")
    sigma = accounting.calibrate(
        epsilon=EPSILON, delta=DELTA, releases=releases, l2=l2, l1=l1, dimension=ENTRIES,
        honest=honest, tails=2.0**-200, mechanism=mechanism,
    )  # fmt: skip
    facts = {
        "mechanism": mechanism, "sigma": repr(sigma), "l2": repr(l2), "l1": repr(l1),
        "coordinates": ENTRIES, "honest": honest, "margin": 1, "releases": releases,
        "epsilon": repr(EPSILON), "delta": repr(DELTA),
    }  # fmt: skip
    return NoisePlan.model_validate({**facts, **changes})


def message(name: str, entries: int = ENTRIES) -> MessagePlan:
    """Return a message of one real vector."""
    facts = {"name": "v", "dtype": "f8", "shape": (entries,), "dims": "d", "unit": "weight"}
    fields = (FieldPlan.model_validate({**facts, "meaning": "a vector"}),)
    return MessagePlan(name=name, disclosure=SUM, fields=fields)


def step_of(id: str) -> dict[str, Any]:
    """Return what a made-up item of a client is for, by an id in the usual form."""
    name, step, *part = id.split(".")
    if name == "refusal":
        return {"exchange": "", "part": Service.REFUSAL, "step": Step.REFUSE}
    return {"exchange": name, "part": part[0] if part else Service.ASK, "step": Step(step)}


@dataclass
class NoisedRun:
    """What the run was; every attribute may be changed before :meth:`view`.

    Attributes:
        survivors: round -> clients in the opened total; by default all. 0: not opened.
        skips: (client, round) that sent nothing.
        twice: rounds in which every client sent two vectors.
        refusals: clients that refused.
        budget: the facts of the budget entry; None: none was written.
        more: items besides the one noised sum.
        batches: (round, messages) of what a relay recorded, of the first of `sent`.
        sums: there is the noised sum.
    """

    clients: int = 6
    rounds: int = 3
    policy: PrivacyPolicy = field(default_factory=lambda: PrivacyPolicy.preset("calibrated"))
    noise: Mapping[str, Any] = field(default_factory=dict)
    survivors: Mapping[int, int] = field(default_factory=dict)
    skips: frozenset[tuple[str, int]] = frozenset()
    twice: frozenset[int] = frozenset()
    reopened: frozenset[int] = frozenset()
    refusals: tuple[str, ...] = ()
    budget: Mapping[str, Any] | None = field(
        default_factory=lambda: {"epsilon": "8", "delta": repr(DELTA), "entries": 1}
    )
    protection: tuple[str, ...] | None = None
    more: tuple[Item, ...] = ()
    sent: tuple[str, ...] = ()
    releases: int | None = None
    entries: int = ENTRIES
    batches: tuple[tuple[int, int], ...] = ()
    sums: bool = True

    @property
    def names(self) -> list[str]:
        """The clients' names."""
        width = max(2, len(str(self.clients)))
        return [f"client-{number:0{width}d}" for number in range(1, self.clients + 1)]

    @property
    def guards(self) -> tuple[str, ...]:
        """The guards of sums, as plans print them."""
        return tuple(describe(guard) for guard in self.policy.rules[SUM])

    def item(self, id: str, messages: tuple[MessagePlan, ...], **facts: Any) -> Item:
        """Return an item from client to aggregator."""
        given = {
            **step_of(id), "id": id, "label": id,
            "sender": "client", "recipient": "aggregator", "disclosure": SUM,
            "messages": messages, "guards": self.guards, "bytes": 900, "body": 100,
            "per_round": 1, "times": self.rounds,
        }  # fmt: skip
        return Item.model_validate({**given, **facts})

    def own(self, id: str, name: str) -> Item:
        """Return an item of the layer's own."""
        sealed = MessagePlan(name=name, disclosure=SEALED, fields=())
        return self.item(id, (sealed,), disclosure=SEALED, guards=("seal",), per_round=0, times=1)

    def plan(self) -> Plan:
        """Return the plan."""
        unsafe = any(isinstance(guard, UnsafeClear) for guard in self.policy.rules[SUM])
        noised = {"noise", "own_noise"} & {guard.guard for guard in self.policy.rules[SUM]}
        wanted = self.releases if self.releases is not None else self.rounds
        noise = noise_plan(self.policy, wanted, **self.noise) if noised else None
        items = (
            self.own("refusal.client", Refusal.__name__),
            self.own("tell.ack", Acknowledgement.__name__),
            self.item(TRAIN, (message("Update", self.entries),), noise=noise, unsafe=unsafe),
        )
        items = (*(items if self.sums else items[:-1]), *self.more)
        data = DataPlan(name="toy", task="node", features=1, classes=2, records=4, synthetic=True)
        return Plan(
            algorithm="toy", form="mean", rounds=self.rounds, clients=tuple(self.names), data=data,
            policy=self.policy.name, policy_digest=self.policy.digest,
            smallest_cohort=self.policy.smallest_cohort, scheme="none", budget="", warnings=(),
            minimum_records=0 if self.policy.training else self.policy.minimum_records,
            dims={"d": ENTRIES}, items=items, code={},
        )  # fmt: skip

    def view(self) -> RunView:
        """Return the run as an auditor gets it."""
        plan, people = self.plan(), [Identity.generate("aggregator", Role.AGGREGATOR)]
        people += [Identity.generate(name, Role.CLIENT) for name in self.names]
        people += [Identity.generate("relay", Role.RELAY)] if not self.sums else []
        roster = Roster(person.party for person in people)
        run = run_id(bytes(16), roster, plan.digest, self.policy.digest)
        stores = {party["name"]: MemoryStore() for party in roster.document()}
        for name, store in stores.items():
            ledger = Ledger(name, run, store, lambda: "2026-01-02T03:04:05Z")
            entries = self._opens() if name == "aggregator" else self._entries(name, plan)
            entries = self._relays(plan) if name == "relay" else entries
            for kind, facts in entries:
                ledger.record(kind, facts)
            ledger.commit()
        about = {"run": run, "nonce": bytes(16).hex(), "transport": "memory"}
        return RunView(
            plan_text=plan.text().encode(),
            policy_text=policy_text(self.policy).encode(),
            roster_text=roster_text({**about, "parties": roster.document()}),
            ledgers={name: store.lines for name, store in stores.items()},
        )

    def save(self, folder: Path) -> Path:
        """Write the run as a folder, and return it."""
        view = self.view()
        documents = {"plan": view.plan_text, "policy": view.policy_text, "roster": view.roster_text}
        files = {folder / f"{name}.json": data for name, data in documents.items()}
        files |= {folder / "ledger" / f"{name}.jsonl": data for name, data in view.ledgers.items()}
        for path, data in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        return folder

    def account(self) -> Account:
        """Return the run's account; nobody checked the rest of its evidence."""
        return account_of(Case(self.view()), Verification(()))

    def _opens(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for number in range(1, self.rounds + 1):
            survivors = self.survivors.get(number, self.clients)
            for _ in range((survivors > 0) * (1 + (number in self.reopened))):
                yield "open", {
                    "cohort": f"c{number}", "exchange": number, "members": self.clients,
                    "round": number, "survivors": survivors,
                }  # fmt: skip

    def _relays(self, plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
        for number, survivors in self.batches:
            yield "relay", {
                "cohort": f"c{number}", "exchange": number, "members": self.clients,
                "round": number, "survivors": survivors, "item": self.sent[0],
            }  # fmt: skip

    def _entries(self, name: str, plan: Plan) -> Iterator[tuple[str, dict[str, Any]]]:
        if self.budget is not None:
            yield "budget", {"dataset": "toy", "head": "0" * 64, **self.budget}
        if name in self.refusals:
            yield "refusal", {"code": "unfit", "exchange": 1, "reason": "why", "round": 1}
        for number in range(1, self.rounds + 1):
            if (name, number) in self.skips:
                continue
            for id in (*((TRAIN,) if self.sums else ()), *self.sent):
                for _ in range(1 + (number in self.twice)):
                    yield "release", self._release(plan, name, id, number)

    def _release(self, plan: Plan, name: str, id: str, number: int) -> dict[str, Any]:
        item = next((item for item in plan.items if item.id == id), plan.items[-1])
        said = "+".join(message.name for message in item.messages)
        return {
            "attempt": 0, "bytes": 900, "clipped": False, "cohort": f"c{number}",
            "commitment": "0" * 64, "disclosure": str(item.disclosure), "exchange": number,
            "given": "", "item": id, "key": "", "messages": said, "plan": plan.digest,
            "policy": plan.policy_digest, "recipient": "aggregator", "round": number,
            "protection": list(self.protection or item.guards), "sender": name,
            "unsafe": item.unsafe,
        }  # fmt: skip
