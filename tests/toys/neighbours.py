"""A toy of sums over neighbours: each client has a fixed vector, and keeps the mixtures it gets."""

from __future__ import annotations

import numpy as np

from algorithms.tasks import ClientModel, Site
from protocols.forms import Algorithm, Form
from protocols.messages import (
    Message,
    NeighbourSumMessage,
    ReleasedMessage,
    Vector,
    count,
    real,
)
from protocols.neighbourhoods import Topology
from protocols.rounds import Ask, Cohort, Round


class Go(ReleasedMessage):
    """A round begins."""

    step: int = count(unit="round", meaning="rounds done so far")


class Mine(NeighbourSumMessage):
    """One client's vector; on the way down its mixture."""

    weights: Vector = real("d", unit="weight", meaning="the vector", wire="f4")


def neighbours(*, d: int, topology: Topology) -> Algorithm[Go]:
    """Return the toy; `site.data` holds `vector` (d,), and mixtures go to `site.data.got`."""

    def init(rng: np.random.Generator) -> Go:
        return Go(step=0)

    def give(site: Site, given: Go) -> Mine:
        return Mine(weights=site.data.vector)

    def take(site: Site, given: Mine) -> None:
        site.data.got.append(np.asarray(given.weights, dtype=np.float64))

    def model(site: Site, given: Message | None) -> ClientModel:
        return ClientModel((site.data.vector,))

    def round(state: Go, cohort: Cohort) -> Round[Go]:
        reply = yield Ask(cohort, given=state, back=Mine)
        yield Ask(cohort, given=reply.read(Mine))
        return Go(step=state.step + 1)

    facts = topology.kind, topology.degree, topology.edges
    form = Form.of("neighbours", round, {Go: give, Mine: take}).over(*facts)
    return Algorithm("neighbours", "none", init, model, (form,), {"d": d})
