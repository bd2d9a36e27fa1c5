"""Recommenders in which each user's own noise hides all that it says.

* `told_mean`: once in a run a user tells its mean rating, one bounded number. The model is the mean
  of all users' means and, at each client, the user's own part. One number few users can say.
* `told_items`: with it the user tells one drawn of its items, as rated at or above its mean, or
  below it. Each of the two has half of the message's epsilon. Biases of items follow, shrunk by
  the estimates' spread. Vectors of items are not learnt.
* `noised_items`: the whole gradient as one vector of items x (h + 1) numbers and the layer. What
  noise leaves of so many numbers, `secure-fgl plan --calibrate` shows.

In the first two the item table is set to zero, as nothing is learnt of it. See
`algorithms._shared.items`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np

from algorithms._shared.item_messages import (
    ItemGradient,
    NoisedGradient,
    Opinion,
    Start,
    Taste,
)
from algorithms._shared.item_users import User
from algorithms.tasks.site import Site
from protocols.forms import Exchange, Form
from protocols.messages import Array
from protocols.rounds import Ask, Cohort, Reply, Round, RoundLost

__all__ = ["biases", "told_forms"]

_APART = 0.2
"""How far a rating lies from its user's mean, on the scale from 0 to 1, where it is even: mean
absolute deviation of five values with shares 1, 2, 4, 2, 1 tenths. A public guess, no data's."""


class Serving(Protocol):
    """What is needed of `algorithms._shared.items.Aggregator`."""

    @property
    def user(self) -> User:
        """The clients' side."""

    def each_cohort(self, state: Any, cohort: Cohort, kind: Any, read: Any) -> Round[Any]:
        """Step along what each cohort says."""

    def ended(self, state: Any) -> Any:
        """Return the state after a round."""


def told_forms(server: Serving) -> tuple[Form[Any], ...]:
    """Return the forms of NOISED messages, that of the fewest numbers first."""
    user = server.user

    def learn(site: Site, given: Start) -> None:
        user.slope(site, given)

    def taste(site: Site, given: Start) -> Taste:
        return Taste(mean=_mean(user, site))

    def opinion(site: Site, given: Start) -> Opinion:
        return Opinion(mean=_mean(user, site), opinions=opinions(user, site))

    def gradient(site: Site, given: Start) -> NoisedGradient:
        found = user.dense(site, given)
        return NoisedGradient(rows=found.rows, shared=found.shared)

    def on_gradients(state: Any, cohort: Cohort) -> Round[Any]:
        return (yield from server.each_cohort(state, cohort, NoisedGradient, _summed))

    def on(kind: type[Taste] | type[Opinion]) -> Any:
        def round(state: Any, cohort: Cohort) -> Round[Any]:
            first = not state.start.step
            try:
                if first:
                    reply = yield Ask(cohort, given=state.start, back=kind)
                    state = _told(user, state, reply.each(kind))
                yield Ask(cohort, given=state.start)
            except RoundLost:  # nobody tells twice: what was lost, or told before it, stays so
                if not first:
                    raise
            return server.ended(state)

        return round

    train = Exchange("learn", (Start,), (), learn)
    mean = Exchange("tell", (Start,), (Taste,), taste, 0, outside=1)
    items = Exchange("tell", (Start,), (Opinion,), opinion, 0, outside=1)
    return (
        Form("told_mean", on(Taste), (train, mean)),
        Form("told_items", on(Opinion), (train, items)),
        Form.of("noised_items", on_gradients, {Start: gradient}),
    )


def _ratings(user: User, site: Site) -> tuple[Array, Array]:
    """Return a user's training ratings on the scale from 0 to 1, and their items."""
    data, spec = site.data, user.task.spec
    chosen = data.train.numpy()
    rating = (data.rating.numpy()[chosen] - spec.lowest) / (spec.highest - spec.lowest)
    return np.asarray(rating, dtype=np.float64), data.items[data.item.numpy()[chosen]]


def _mean(user: User, site: Site) -> float:
    """Return the mean training rating; the middle of the scale where there is none."""
    rating, _ = _ratings(user, site)
    return float(rating.mean()) if len(rating) else 0.5


def opinions(user: User, site: Site) -> Array:
    """Return 1 for each rated item, (2 items,): at or above the user's mean, then below it."""
    rating, item = _ratings(user, site)
    items, _ = user.table()
    found = np.zeros(2 * items)
    if len(rating):
        found[item + items * (rating < rating.mean())] = 1.0
    return found


def _summed(reply: Reply) -> ItemGradient:
    """Return a cohort's gradient from each user's own."""
    said = reply.each(NoisedGradient)
    rows, shared = np.sum([m.rows for m in said], axis=0), np.sum([m.shared for m in said], axis=0)
    return ItemGradient(rows=rows, shared=shared)


def _told(user: User, state: Any, said: Sequence[Taste | Opinion]) -> Any:
    """Return the state with the mean, and biases, that users told; the table is zero."""
    items, width = user.table()
    weights = np.array(state.start.weights, dtype=np.float32)
    weights[: items * (width + 1)] = 0.0
    if said:
        mean = float(np.clip(np.mean([message.mean for message in said]), 0.0, 1.0))
        weights[items * (width + 1)] = (mean - 0.5) / 2.0  # of `nn._shared.ratings.Mean`
    heard = [message.opinions for message in said if isinstance(message, Opinion)]
    if heard:
        weights[items * width : items * (width + 1)] = biases(np.stack(heard))
    return replace(state, start=replace(state.start, weights=weights))


def biases(heard: Array) -> Array:
    """Return the bias of each item, (items,), from each user's estimated shares, (n, 2 items).

    With D the difference of an item's two shares and P their sum, D/P times the mean deviation of a
    rating would be its bias; as both have errors, D P / (P² + 2 v) stands for D/P, v the squared
    error of one share as the estimates themselves spread.
    """
    above, below = np.split(heard.mean(axis=0), 2)
    error = float(heard.var(axis=0).mean()) / max(len(heard), 1)
    whole = np.maximum(above + below, 0.0)
    shrunk = (above - below) * whole / np.maximum(whole**2 + 2.0 * error, 1e-12)
    return np.asarray(_APART * np.clip(shrunk, -1.0, 1.0), dtype=np.float32)
