"""A toy algorithm without torch: messages, answers, forms, plans, and storage that fills up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crypto.homomorphic.he import scheme
from protocols.evidence.ledger import MemoryStore
from protocols.forms import Algorithm, Exchange, Form
from protocols.messages import (
    Message,
    PublicMessage,
    ReleasedMessage,
    SealedMessage,
    SumMessage,
    Vector,
    count,
    real,
)
from protocols.plan.plan import DataPlan
from protocols.plan.planning import make_plan
from protocols.policy.policy import PrivacyPolicy

D = 5  # entries of the toy model
DATA = DataPlan(name="toy", task="node", features=3, classes=2, records=10, synthetic=True)


class Start(ReleasedMessage):
    weights: Vector = real("d", unit="weight", meaning="the toy model", wire="f4")


class Update(SumMessage):
    delta: Vector = real("d", unit="weight", meaning="change", scale="records")
    count: int = count(unit="record", meaning="records")


class Pull(SumMessage):
    """What a noised sum may hold: real values only."""

    change: Vector = real("d", unit="weight", meaning="change")


class Seed(PublicMessage):
    seed: int = count(unit="seed", meaning="a public seed")


class Fill(ReleasedMessage):
    step: int = count(unit="step", meaning="asks for gifts")


class Gift(SealedMessage):
    row: Vector = real("cohort", 2, unit="1", meaning="row j is for client j")
    tally: Vector = count("cohort", 1, unit="item", meaning="entry j is for client j")


@dataclass
class Toy:
    """A site: one vector, one count, and what arrived."""

    index: int
    delta: Vector
    count: int = 1
    answer: Callable[..., Any] | None = None
    got: list[Message] = field(default_factory=list)
    asked: int = 0


def train(site: Toy, given: Start) -> Update:
    site.asked += 1
    if site.answer is not None:
        return site.answer(site, given)
    return Update(delta=site.delta, count=site.count)


def pull(site: Toy, given: Start) -> Pull:
    site.asked += 1
    if site.answer is not None:
        return site.answer(site, given)
    return Pull(change=site.delta)


def sow(site: Toy, given: Seed) -> Update:
    return train(site, given)  # type: ignore[arg-type]


def fill(site: Toy, given: Fill) -> Gift:
    size = site.got_size = len(site.names)  # type: ignore[attr-defined]
    row = np.array([[100.0 * site.index + j, -j] for j in range(size)])
    tally = np.array([[2**53 + 1 + 10 * site.index + j] for j in range(size)], dtype=np.uint64)
    return Gift(row=row, tally=tally)


def deliver(site: Toy, given: Gift) -> None:
    site.got.append(given)


def _never(*_: Any) -> Any:
    raise NotImplementedError


TRAIN = Form("train", _never, (Exchange("train", (Start,), (Update,), train),))
TWICE = Form("twice", _never, (Exchange("train", (Start,), (Update,), train, per_round=2),))
PULL = Form("pull", _never, (Exchange("pull", (Start,), (Pull,), pull),))
SOW = Form("sow", _never, (Exchange("sow", (Seed,), (Update,), sow),))
GIFTS = Form(
    "gifts",
    _never,
    (Exchange("fill", (Fill,), (Gift,), fill), Exchange("deliver", (Gift,), (), deliver)),
)


def toy_algorithm(form: Form[Any], d: int = D) -> Algorithm[Any]:
    return Algorithm("toy", "none", _never, _never, (form,), {"d": d})


def toy_plan(form: Form[Any] = TRAIN, policy: PrivacyPolicy | None = None, **facts: Any) -> Any:
    """Return the plan of a toy run; `facts`: clients, rounds, d, bfv."""
    chosen = policy or PrivacyPolicy.preset("pilot")
    clients = facts.get("clients", names_of(5))
    bfv = facts["bfv"] if "bfv" in facts else scheme()
    return make_plan(
        toy_algorithm(form, facts.get("d", D)),
        chosen,
        data=DATA,
        clients=clients,
        rounds=facts.get("rounds", 3),
        scheme=bfv,
    )


def maskless(name: str = "he") -> PrivacyPolicy:
    """Return a preset without its masks: the control of O4 to O8."""
    document = PrivacyPolicy.preset(name).document()
    chain = [guard for guard in document["rules"]["SUM"] if guard["guard"] != "mask"]
    rules = {**document["rules"], "SUM": chain}
    return PrivacyPolicy.model_validate({**document, "name": "maskless", "rules": rules})


def changed_policy(name: str, **facts: Any) -> PrivacyPolicy:
    """Return a preset with other facts (`rekey_rounds`, `colluders`, ...)."""
    return PrivacyPolicy.model_validate({**PrivacyPolicy.preset(name).document(), **facts})


def names_of(count: int) -> tuple[str, ...]:
    return tuple(f"client-{i}" for i in range(1, count + 1))


def first(kind: type[Message], d: int | None = None) -> Message:
    """Return what the first Ask of a form gives."""
    if kind is Start:
        return Start(weights=np.zeros(D if d is None else d, np.float32))
    return Seed(seed=1) if kind is Seed else Fill(step=1)


class FullDisk(MemoryStore):
    """Storage that is full from its `after`-th write on."""

    def __init__(self, after: int = 0) -> None:
        super().__init__()
        self.left = after

    def append(self, lines: bytes) -> None:
        if self.left <= 0:
            raise OSError(28, "No space left on device")
        self.left -= 1
        super().append(lines)
