"""APFL: two models a client, mixed by their outputs; only the shared one's change is said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from algorithms.apfl import apfl
from algorithms.fed_avg import Start, fed_avg
from algorithms.tasks import Batch, Site
from tests.predicting import predicted
from tests.toys.kinds import KINDS, sites_of, task_of
from tests.toys.quadratic import Bowl, Quadratic, bowls, drive, said_by
from tests.toys.stage import play


def start_of(task: Any, seed: int = 0) -> Start:
    return Start(weights=task.initial(np.random.default_rng(seed)))


def trained(task: Any, site: Site, **options: Any) -> Any:
    """Let one client train one round from the same weights; return its memory."""
    said_by(apfl(task, **options), site, start_of(task))
    return site.memory


# --- the two models -------------------------------------------------------------------------------


def test_one_step_by_hand() -> None:
    task, alpha = Quadratic(lr=0.5), 0.25
    site = Site(Bowl(np.float32([1, 0, 2]), np.float32([1, 1, 1])), seed=0)
    start = Start(weights=np.zeros(3, np.float32))
    said = said_by(apfl(task, alpha=alpha, lr_personal=0.4), site, start)
    w = [0.5, 0, 1]  # half way to the centre
    np.testing.assert_allclose(said.delta, w)  # type: ignore[attr-defined]
    # h = 1/4 v + 3/4 w with v = 0: (0.375, 0, 0.75); z = h - c = (-0.625, 0, -1.25)
    np.testing.assert_allclose(site.memory["personal"], [0.0625, 0, 0.125], rtol=1e-6)
    np.testing.assert_array_equal(site.memory["trained"], np.float32(w))


def test_the_shared_model_is_trained_on_its_own_loss_alone() -> None:
    """So it is FedAvg's, whatever the mixture; clients count alike."""
    task = Quadratic(lr=0.1)
    plain = drive(fed_avg(task, epochs=6), bowls(), 5, form=1)
    for alpha in (0.0, 0.3, 1.0):
        mine = drive(apfl(task, epochs=2, steps=3, alpha=alpha, adaptive=True), bowls(), 5)
        np.testing.assert_array_equal(mine.weights, plain.weights)


def test_without_a_share_the_personal_model_stays_and_with_all_of_it_it_goes_home() -> None:
    task = Quadratic(lr=0.3)
    still, home = bowls(), bowls()
    drive(apfl(task, epochs=5, alpha=0.0), still, 20)
    drive(apfl(task, epochs=5, alpha=1.0), home, 20)
    begun = task.initial(np.random.default_rng(0))
    for one, other in zip(still, home, strict=True):
        np.testing.assert_array_equal(one.memory["personal"], begun)
        np.testing.assert_allclose(other.memory["personal"], other.data.centre, atol=1e-3)


@pytest.mark.parametrize("kind", KINDS)
def test_with_all_of_the_share_the_personal_model_is_local_gradient_descent(kind: str) -> None:
    task, rounds, steps = task_of(kind, dropout=0.0), 3, 2
    (site, twin) = (sites_of(kind)[0] for _ in range(2))
    state = start_of(task)
    for _ in range(rounds):
        said_by(apfl(task, steps=steps, alpha=1.0), site, state)
    weights = state.weights
    for _ in range(rounds):
        for batch, _ in zip(task.batches(twin), range(steps), strict=False):
            weights = weights - np.float32(task.lr) * task.gradient(weights, twin, batch)
    np.testing.assert_allclose(site.memory["personal"], weights, atol=1e-5)


def test_predictions_mix_the_received_model_or_the_trained_copy() -> None:
    task = Quadratic(lr=0.3)
    algorithm = apfl(task, epochs=3, alpha=0.25)
    site, start = bowls(1)[0], start_of(task)
    before_all = predicted(algorithm, task, site, start)[0]
    np.testing.assert_array_equal(before_all, start.weights)
    said_by(algorithm, site, start)
    given = start_of(task, seed=5)
    own, copy = site.memory["personal"], site.memory["trained"]
    mixed = predicted(algorithm, task, site, given)[0]
    np.testing.assert_allclose(mixed, 0.25 * own + 0.75 * given.weights, rtol=1e-6)
    last = predicted(algorithm, task, site, None)[0]
    np.testing.assert_allclose(last, 0.25 * own + 0.75 * copy, rtol=1e-6)


