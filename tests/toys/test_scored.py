"""Evaluation rides along where a round asks its first exchange once per cluster (GCFL)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from algorithms.tasks import ClientModel, Site
from algorithms.tasks.evaluation import Tracked, evaluated
from algorithms.tasks.scores import SCORING, Score
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
from tests.toys.stage import play


class Centre(ReleasedMessage):
    """A cluster's model; every cluster starts from the same."""

    weights: Vector = real(2, unit="weight", meaning="the model")


class Update(SumMessage):
    """A client's change."""

    delta: Vector = real(2, unit="weight", meaning="change of the model")
    clients: int = count(unit="client", meaning="1 per client")


class Counting:
    """A task whose site says itself what it scores."""

    spec = SimpleNamespace(task="node")

    scoring = SCORING

    def predict(self, weights: Array, site: Site) -> Array:
        return np.zeros((0, 0))

    def score(self, predictions: Array, site: Site) -> Score:
        (val, vals), (test, tests) = site.data.val, site.data.test
        counts = {"val_correct": val, "val_count": vals, "test_correct": test, "test_count": tests}
        return Score(**counts, test_share=round(10_000 * test / tests), test_clients=1)


def clustered() -> Algorithm[Centre]:
    def train(site: Site, given: Centre) -> Update:
        return Update(delta=np.array([0.25, -0.25]), clients=1)

    def model(site: Site, given: Message | None) -> ClientModel:
        return ClientModel((np.zeros(0, dtype=np.float32),))

    def round(state: Centre, cohort: Cohort) -> Round[Centre]:
        total: Any = 0
        for cluster in cohort.split([0, 0, 0, 0, 1, 1, 1, 1]):
            reply = yield Ask(cluster, given=state, back=Update)
            found = reply.total(Update)
            total = total + found.delta / found.clients / 2
        return Centre(weights=state.weights + total)

    return Algorithm(
        "toy_clustered",
        "after Xie et al., GCFL, NeurIPS 2021",
        lambda rng: Centre(weights=np.zeros(2)),
        model,
        (Form.of("clusters", round, answers={Centre: train}),),
    )


def test_a_round_that_asks_cluster_by_cluster_is_scored_over_all_clients() -> None:
    holders = [Site(SimpleNamespace(val=(i, 10), test=(2 * i, 20)), seed=i) for i in range(8)]
    task: Any = Counting()
    played = play(evaluated(clustered(), task), holders, rounds=2)
    tracked: Tracked[Centre] = played.state
    assert len(tracked.scores) == 2
    for score in tracked.scores:
        assert (score.val_correct, score.val_count) == (sum(range(8)), 80)
        assert (score.test_correct, score.test_count) == (2 * sum(range(8)), 160)
        assert score.test_clients == 8
    np.testing.assert_allclose(tracked.state.weights, [0.5, -0.5], atol=1e-4)


def test_the_best_is_the_earliest_of_the_largest_merits() -> None:
    tracked: Tracked[str] = Tracked("")
    score = Score(**dict.fromkeys((field.name for field in Score.fields), 1))
    kept = []
    for state, merit in (("a", 0.5), ("b", 0.4), ("c", 0.7), ("d", 0.7), ("e", 0.6)):
        tracked = tracked.record(score, merit, state)
        kept.append(tracked.keep.best)
    assert (tracked.best, tracked.best_merit, tracked.best_state) == (2, 0.7, "c")
    assert kept == [1, 1, 3, 3, 3] and len(tracked.scores) == 5
    lost = tracked.missed()  # a number is given once, also to a score that was lost
    assert (tracked.keep.number, lost.keep.number, lost.keep.best) == (6, 7, 3)
    assert lost.record(score, 0.9, "f").keep.best == 7


def test_of_equals_a_trained_model_comes_before_the_untrained_one() -> None:
    score = Score(**dict.fromkeys((field.name for field in Score.fields), 1))
    begun: Tracked[str] = Tracked("").record(score, 0.7, "start", trained=False)
    worse = begun.record(score, 0.6, "a")
    assert (worse.best, worse.untrained) == (0, True)
    level = worse.record(score, 0.7, "b").record(score, 0.7, "c")
    assert (level.best, level.best_state, level.keep.best) == (2, "b", 3)
    assert not level.untrained and begun.record(score, None, "d").best == 0
