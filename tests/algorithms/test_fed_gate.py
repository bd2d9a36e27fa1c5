"""FedGATE: trackers that take the difference between clients out of their steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from algorithms import fed_gate as file
from algorithms.fed_avg import fed_avg
from algorithms.fed_gate import Start, fed_gate, stable
from algorithms.tasks import Site
from protocols.messages import Message
from tests.predicting import predicted
from tests.toys.kinds import KINDS, sites_of, task_of
from tests.toys.quadratic import Bowl, Quadratic, bowls, drive, optimum, said_by, trackers
from tests.toys.stage import play

STEPS = 10


def off(sites: Any, state: Any) -> float:
    """Return how far the global model is from the best one."""
    return float(np.abs(state.weights - optimum(sites)).max())


# --- what it equals, and what it is for -----------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_with_the_same_data_everywhere_it_is_fed_avg(kind: str) -> None:
    """Full batches, no dropout: then all clients step alike and the trackers stay at zero.

    Not to the bit: torch fuses a step's product and sum, so both round otherwise, in the seventh
    digit of weights below 1. FedAvg's first form weights by records, which are equal here.
    """
    task = task_of(kind, batch=None, weight_decay=1e-3)
    mine, theirs = sites_of(kind, alike=True), sites_of(kind, alike=True)
    start = Start(weights=task.initial(np.random.default_rng(0)), step=0)
    gate = drive(fed_gate(task, epochs=3), mine, 6, state=start)
    plain = drive(fed_avg(task, epochs=3), theirs, 6, form=1)
    np.testing.assert_allclose(gate.weights, plain.weights, atol=1e-5)
    assert np.abs(gate.weights - start.weights).max() > 1e-3
    left = trackers(mine, gate, lr=task.lr, tau=3, gamma=1)
    assert np.abs(left).max() < 1e-5


def test_it_finds_the_minimum_of_the_mean_where_fed_avg_does_not() -> None:
    task, sites = Quadratic(lr=0.1), bowls()
    plain = drive(fed_avg(task, epochs=STEPS), bowls(), 100, form=1)
    gate = drive(fed_gate(task, steps=STEPS), sites, 100)
    assert off(sites, gate) < 1e-4 < 1e-2 < off(sites, plain)


def test_after_one_round_a_tracker_is_the_difference_of_gradients() -> None:
    """tau = R: delta_i = g_i - g to first order in eta."""
    task, sites = Quadratic(lr=1e-4), bowls()
    start = Start(weights=np.zeros(3, np.float32), step=0)
    state = drive(fed_gate(task, steps=STEPS), sites, 1, state=start)
    slopes = np.array([-site.data.curvature * site.data.centre for site in sites])
    expected = slopes - slopes.mean(axis=0)
    found = trackers(sites, state, lr=task.lr, tau=STEPS, gamma=1)
    np.testing.assert_allclose(found, expected, atol=5e-3)
    assert np.abs(expected).max() > 0.5


def test_one_round_by_hand_and_the_next_client_step() -> None:
    task = Quadratic(lr=0.5)
    one = np.ones(3, np.float32)
    sites = [Site(Bowl(one * c, one), seed=0) for c in (0.0, 2.0, 4.0)]
    start = Start(weights=0 * one, step=0)
    algorithm = fed_gate(task, gamma=0.5, tau=2)
    state = drive(algorithm, sites, 1, state=start)
    # w_i = 0, 1, 2; u = -1; w^1 = 0 + 0.5 * 1; w' = 1; delta_i = (1 - w_i) / (0.5 * 2)
    np.testing.assert_allclose(state.weights, 0.5 * one)
    found = trackers(sites, state, lr=0.5, tau=2, gamma=0.5)
    np.testing.assert_allclose(found, np.outer([1, 0, -1], one))
    said = said_by(algorithm, sites[2], state)
    np.testing.assert_allclose(said.delta, -0.5 * ((0.5 - 4) - -1) * one)  # type: ignore[attr-defined]


@pytest.mark.parametrize("gamma", [0.5, 1.0, 1.5])
@pytest.mark.parametrize("kind", KINDS)
def test_all_trackers_sum_to_zero(kind: str, gamma: float) -> None:
    task, sites = task_of(kind, dropout=0.5, batch=5), sites_of(kind)
    state = drive(fed_gate(task, epochs=2, steps=2, gamma=gamma), sites, 5)
    found = trackers(sites, state, lr=task.lr, tau=4, gamma=gamma)
    assert np.abs(found).max() > 1e-2  # each of them has something to say
    assert np.abs(found.sum(axis=0)).max() < 1e-4 * np.abs(found).max()


# --- stability ------------------------------------------------------------------------------------


def settles(tau: float, monkeypatch: pytest.MonkeyPatch | None = None) -> bool:
    """Tell whether trackers settle and the model finds the minimum; the refusal can be lifted."""
    if monkeypatch is not None:
        monkeypatch.setattr(file, "stable", lambda tau, count, gamma: tau)
    task, sites = Quadratic(lr=0.002), bowls()
    try:
        state = drive(fed_gate(task, steps=STEPS, tau=tau), sites, 600)
    except FloatingPointError:
        return False
    found = trackers(sites, state, lr=task.lr, tau=tau, gamma=1)
    return bool(off(sites, state) < 1e-2 and np.abs(found).max() < 10)


@pytest.mark.parametrize("tau", [STEPS / 2 + 0.25, 0.8 * STEPS, STEPS, 3 * STEPS, 10 * STEPS])
def test_a_tau_above_half_the_steps_converges(tau: float) -> None:
    assert settles(tau)


@pytest.mark.parametrize("tau", [STEPS / 2 - 0.25, STEPS / 4, 0.1])
def test_a_tau_below_half_the_steps_diverges(tau: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were it not refused: so the bound is where the toy has it, on both sides."""
    assert not settles(tau, monkeypatch)
    monkeypatch.undo()
    with pytest.raises(ValueError, match="R = 10"):
        settles(tau)