def test_a_site_without_training_records_changes_nothing() -> None:
    task = Quadratic()
    site = Site(Bowl(np.ones(3, np.float32), np.ones(3, np.float32), count=0), seed=0)
    start = start_of(task)
    said = said_by(apfl(task, adaptive=True, steps=3), site, start)
    assert not said.delta.any() and site.memory["alpha"] == 0.5  # type: ignore[attr-defined]
    np.testing.assert_array_equal(site.memory["personal"], start.weights)


# --- alpha ----------------------------------------------------------------------------------------


def mean_loss(kind: str, task: Any, site: Site, predictions: Any) -> float:
    """Return the mean training loss in float64, from predictions alone."""
    if kind == "rating":
        rows = site.data.train.numpy()
        scale = (predictions[rows, 0] - site.data.rating.numpy()[rows]).astype(np.float64) / 4
        return float(np.mean(scale**2))
    rows, y = site.data.train.numpy(), site.data.y.numpy()
    found = predictions.astype(np.float64)[rows]
    if kind == "node":
        return float(-np.log(found[np.arange(len(found)), y[rows]]).mean())
    yes = y[rows]
    return float(-(yes * np.log(found) + (1 - yes) * np.log(1 - found)).mean())


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("kind", KINDS)
def test_the_slope_in_alpha_agrees_with_finite_differences(kind: str, share: float) -> None:
    """d loss / d alpha of the mixture, with the loss taken from predictions and not from mixed."""
    task = task_of(kind, weight_decay=0.1)  # which the slope must not hold
    site = sites_of(kind)[0]
    spread = 0.05 if kind == "rating" else 0.1  # so that no predicted rating is cut to the scale
    noise = np.random.default_rng(3).normal(0.0, spread, size=(2, task.size)).astype(np.float32)
    v, w = task.initial(np.random.default_rng(1)) + noise
    batch = next(task.batches(site))
    assert len(batch.records) == site.count
    width = 2e-2

    def loss(alpha: float) -> float:
        return mean_loss(kind, task, site, task.predict_mixed(v, w, alpha, site))

    expected = (loss(share + width) - loss(share - width)) / (2 * width)
    found = task.mixed(v, w, share, site, batch).alpha
    assert abs(expected) > 1e-3, "a slope of zero would agree with anything"
    np.testing.assert_allclose(found, expected, rtol=2e-3)


@pytest.mark.parametrize("kind", ["node", "graph"])
def test_alpha_takes_one_step_a_round_down_that_slope(kind: str) -> None:
    task = task_of(kind, lr=0.3)
    start = start_of(task)
    first, second = (sites_of(kind)[0] for _ in range(2))
    algorithm = apfl(task, steps=3, alpha=0.5, adaptive=True)
    said_by(algorithm, first, start)
    given = start_of(task, seed=3)
    v, share = first.memory["personal"], first.memory["alpha"]
    said_by(apfl(task, steps=3), second, start)  # the twin draws the same batches
    batch = next(task.batches(second))
    w = given.weights - np.float32(task.lr) * task.gradient(given.weights, second, batch)
    said_by(algorithm, first, given)
    slope = task.mixed(v, w, share, second, batch).alpha
    assert first.memory["alpha"] == pytest.approx(share - task.lr * slope, abs=1e-6)
    assert first.memory["alpha"] != share


def test_alpha_is_learnt_towards_the_better_model_and_stays_a_share() -> None:
    task = Quadratic(lr=0.002)
    site = Site(Bowl(np.full(3, 2, np.float32), np.ones(3, np.float32)), seed=0)
    far, good = Start(weights=np.full(3, -8, np.float32)), Start(weights=site.data.centre)
    algorithm, seen = apfl(task, adaptive=True), []
    site.memory.update(personal=good.weights, alpha=0.3)
    for _ in range(30):
        said_by(algorithm, site, far)
        seen.append(site.memory["alpha"])
    assert seen[-1] > 0.9 and max(seen) <= 1.0
    site.memory.update(personal=far.weights, alpha=0.7)
    for _ in range(30):
        said_by(algorithm, site, good)
        seen.append(site.memory["alpha"])
    assert seen[-1] < 0.1 and min(seen) >= 0.0


