"""FedAvg (McMahan et al., AISTATS 2017, Algorithm 1):  w <- w + sum_k n_k D_k / sum_k n_k.

Client k trains from w on its own records and says n_k D_k and n_k in one message, where D_k is the
change of the d weights and n_k its number of training records. Only the totals are disclosed.

The other forms weight all clients alike and say nothing but D_k, see `algorithms._shared.steps`.
"""

from __future__ import annotations

import numpy as np

from algorithms._shared.steps import alike
from algorithms.tasks import ClientModel, Site, Task
from protocols.forms import Algorithm, Form
from protocols.messages import (
    Array,
    Message,
    ReleasedMessage,
    SumMessage,
    Vector,
    count,
    real,
)
from protocols.rounds import Ask, Cohort, Round


class Start(ReleasedMessage):
    """The global model."""

    weights: Vector = real("d", unit="weight", meaning="the global model w", wire="f4")


class Update(SumMessage):
    """What training changed, weighted by the number of records."""

    delta: Vector = real(
        "d", unit="weight x record", meaning="n_k times the change of the model", scale="records"
    )
    count: int = count(unit="record", meaning="training records n_k", training=True)


def moved(state: Start, mean: Array) -> Start:
    """Return the model after the mean of all changes, (d,)."""
    return Start(weights=(state.weights + mean).astype(np.float32))


def fed_avg(task: Task, *, epochs: int = 1) -> Algorithm[Start]:
    """Return FedAvg for a task.

    Args:
        task: trains and predicts; `task.size` is d.
        epochs: local epochs per round (E in the paper).
    """

    def init(rng: np.random.Generator) -> Start:
        return Start(weights=task.initial(rng))

    def change(site: Site, given: Start) -> Array:
        fitted = task.fit(given.weights, site, epochs=epochs)
        site.memory["trained"] = fitted
        return fitted.astype(np.float64) - given.weights

    def train(site: Site, given: Start) -> Update:
        return Update(delta=site.count * change(site, given), count=site.count)

    def model(site: Site, given: Message | None) -> ClientModel:
        return ClientModel((given.weights if isinstance(given, Start) else site.memory["trained"],))

    def round(state: Start, cohort: Cohort) -> Round[Start]:
        reply = yield Ask(cohort, given=state, back=Update)
        total = reply.total(Update)
        return moved(state, total.delta / max(total.count, 1))

    by_records = Form.of("weighted_sum_of_changes", round, answers={Start: train})
    equal = alike(Start, change, moved, name="train_alike")
    return Algorithm(
        name="fed_avg",
        citation="McMahan et al., AISTATS 2017, Algorithm 1",
        init=init,
        model=model,
        forms=(by_records.moved_by_totals(reach=1.0), *equal),
        dims={"d": task.size},
    )


ALGORITHM = fed_avg