@pytest.mark.parametrize(("steps", "tau"), [(10, 5.0), (1, 0.5), (3, 1.5), (10, -1), (10, 0)])
def test_at_half_the_steps_it_is_refused_with_reason_and_range(steps: int, tau: float) -> None:
    with pytest.raises(ValueError) as refused:
        fed_gate(Quadratic(), steps=steps, tau=tau)
    text = str(refused.value)
    for part in (f"tau = {tau:g}", f"R = {steps}", f"R/2 = {steps / 2:g}", "1 - R/tau", "choose"):
        assert part in text


def test_tau_is_r_unless_said_otherwise() -> None:
    assert stable(None, 7, 1.0) == 7.0
    assert stable(3.6, 7, 1.0) == 3.6
    assert stable(float("inf"), 7, 1.0) == float("inf")
    state, same = (
        drive(fed_gate(Quadratic(lr=0.1), epochs=2, steps=5, **options), bowls(), 4)
        for options in ({}, {"tau": 10.0})
    )
    np.testing.assert_array_equal(state.weights, same.weights)


@pytest.mark.parametrize(
    "options",
    [{"tau": float("nan")}, {"gamma": 0.0}, {"gamma": float("inf")}, {"steps": 0}, {"epochs": 0}],
)
def test_options_without_meaning_are_refused(options: Any) -> None:
    with pytest.raises(ValueError):
        fed_gate(Quadratic(), **options)


# --- clients that vanish, rounds that are lost ----------------------------------------------------


def kept(sites: Any) -> list[Any]:
    return [site.memory["delta"] for site in sites]


def test_a_lost_round_leaves_trackers_and_model_as_they_were() -> None:
    task, algorithm = Quadratic(lr=0.1), fed_gate(Quadratic(lr=0.1), steps=STEPS)
    sites, calm = bowls(), bowls()
    lost = drive(algorithm, sites, 5, lost=[2, 3])
    whole = drive(algorithm, calm, 3)
    assert lost.step == whole.step == 3
    np.testing.assert_array_equal(lost.weights, whole.weights)
    found, expected = (
        trackers(group, state, lr=task.lr, tau=STEPS, gamma=1)
        for group, state in ((sites, lost), (calm, whole))
    )
    np.testing.assert_array_equal(found, expected)


def test_a_client_that_was_not_asked_keeps_its_tracker_for_that_round() -> None:
    algorithm, sites = fed_gate(Quadratic(lr=0.1), steps=STEPS), bowls()
    drive(algorithm, sites, 3, absent={3: [2]})
    first, again = kept(sites)[2], bowls()
    drive(algorithm, again, 2)
    np.testing.assert_array_equal(first, kept(again)[2])  # round 2's is its latest


def test_the_sum_stays_zero_over_a_round_without_a_client_that_comes_first() -> None:
    """A client that joins later begins with a tracker of zero, and nobody is the worse for it."""
    task, sites = Quadratic(lr=0.1), bowls()
    algorithm = fed_gate(task, steps=STEPS)
    state = drive(algorithm, sites, 60, absent={1: [3], 2: [3], 3: [3]})
    found = trackers(sites, state, lr=task.lr, tau=STEPS, gamma=1)
    assert np.abs(found.sum(axis=0)).max() < 1e-4
    assert off(sites, state) < 1e-3


