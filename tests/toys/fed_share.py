"""A toy: FedAvg in which a client counts by the size of its graph, beside the largest one.

Every client says at which level its number of training records lies, as a MAXIMUM; the next round
hands the largest level out, and each client scales its change by its level over that. Only the
totals and the largest level are disclosed. In the second form nobody says a level.

It stands for no paper; tests/toys/test_maximum.py puts it beside the algorithms.
"""

from __future__ import annotations

import numpy as np

from algorithms.tasks import ClientModel, Site, Task
from protocols.forms import Algorithm, Form
from protocols.messages import (
    Disclosure,
    Message,
    ReleasedMessage,
    SumMessage,
    Vector,
    count,
    real,
)
from protocols.rounds import Ask, Cohort, Round

STEP = 4


class Start(ReleasedMessage):
    """The global model, and the largest level so far."""

    weights: Vector = real("d", unit="weight", meaning="the global model w", wire="f4")
    largest: int = count(unit="level", meaning="the largest level that any client has")


class Change(SumMessage):
    """What training changed, scaled by the client's share of the largest level."""

    delta: Vector = real("d", unit="weight", meaning="the share times the change of the model")
    share: float = real(unit="share", meaning="the client's level over the largest one")


class Level(Message):
    """How many records a client trains on, in steps of four."""

    disclosure = Disclosure("MAXIMUM")
    level: int = count(unit="level", meaning="training records over four, rounded up")


def fed_share(task: Task, *, epochs: int = 1) -> Algorithm[Start]:
    """Return the toy for a task, with so many local epochs a round; `task.size` is d."""

    def init(rng: np.random.Generator) -> Start:
        return Start(weights=task.initial(rng), largest=1)

    def train(site: Site, given: Start) -> tuple[Change, Level]:
        fitted = task.fit(given.weights, site, epochs=epochs)
        site.memory["trained"] = fitted
        level = -(-site.count // STEP)
        share = min(1.0, level / max(given.largest, 1))
        delta = share * (fitted.astype(np.float64) - given.weights)
        return Change(delta=delta, share=share), Level(level=level)

    def model(site: Site, given: Message | None) -> ClientModel:
        return ClientModel((given.weights if isinstance(given, Start) else site.memory["trained"],))

    def round(state: Start, cohort: Cohort) -> Round[Start]:
        reply = yield Ask(cohort, given=state, back=(Change, Level))
        total, largest = reply.total(Change), reply.read(Level).level
        moved = state.weights + total.delta / max(total.share, 1e-6)
        return Start(weights=moved.astype(np.float32), largest=largest)

    def train_alike(site: Site, given: Start) -> Change:
        change, _ = train(site, given)
        return change

    def mean(state: Start, cohort: Cohort) -> Round[Start]:
        total = (yield Ask(cohort, given=state, back=Change)).total(Change)
        moved = state.weights + total.delta / max(total.share, 1e-6)
        return Start(weights=moved.astype(np.float32), largest=state.largest)

    forms = (
        Form.of("shares_of_the_largest", round, answers={Start: train}),
        Form.of("shares_of_one", mean, answers={Start: train_alike}),
    )
    return Algorithm(
        name="fed_share",
        citation="a toy of this repository's tests",
        init=init,
        model=model,
        forms=forms,
        dims={"d": task.size},
    )


ALGORITHM = fed_share
