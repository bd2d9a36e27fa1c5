"""FedAvg (McMahan et al., AISTATS 2017, Algorithm 1):  w <- w + sum_k n_k D_k / sum_k n_k.

Client k trains from w on its own records and says n_k D_k and n_k in one message, where D_k is the
change of the d weights and n_k its number of training records. Only the totals are disclosed.

The second form weights all clients alike, w <- w + sum_k D_k / K, and says nothing but D_k: it is
the one that noise can cover (McMahan et al., ICLR 2018, with equal weights). The third says the
same to a receiver that reads each client's message, under that client's own noise.
"""

from __future__ import annotations

import numpy as np

from algorithms.tasks import Task
from algorithms.tasks.client_model import ClientModel
from algorithms.tasks.site import Site
from protocols.forms import Algorithm, Form
from protocols.messages import (
    Array,
    Message,
    NoisedMessage,
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
    count: int = count(unit="record", meaning="training records n_k")


class Change(SumMessage):
    """What training changed, every client counting alike."""

    delta: Vector = real("d", unit="weight", meaning="the change of the model")


class NoisedChange(NoisedMessage):
    """What training changed, under the client's own noise."""

    delta: Vector = real("d", unit="weight", meaning="the change of the model")


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

    def train_alike(site: Site, given: Start) -> Change:
        return Change(delta=change(site, given))

    def train_noised(site: Site, given: Start) -> NoisedChange:
        return NoisedChange(delta=change(site, given))

    def model(site: Site, given: Message | None) -> ClientModel:
        return ClientModel((given.weights if isinstance(given, Start) else site.memory["trained"],))

    def round(state: Start, cohort: Cohort) -> Round[Start]:
        reply = yield Ask(cohort, given=state, back=Update)
        total = reply.total(Update)
        moved = state.weights + total.delta / max(total.count, 1)
        return Start(weights=moved.astype(np.float32))

    def mean_of_each(state: Start, cohort: Cohort) -> Round[Start]:
        reply = yield Ask(cohort, given=state, back=NoisedChange)
        changes = [message.delta for message in reply.each(NoisedChange)]
        moved = state.weights + np.sum(changes, axis=0) / max(len(changes), 1)
        return Start(weights=moved.astype(np.float32))

    def mean(state: Start, cohort: Cohort) -> Round[Start]:
        reply = yield Ask(cohort, given=state, back=Change)
        moved = state.weights + reply.total(Change).delta / max(reply.answers, 1)
        return Start(weights=moved.astype(np.float32))

    by_records = Form.of("weighted_sum_of_changes", round, answers={Start: train})
    alike = Form.of("mean_of_changes", mean, answers={Start: train_alike}, by_gradients=True)
    each = Form.of(
        "mean_of_noised_changes", mean_of_each, answers={Start: train_noised}, by_gradients=True
    )
    return Algorithm(
        name="fed_avg",
        citation="McMahan et al., AISTATS 2017, Algorithm 1",
        init=init,
        model=model,
        forms=(by_records.moved_by_totals(reach=1.0), alike.moved_by_totals(reach=1.0), each),
        dims={"d": task.size},
    )


ALGORITHM = fed_avg
