"""A toy FED-PUB (Baek et al., ICML 2023): personal models, weighted by how alike clients behave.

Client i receives sum_j a_ij w_j, where row i of `a` is the softmax of tau times the cosines of the
clients' portraits. The aggregator learns the cosines and no model; each client learns its own row.
"""

from __future__ import annotations

import numpy as np

from algorithms.tasks import ClientModel, Site
from protocols.forms import Algorithm, Form
from protocols.messages import (
    Array,
    Message,
    ReleasedMessage,
    SimilarityMessage,
    Vector,
    WeightedSumMessage,
    count,
    real,
)
from protocols.rounds import Ask, Cohort, Round


class Go(ReleasedMessage):
    """The number of the round."""

    step: int = count(unit="round", meaning="rounds done so far")


class Model(WeightedSumMessage):
    """One client's model on the way up; on the way down, the receiver's own mixture."""

    weights: Vector = real("d", unit="weight", meaning="the model")
    bias: float = real(unit="weight", meaning="a scalar parameter")


class Portrait(SimilarityMessage):
    """What a client's model says about a public probe."""

    outputs: Vector = real("p", unit="logit", meaning="mean output on a public probe graph")


def softmax(rows: Array) -> Array:
    """Return each row's softmax."""
    raised: Array = np.exp(rows - rows.max(axis=1, keepdims=True))
    weights: Array = raised / raised.sum(axis=1, keepdims=True)
    return weights


def weighted_sum(*, d: int, p: int, tau: float = 3.0) -> Algorithm[Go]:
    """Return the toy; `site.data` holds `weights` (d,), `bias` and `outputs` (p,)."""

    def init(rng: np.random.Generator) -> Go:
        return Go(step=0)

    def train(site: Site, given: Go) -> tuple[Model, Portrait]:
        own = site.data
        return Model(weights=own.weights, bias=own.bias), Portrait(outputs=own.outputs)

    def receive(site: Site, given: Model) -> None:
        site.memory["personal"] = (given.weights, given.bias)

    def model(site: Site, given: Message | None) -> ClientModel:
        return ClientModel((np.zeros(0, dtype=np.float32),))

    def round(state: Go, cohort: Cohort) -> Round[Go]:
        reply = yield Ask(cohort, given=state, back=(Model, Portrait))
        alpha = softmax(tau * reply.similarity(Portrait))
        yield Ask(cohort, given=reply.weighted(Model, alpha))
        return Go(step=state.step + 1)

    return Algorithm(
        name="toy_weighted_sum",
        citation="after Baek et al., ICML 2023, eq. 5 and 6",
        init=init,
        model=model,
        forms=(Form.of("personal", round, answers={Go: train, Model: receive}),),
        dims={"d": d, "p": p},
    )
