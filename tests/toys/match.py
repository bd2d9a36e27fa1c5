"""A toy graph expansion (FedPerGNN, Wu et al., Nature Communications 2022): neighbours by item.

Clients hold items, each with an embedding. Under the keys a client holds itself it receives what
others hold; the matcher is meant to learn which keys are equal and nothing else.
"""

from __future__ import annotations

import numpy as np

from algorithms.tasks import ClientModel, Site
from protocols.forms import Algorithm, Form
from protocols.messages import (
    MatchMessage,
    Matrix,
    Message,
    ReleasedMessage,
    Vector,
    count,
    real,
)
from protocols.rounds import Ask, Cohort, Round


class Expand(ReleasedMessage):
    """Begin an expansion."""

    epoch: int = count(unit="epoch", meaning="expansions done so far")


class Holding(MatchMessage):
    """What a client holds: keys, 0 for padding, and what hangs on them."""

    items: Vector = count("slots", unit="item", meaning="item number, 0 for padding", key=True)
    embedding: Matrix = real("slots", "e", unit="weight", meaning="the user's embedding")


class Neighbours(MatchMessage):
    """What others hold under the receiver's keys."""

    row: Vector = count("places", unit="row", meaning="1 + index of the own key, 0 for padding")
    embedding: Matrix = real("places", "e", unit="weight", meaning="a neighbour's embedding")


def match(*, slots: int, places: int, e: int) -> Algorithm[Expand]:
    """Return the toy; `site.data` holds `items` (slots,) and `embedding` (slots, e)."""

    def init(rng: np.random.Generator) -> Expand:
        return Expand(epoch=0)

    def hold(site: Site, given: Expand) -> Holding:
        return Holding(items=site.data.items, embedding=site.data.embedding)

    def expand(site: Site, given: Neighbours) -> None:
        site.memory["neighbours"] = (given.row, given.embedding)

    def model(site: Site, given: Message | None) -> ClientModel:
        return ClientModel((np.zeros(0, dtype=np.float32),))

    def round(state: Expand, cohort: Cohort) -> Round[Expand]:
        found = yield Ask(cohort, given=state, back=Holding)
        yield Ask(cohort, given=found.matched(Holding, into=Neighbours))
        return Expand(epoch=state.epoch + 1)

    return Algorithm(
        name="toy_match",
        citation="after Wu et al., Nature Communications 2022, graph expansion",
        init=init,
        model=model,
        forms=(Form.of("expansion", round, answers={Expand: hold, Neighbours: expand}),),
        dims={"slots": slots, "places": places, "e": e},
    )