def test_without_adaptive_alpha_stays() -> None:
    sites = bowls()
    drive(apfl(Quadratic(lr=0.3), epochs=3, alpha=0.3), sites, 4)
    assert {site.memory["alpha"] for site in sites} == {0.3}


def test_the_decay_pulls_alpha_down_and_fedtorch_has_its_own() -> None:
    task = Quadratic(lr=0.5)
    flat = Site(Bowl(np.zeros(3, np.float32), np.zeros(3, np.float32)), seed=0)  # no slope at all
    options = {"adaptive": True, "alpha": 0.8}
    assert trained(task, flat, **options)["alpha"] == 0.8
    flat.memory.clear()
    assert trained(task, flat, decay=0.1, **options)["alpha"] == pytest.approx(0.8 * 0.95)
    flat.memory.clear()
    found = trained(task, flat, alpha_rule="fedtorch", **options)["alpha"]
    assert found == pytest.approx(0.8 * (1 - 0.5 * 0.02))


def test_fedtorch_s_rule_by_hand() -> None:
    """<v - w, alpha g_v + (1 - alpha) g_w>; g_v = alpha z, g_w = (1 - alpha) z, v stepped."""
    task, share = Quadratic(lr=0.5), 0.25
    site = Site(Bowl(np.float32([1, 0, 2]), np.float32([1, 1, 1])), seed=0)
    start = Start(weights=np.zeros(3, np.float32))
    algorithm = apfl(
        task, alpha=share, adaptive=True, alpha_rule="fedtorch", decay=0.0, lr_personal=0.4
    )
    said_by(algorithm, site, start)
    z, w = np.array([-0.625, 0, -1.25]), np.array([0.5, 0, 1])  # as in the step by hand above
    v = -0.4 * share * z
    slope = np.dot(v - w, (share**2 + (1 - share) ** 2) * z)
    assert site.memory["alpha"] == pytest.approx(max(share - 0.5 * slope, 0.0), rel=1e-5)


# --- what is refused, what is kept, what leaves ---------------------------------------------------


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"alpha": -0.1}, "alpha"),
        ({"alpha": 1.1}, "alpha"),
        ({"alpha": float("nan")}, "alpha"),
        ({"alpha_rule": "exacy"}, "exact, fedtorch"),
        ({"decay": -1.0}, "decay"),
        ({"lr_personal": 0.0}, "lr_personal"),
        ({"steps": 0}, "steps"),
        ({"epochs": 0}, "epochs"),
    ],
)
def test_options_without_meaning_are_refused(options: Any, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        apfl(Quadratic(), **options)


def test_training_that_diverges_is_said_to_diverge_and_nothing_is_kept() -> None:
    site = bowls(1)[0]
    with pytest.raises(FloatingPointError, match="step size"):
        trained(Quadratic(lr=1e30), site, steps=9)
    assert not site.memory


def test_steps_are_batches_and_rounds_are_epochs_times_steps() -> None:
    asked: list[Batch] = []

    class Counted(Quadratic):
        def gradient(self, weights: Any, site: Site, batch: Batch) -> Any:
            asked.append(batch)
            return super().gradient(weights, site, batch)

        def mixed(self, *arguments: Any) -> Any:
            return Quadratic().mixed(*arguments)

    said_by(apfl(Counted(), epochs=3, steps=4), bowls(1)[0], start_of(Quadratic()))
    assert len(asked) == 12


@pytest.mark.parametrize("kind", KINDS)
def test_it_runs_protected_on_every_task_and_says_one_vector(kind: str) -> None:
    task, sites = task_of(kind), sites_of(kind)
    played = play(apfl(task, epochs=2, adaptive=True), sites, "masks", rounds=2)
    assert played.state.weights.shape == (task.size,)
    (item,) = (item for item in played.plan.items if item.id == "train.up.SUM")
    (message,) = item.messages
    assert [(field.name, field.shape) for field in message.fields] == [("delta", (task.size,))]
    for site in sites:
        assert set(site.memory) == {"personal", "alpha", "trained"}
        assert site.memory["personal"].tobytes() != site.memory["trained"].tobytes()
