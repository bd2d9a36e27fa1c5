"""A toy clustered FL (Sattler et al., TNNLS 2021): split by cosine, then one sum per cluster.

The aggregator learns the cosines of the clients' directions and, per cluster, the total.
"""

from __future__ import annotations

import numpy as np

from algorithms.tasks import ClientModel, Site
from protocols.forms import Algorithm, Form
from protocols.messages import (
    Message,
    ReleasedMessage,
    SimilarityMessage,
    SumMessage,
    Vector,
    count,
    real,
)
from protocols.rounds import Ask, Cohort, Round


class Look(ReleasedMessage):
    """A request for everyone's direction."""

    step: int = count(unit="round", meaning="rounds done so far")


class Direction(SimilarityMessage):
    """Where a client's training pulls."""

    change: Vector = real("d", unit="weight", meaning="change of the model")


class Centre(ReleasedMessage):
    """The model of one cluster."""

    weights: Vector = real("d", unit="weight", meaning="the cluster's model")


class Update(SumMessage):
    """A client's change, for its cluster's mean."""

    delta: Vector = real("d", unit="weight", meaning="change of the model")
    clients: int = count(unit="client", meaning="1 per client")


class Centres(tuple[Centre, ...]):
    """The state: one model per cluster, in the order of the clusters."""

    __slots__ = ()


def similarity(*, d: int) -> Algorithm[Centres]:
    """Return the toy; `site.data` holds `change` (d,)."""
    start = Centre(weights=np.zeros(d))

    def init(rng: np.random.Generator) -> Centres:
        return Centres([start])

    def look(site: Site, given: Look) -> Direction:
        return Direction(change=site.data.change)

    def train(site: Site, given: Centre) -> Update:
        return Update(delta=site.data.change, clients=1)

    def model(site: Site, given: Message | None) -> ClientModel:
        return ClientModel((np.zeros(0, dtype=np.float32),))

    def round(state: Centres, cohort: Cohort) -> Round[Centres]:
        seen = yield Ask(cohort, given=Look(step=len(state)), back=Direction)
        groups = (seen.similarity(Direction)[0] < 0).astype(int)
        found = []
        for cluster in cohort.split(groups.tolist()):
            reply = yield Ask(cluster, given=start, back=Update)
            total = reply.total(Update)
            found.append(Centre(weights=start.weights + total.delta / total.clients))
        return Centres(found)

    return Algorithm(
        name="toy_similarity",
        citation="after Sattler et al., TNNLS 2021, Algorithm 2",
        init=init,
        model=model,
        forms=(Form.of("clusters", round, answers={Look: look, Centre: train}),),
        dims={"d": d},
    )