def test_a_missed_round_disturbs_the_sum_little() -> None:
    """Its own round's u is taken to be the mean over what it missed.

    To forget that round's step, or to take all that happened for one round, would leave an error in
    the sum for ever, and the model would settle elsewhere.
    """
    task, gamma = Quadratic(lr=0.01), 1.0
    ends = {}
    for way in ("mean", "forgotten", "one round"):
        sites = bowls()
        algorithm = fed_gate(task, steps=STEPS, gamma=gamma)
        state = drive(algorithm, sites, 2, absent={2: [1]})
        begun, own = sites[1].memory["sent"]
        if way == "forgotten":
            del sites[1].memory["sent"]
        elif way == "one round":
            sites[1].memory["sent"] = (Start(weights=begun.weights, step=begun.step + 1), own)
        state = drive(algorithm, sites, 300, state=state)
        ends[way] = off(sites, state)
    assert ends["mean"] < 0.1 * min(ends["forgotten"], ends["one round"])


@pytest.mark.parametrize("rounds", [1, 2, 4])
def test_missed_rounds_of_equal_steps_are_made_up_for_exactly(rounds: int) -> None:
    task = Quadratic(lr=0.1)
    site = bowls(1)[0]
    said_by(fed_gate(task, gamma=0.5), site, Start(weights=np.zeros(3, np.float32), step=4))
    step = np.float32([0.5, -0.25, 1.0])
    after = Start(weights=rounds * step, step=4 + rounds)
    mean = 2 * step  # w' = w - u, and each round moved by -u/2
    found = trackers([site], after, lr=0.1, tau=1, gamma=0.5)[0]
    np.testing.assert_allclose(found, (mean - site.memory["trained"]) / 0.1, rtol=1e-5)


def test_a_site_without_training_records_has_the_loss_zero() -> None:
    """Its tracker is minus the mean gradient, and steps with it: the sum stays zero, all settle."""
    task, sites = Quadratic(lr=0.1), bowls()
    sites.append(Site(Bowl(sites[0].data.centre, sites[0].data.curvature, count=0), seed=9))
    state = drive(fed_gate(task, steps=STEPS), sites, 200)
    found = trackers(sites, state, lr=task.lr, tau=STEPS, gamma=1)
    assert np.abs(found.sum(axis=0)).max() < 1e-4 and np.abs(found[-1]).max() < 1e-3
    assert off(sites[:-1], state) < 1e-3


# --- what is kept and what leaves -----------------------------------------------------------------


def test_memory_holds_plain_values_that_are_never_written_to_again() -> None:
    task, sites = Quadratic(lr=0.1), bowls()
    algorithm = fed_gate(task, steps=3)
    state = drive(algorithm, sites, 2)
    memory = dict(sites[0].memory)
    before = [memory["delta"].copy(), memory["trained"].copy(), memory["sent"][1].copy()]
    drive(algorithm, sites, 2, state=state)
    after = [memory["delta"], memory["trained"], memory["sent"][1]]
    for one, other in zip(before, after, strict=True):
        np.testing.assert_array_equal(one, other)
    assert isinstance(memory["sent"], tuple) and isinstance(memory["sent"][0], Message)


def test_predictions_are_the_global_model_s_or_the_trained_copy_s() -> None:
    task, sites = Quadratic(lr=0.1), bowls()
    algorithm = fed_gate(task, steps=3)
    state = drive(algorithm, sites, 2)
    np.testing.assert_array_equal(predicted(algorithm, task, sites[0], state)[0], state.weights)
    np.testing.assert_array_equal(
        predicted(algorithm, task, sites[0], None)[0], sites[0].memory["trained"]
    )


def test_training_that_diverges_is_said_to_diverge() -> None:
    with pytest.raises(FloatingPointError, match="step size"):
        drive(fed_gate(Quadratic(lr=1e30), steps=9), bowls(), 1)


@pytest.mark.parametrize("kind", KINDS)
def test_it_runs_protected_on_every_task_and_says_one_vector(kind: str) -> None:
    task, sites = task_of(kind), sites_of(kind)
    played = play(fed_gate(task, epochs=2), sites, "masks", rounds=3)
    assert played.state.weights.shape == (task.size,) and played.state.step == 3
    (item,) = (item for item in played.plan.items if item.id == "train.up.SUM")
    (message,) = item.messages
    assert [(field.name, field.shape) for field in message.fields] == [("delta", (task.size,))]
    found = trackers(sites, played.state, lr=task.lr, tau=2, gamma=1)
    grid = 2 * 0.5 / (1 << 16) / (task.lr * 2)  # one step of the sum's grid, as a tracker sees it
    assert np.abs(found.sum(axis=0)).max() < 3 * np.sqrt(3 * len(sites)) * 2 * grid
    assert np.abs(found).max() > 1e-2
