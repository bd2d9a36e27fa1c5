"""A toy clustered FL (Sattler et al., TNNLS 2021): one sum per cluster, then a split where it pays.

Clusters are held by the session; the toy keeps one model for each, in their order.
"""

from __future__ import annotations

import numpy as np

from algorithms.tasks import ClientModel, Site
from protocols.clusters import CutGuard, CutRule
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
from protocols.rounds import Ask, Cohort, Round, RoundLost


class Look(ReleasedMessage):
    """A request for everyone's direction."""

    step: int = count(unit="round", meaning="clusters so far")


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


def clusters(
    *, d: int, cut: CutRule = "normalised", guard: CutGuard = "constrained"
) -> Algorithm[Centres]:
    """Return the toy; `site.data` holds `change` (d,). Every round tries to split every cluster."""

    def init(rng: np.random.Generator) -> Centres:
        return Centres([Centre(weights=np.zeros(d))])

    def look(site: Site, given: Look) -> Direction:
        return Direction(change=site.data.change)

    def train(site: Site, given: Centre) -> Update:
        return Update(delta=site.data.change, clients=1)

    def model(site: Site, given: Message | None) -> ClientModel:
        return ClientModel((np.zeros(0, dtype=np.float32),))

    def round(state: Centres, cohort: Cohort) -> Round[Centres]:
        found: list[Centre] = []
        for part, centre in zip(cohort.parts, state, strict=True):
            reply = yield Ask(part, given=centre, back=Update)
            total = reply.total(Update)
            found.append(Centre(weights=centre.weights + total.delta / total.clients))
        grown: list[Centre] = []
        for place, part in enumerate(cohort.parts):
            try:
                seen = yield Ask(part, given=Look(step=len(found)), back=Direction)
            except RoundLost:
                return Centres([*grown, *found[place:]])
            grown += [found[place]] * len(seen.split(Direction, part))
        return Centres(grown)

    form = Form.of("clusters", round, answers={Centre: train, Look: look})
    return Algorithm(
        name="toy_clusters",
        citation="after Sattler et al., TNNLS 2021, Algorithm 2",
        init=init,
        model=model,
        forms=(form.split_by(Direction, cut, guard),),
        dims={"d": d},
    )
