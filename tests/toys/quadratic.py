"""A task that can be solved on paper: every client has a bowl, f(w) = 1/2 sum_j a_j (w_j - c_j)^2.

Its model is the identity, h_w = w, so a mixture is alpha v + (1 - alpha) w. `drive` plays an
algorithm with exact totals and no sessions, so that a test sees the algorithm's own arithmetic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt

from algorithms.tasks import Batch, DataSpec, Mixed, Predictions, Site, Weights
from algorithms.tasks.evaluation import total
from algorithms.tasks.scores import SCORING, Score
from protocols.disclosures.sum.view import TotalView
from protocols.forms import Algorithm, Form
from protocols.messages import SumMessage
from protocols.rounds import Cohort, Reply, View


@dataclass(frozen=True)
class Bowl:
    """A client's loss: minimum `centre`, second derivatives `curvature`, both (d,)."""

    centre: npt.NDArray[np.float32]
    curvature: npt.NDArray[np.float32]
    count: int = 1


@dataclass(frozen=True)
class Quadratic:
    """The task; one record a site, and the head is the last coordinate."""

    size: int = 3
    lr: float = 0.01
    scoring: Any = field(default=SCORING)

    @property
    def base(self) -> int:
        return self.size - 1

    @property
    def spec(self) -> DataSpec:
        return DataSpec("node", 1, self.size, records=1, clients=1, synthetic=True, name="bowls")

    def initial(self, rng: np.random.Generator) -> Weights:
        return rng.normal(size=self.size).astype(np.float32)

    def fit(
        self,
        weights: Weights,
        site: Site,
        *,
        epochs: int,
        pull: float = 0.0,
        base_only: bool = False,
    ) -> Weights:
        fitted: Weights = weights.copy()
        pulled = np.float32(pull) * (np.arange(self.size) < (self.base if base_only else self.size))
        for batch, _ in zip(self.batches(site), range(epochs), strict=False):
            slope = self.gradient(fitted, site, batch) + pulled * (fitted - weights)
            fitted = (fitted - np.float32(self.lr) * slope).astype(np.float32)
        return fitted

    def batches(self, site: Site) -> Iterator[Batch]:
        return repeat(Batch(np.zeros(1, np.int64), 0)) if site.count else iter(())

    def loss(self, outputs: Weights, site: Site) -> float:
        off = outputs.astype(np.float64) - site.data.centre
        return float(0.5 * np.sum(site.data.curvature * off**2))

    def gradient(self, weights: Weights, site: Site, batch: Batch) -> Weights:
        slope: Weights = site.data.curvature * (weights - site.data.centre)
        return slope

    def mixed(
        self, personal: Weights, shared: Weights, alpha: float, site: Site, batch: Batch
    ) -> Mixed:
        z = self.gradient(self._mix(personal, shared, alpha), site, batch)
        share = np.float32(alpha)
        towards = float(np.dot(z.astype(np.float64), personal - shared))
        return Mixed(personal=share * z, shared=(1 - share) * z, alpha=towards)

    def _mix(self, personal: Weights, shared: Weights, alpha: float) -> Weights:
        return np.float32(alpha) * personal + np.float32(1 - alpha) * shared

    def predict(self, weights: Weights, site: Site) -> Predictions:
        return weights[None, :]

    def predict_mixed(
        self, personal: Weights, shared: Weights, alpha: float, site: Site
    ) -> Predictions:
        return self._mix(personal, shared, alpha)[None, :]

    def score(self, predictions: Predictions, site: Site) -> Score:
        everything, nothing = np.ones(1, bool), np.zeros(1, bool)
        return SCORING.count(predictions, np.zeros(1, np.int64), everything, nothing)


def bowls(clients: int = 4, size: int = 3, *, alike: bool = False, seed: int = 7) -> list[Site]:
    """Return sites with minima and curvatures of their own, or all with the same."""
    rng = np.random.default_rng(seed)
    made = []
    for client in range(clients):
        if not client or not alike:
            centre = rng.normal(size=size).astype(np.float32)
            curvature = rng.uniform(0.5, 1.5, size=size).astype(np.float32)
        made.append(Site(Bowl(centre, curvature), seed=client))
    return made


def optimum(sites: Sequence[Site]) -> npt.NDArray[np.float64]:
    """Return where the mean of all losses is smallest, (d,)."""
    curvature = np.array([site.data.curvature for site in sites], dtype=np.float64)
    centre = np.array([site.data.centre for site in sites], dtype=np.float64)
    best: npt.NDArray[np.float64] = (curvature * centre).sum(axis=0) / curvature.sum(axis=0)
    return best


def drive(
    algorithm: Algorithm[Any],
    sites: Sequence[Site],
    rounds: int,
    *,
    absent: Mapping[int, Collection[int]] | None = None,
    lost: Collection[int] = (),
    state: Any = None,
    form: int | None = None,
) -> Any:
    """Play rounds 1, 2, ... and return the public state; totals are exact sums.

    Args:
        algorithm: its exchanges must all bring back a SUM.
        sites: one per client.
        rounds: how many.
        absent: by round, the places of clients that are not asked in it.
        lost: rounds whose uploads nobody adds up.
        state: where to begin; None for the algorithm's first.
        form: which of the algorithm's forms; None for the last one of sums.
    """
    chosen = _chosen(algorithm, form)
    state = algorithm.init(np.random.default_rng(0)) if state is None else state
    for number in range(1, rounds + 1):
        gone = (absent or {}).get(number, ())
        here = [site for place, site in enumerate(sites) if place not in gone]
        steps = chosen.round(state, Cohort([str(place) for place in range(len(here))]))
        ask = next(steps)
        exchange = chosen.find(ask)
        said: list[Any] = [exchange.answer(site, *ask.handed) for site in here]
        if number in lost:
            continue
        views: dict[Any, View] = {type(said[0]): TotalView(total(said))}
        try:
            steps.send(Reply(views, len(here)))
        except StopIteration as stop:
            state = stop.value
        else:
            raise AssertionError("the round asked a second time")
    return state


def _chosen(algorithm: Algorithm[Any], form: int | None) -> Form[Any]:
    if form is not None:
        return algorithm.forms[form]
    sums = [
        one
        for one in algorithm.forms
        if all(issubclass(k, SumMessage) for k in one.exchanges[0].back)
    ]
    return sums[-1]


def trackers(sites: Sequence[Site], after: Any, **options: float) -> npt.NDArray[np.float64]:
    """Return every client's delta as it will be in the round that begins with `after`, (K, d)."""
    from algorithms.fed_gate import tracker

    return np.array([tracker(site, after, **options) for site in sites], dtype=np.float64)


def said_by(
    algorithm: Algorithm[Any], site: Site, given: Any, form: int | None = None
) -> SumMessage:
    """Return what one client answers to a Start."""
    (exchange,) = _chosen(algorithm, form).exchanges
    found: Any = exchange.answer(site, given)
    assert isinstance(found, SumMessage)
    return found
