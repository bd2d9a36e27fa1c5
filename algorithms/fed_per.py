"""FedPer (Arivazhagan et al., 2019, Algorithms 1 and 2):  W_B <- W_B + sum_k n_k D_k / sum_k n_k.

The base layers are averaged as in FedAvg; the head (the last layer) is each client's own. Base and
head train together, and only D_k, the change of the base, is said. The head stays in the site's
memory. All heads begin with the same values, drawn from a public seed that comes with every Start:
so round 1 is FedAvg's, a client that joins late begins where all began, and rows that differ in the
head's sharing only can be compared.

The other forms weight all clients alike and say nothing but D_k, as FedAvg's do.

So this is FedAvg on the shared layers with heads of the clients' own: with the model `gin_shared`,
FedAvg on GIN's convolutions. With the option mu it is FedProx (Li et al., MLSys 2020) on them.
"""

from __future__ import annotations

import numpy as np

from algorithms._shared.steps import alike
from algorithms.tasks import ClientModel, Site, Task, Weights
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
    """The base layers, and the public seed of the heads."""

    weights: Vector = real("d", unit="weight", meaning="the base layers W_B", wire="f4")
    seed: int = count(unit="seed", meaning="seed of every head's starting values")


class Update(SumMessage):
    """What training changed in the base layers, weighted by the number of records."""

    delta: Vector = real(
        "d", unit="weight x record", meaning="n_k times the change of the base", scale="records"
    )
    count: int = count(unit="record", meaning="training records n_k", training=True)


def fed_per(task: Task, *, epochs: int = 1, mu: float = 0.0) -> Algorithm[Start]:
    """Return FedPer for a task.

    Args:
        task: trains and predicts; `task.base` is d, and the head's weights follow the base's.
        epochs: local epochs per round.
        mu: strength of the pull, mu/2 |W_B - W_B^t|^2 in the loss; recommenders have none.

    Raises:
        ValueError: the model has no base layers, or `mu` is out of range.
    """
    if not 0.0 <= mu < float("inf"):
        raise ValueError(f"fed_per: mu = {mu} would push clients apart; choose it at 0 or above")
    if task.base < 1:
        raise ValueError(
            "fed_per has nothing to share: the model is a single layer, and the last layer is the "
            "head that stays at the client; choose a model with layers below its head, or the "
            "algorithm local"
        )

    def initial(seed: int) -> Weights:
        return task.initial(np.random.default_rng(seed))

    def init(rng: np.random.Generator) -> Start:
        seed = int(rng.integers(2**31))
        return Start(weights=initial(seed)[: task.base], seed=seed)

    def pieces(site: Site, given: Start) -> tuple[Weights, Weights]:
        head = site.memory.get("head")
        return given.weights, initial(given.seed)[task.base :] if head is None else head

    def change(site: Site, given: Start) -> Array:
        begun = np.concatenate(pieces(site, given))
        fitted = task.fit(begun, site, epochs=epochs, pull=mu, base_only=True)
        site.memory["head"] = fitted[task.base :].copy()
        site.memory["trained"] = fitted
        return fitted[: task.base].astype(np.float64) - given.weights

    def train(site: Site, given: Start) -> Update:
        return Update(delta=site.count * change(site, given), count=site.count)

    def model(site: Site, given: Message | None) -> ClientModel:
        if isinstance(given, Start):
            return ClientModel(pieces(site, given))
        return ClientModel((site.memory["trained"],))

    def moved(state: Start, mean: Array) -> Start:
        return Start(weights=(state.weights + mean).astype(np.float32), seed=state.seed)

    def round(state: Start, cohort: Cohort) -> Round[Start]:
        total = (yield Ask(cohort, given=state, back=Update)).total(Update)
        return moved(state, total.delta / max(total.count, 1))

    by_records = Form.of("weighted_sum_of_changes", round, answers={Start: train})
    equal = alike(Start, change, moved, name="train_alike")
    return Algorithm(
        name="fed_per",
        citation="Arivazhagan et al., arXiv:1912.00818, 2019, Algorithms 1 and 2",
        init=init,
        model=model,
        forms=(by_records.moved_by_totals(reach=1.0), *equal),
        dims={"d": task.base},
    )


ALGORITHM = fed_per
