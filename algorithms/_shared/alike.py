"""Forms that weight all clients alike:  w <- w + sum_k D_k / K.  Nothing is said but D_k.

No private count weights a change, so noise can cover all that a client says (McMahan et al., ICLR
2018, with equal weights). The first form discloses the sum of all changes; in the second the
receiver reads each change, under its client's own noise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from algorithms.tasks.site import Site
from protocols.forms import Exchange, Form
from protocols.messages import Array, Message, NoisedMessage, SumMessage, Vector, real
from protocols.rounds import Ask, Cohort, Round

__all__ = ["Change", "NoisedChange", "alike"]

S = TypeVar("S", bound=Message)


class Change(SumMessage):
    """What training changed, every client counting alike."""

    delta: Vector = real("d", unit="weight", meaning="the change of the model")


class NoisedChange(NoisedMessage):
    """What training changed, under the client's own noise."""

    delta: Vector = real("d", unit="weight", meaning="the change of the model")


def alike(
    given: type[S],
    change: Callable[[Site, S], Array],
    moved: Callable[[S, Array], S],
    *,
    name: str = "train",
    reach: float = 1.0,
) -> tuple[Form[S], Form[S]]:
    """Return the forms `mean_of_changes` and `mean_of_noised_changes` of an algorithm.

    Both are `by_gradients`, which `change` has to keep; see `protocols.forms.Form`.

    Args:
        given: the state, handed out as it is.
        change: trains at a client, and returns D_k, float64 (d,).
        moved: at the aggregator, the state after the mean of all D_k.
        name: of the exchange in the first form.
        reach: see `protocols.forms.Form`.
    """

    def say(site: Site, start: S) -> Change:
        return Change(delta=change(site, start))

    def say_noised(site: Site, start: S) -> NoisedChange:
        return NoisedChange(delta=change(site, start))

    def of_sum(state: S, cohort: Cohort) -> Round[S]:
        reply = yield Ask(cohort, given=state, back=Change)
        return moved(state, reply.total(Change).delta / max(reply.answers, 1))

    def of_each(state: S, cohort: Cohort) -> Round[S]:
        reply = yield Ask(cohort, given=state, back=NoisedChange)
        changes = [message.delta for message in reply.each(NoisedChange)]
        return moved(state, np.sum(changes, axis=0) / max(len(changes), 1))

    sums = Exchange(name, (given,), (Change,), say)
    each = Exchange("train_noised", (given,), (NoisedChange,), say_noised)
    return (
        Form("mean_of_changes", of_sum, (sums,), by_gradients=True).moved_by_totals(reach),
        Form("mean_of_noised_changes", of_each, (each,), by_gradients=True),
    )
