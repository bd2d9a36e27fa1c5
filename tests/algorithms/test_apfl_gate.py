"""APFLGate: APFL and FedGATE in one, and each of them at its end."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from algorithms.apfl import apfl
from algorithms.apfl_gate import apfl_gate
from algorithms.fed_gate import Start, fed_gate
from algorithms.tasks import Site
from protocols.messages import Message
from tests.predicting import predicted
from tests.thinned import thinned
from tests.toys.kinds import KINDS, sites_of, task_of
from tests.toys.quadratic import Bowl, Quadratic, bowls, drive, optimum, said_by, trackers
from tests.toys.stage import play

ONE = np.ones(3, np.float32)


def trained(algorithm: Any, kind: str, rounds: int = 4, **options: Any) -> tuple[Any, list[Site]]:
    sites = sites_of(kind)
    return drive(algorithm(task_of(kind, dropout=0.5, batch=5), **options), sites, rounds), sites


def predictions(algorithm: Any, kind: str, options: Any, state: Any, sites: Any) -> list[bytes]:
    task = task_of(kind, dropout=0.5, batch=5)
    built = algorithm(task, **options)
    return [
        predicted(built, task, site, given).tobytes() for site in sites for given in (state, None)
    ]


# --- both ends ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "more"), thinned([(k, m) for m in ({}, {"tau": 9.0, "gamma": 0.7}) for k in KINDS])
)
def test_without_a_share_it_is_fed_gate_bit_for_bit(kind: str, more: dict[str, float]) -> None:
    common = {"epochs": 2, "steps": 3, **more}
    options = {"alpha": 0.0, **common}
    gate, gates = trained(fed_gate, kind, **common)
    both, boths = trained(apfl_gate, kind, **options)
    np.testing.assert_array_equal(both.weights, gate.weights)
    assert both.step == gate.step == 4
    for one, other in zip(boths, gates, strict=True):
        np.testing.assert_array_equal(one.memory["delta"], other.memory["delta"])
    theirs = predictions(fed_gate, kind, common, gate, gates)
    assert predictions(apfl_gate, kind, options, both, boths) == theirs


@pytest.mark.parametrize(
    ("kind", "adaptive"), thinned([(k, a) for a in (True, False) for k in KINDS])
)
def test_with_trackers_at_zero_it_is_apfl_bit_for_bit(kind: str, adaptive: bool) -> None:
    common = {"epochs": 2, "steps": 3, "alpha": 0.4, "adaptive": adaptive, "lr_personal": 0.02}
    plain, plains = trained(apfl, kind, **common)
    both, boths = trained(apfl_gate, kind, tau=float("inf"), **common)
    np.testing.assert_array_equal(both.weights, plain.weights)
    for one, other in zip(boths, plains, strict=True):
        assert not one.memory["delta"].any()
        assert one.memory["alpha"] == other.memory["alpha"]
        np.testing.assert_array_equal(one.memory["personal"], other.memory["personal"])
    other, _ = trained(apfl_gate, kind, **common)
    assert other.weights.tobytes() != both.weights.tobytes()  # control: trackers do something


def test_the_shared_model_does_not_depend_on_the_share() -> None:
    ends = [
        drive(apfl_gate(Quadratic(lr=0.1), steps=5, alpha=alpha, frozen=frozen), bowls(), 5)
        for alpha in (0.0, 0.5, 1.0)
        for frozen in (False, True)
    ]
    assert len({end.weights.tobytes() for end in ends}) == 1


def test_trackers_sum_to_zero_and_the_global_model_is_the_best_one() -> None:
    task, sites = Quadratic(lr=0.1), bowls()
    state = drive(apfl_gate(task, steps=5, adaptive=True), sites, 150)
    found = trackers(sites, state, lr=task.lr, tau=5, gamma=1)
    assert np.abs(found).max() > 0.1 and np.abs(found.sum(axis=0)).max() < 1e-4
    np.testing.assert_allclose(state.weights, optimum(sites), atol=1e-4)


# --- options, by hand -----------------------------------------------------------------------------


def step_of(**options: Any) -> tuple[Any, Any, Any]:
    """Train one step, R = 1, from w = 0, v = -1, delta = 1/4 on a bowl at 1; return w, v, alpha."""
    site = Site(Bowl(ONE, ONE), seed=0)
    begun = Start(weights=0 * ONE, step=0)
    # Nothing moved since: so the tracker stays as it is.
    site.memory.update(personal=-ONE, delta=0.25 * ONE, sent=(begun, 0 * ONE))
    said_by(apfl_gate(Quadratic(lr=0.5), lr_personal=0.1, **options), site, begun)
    return site.memory["trained"][0], site.memory["personal"][0], site.memory["alpha"]


def test_one_step_by_hand() -> None:
    # w = 0 - 1/2 (-1 - 1/4) = 0.625; h = v/4 + 3w/4 = 0.21875; z = h - 1; v -= 0.1 z/4
    w, v, alpha = step_of(alpha=0.25)
    assert (w, alpha) == (0.625, 0.25)
    assert v == pytest.approx(-1 + 0.1 * 0.25 * 0.78125)


def test_a_learnt_alpha_by_hand() -> None:
    # d loss/d alpha = 3 z (v - w) = 3 * -0.78125 * -1.625
    assert step_of(alpha=0.25, adaptive=True)[2] == 0.0  # one step of 1.9 down: kept at 0
    site = Site(Bowl(ONE, ONE), seed=0)
    site.memory.update(personal=0.9 * ONE)
    said_by(
        apfl_gate(Quadratic(lr=0.01), alpha=0.25, adaptive=True),
        site,
        Start(weights=0 * ONE, step=0),
    )
    z = 0.25 * 0.9 + 0.75 * 0.01 - 1
    assert site.memory["alpha"] == pytest.approx(0.25 - 0.01 * 3 * z * (0.9 - 0.01), rel=1e-5)


def test_a_frozen_branch_is_the_received_model() -> None:
    w, v, _ = step_of(alpha=0.25, frozen=True)
    assert w == 0.625
    assert v == pytest.approx(-1 + 0.1 * 0.25 * 1.25)  # h = v/4 + 0, z = -1.25


def test_joint_training_takes_both_gradients_at_one_mixture() -> None:
    w, v, _ = step_of(alpha=0.25, joint=True)
    assert w == pytest.approx(-0.5 * (0.75 * -1.25 - 0.25))
    assert v == pytest.approx(-1 + 0.1 * 0.25 * 1.25)


def test_joint_training_with_all_of_the_share_moves_the_shared_model_by_its_tracker_only() -> None:
    assert step_of(alpha=1.0, joint=True)[0] == 0.125


def test_a_tracked_personal_model_is_corrected_too() -> None:
    plain, tracked = (step_of(alpha=0.25, track_personal=flag)[1] for flag in (False, True))
    assert tracked == pytest.approx(plain + 0.1 * 0.25)


def test_alpha_moves_at_the_first_step_of_a_round_only() -> None:
    one, three = bowls(1)[0], bowls(1)[0]
    start = Start(weights=5 * ONE, step=0)
    for site, steps in ((one, 1), (three, 3)):
        site.memory.update(personal=site.data.centre)
        said_by(apfl_gate(Quadratic(lr=0.001), steps=steps, adaptive=True, tau=9.0), site, start)
    assert one.memory["alpha"] == three.memory["alpha"] != 0.5


def test_clients_predict_with_the_aggregated_model_and_their_own() -> None:
    task, sites = Quadratic(lr=0.1), bowls()
    algorithm = apfl_gate(task, steps=3, alpha=0.25)
    state = drive(algorithm, sites, 3)
    for site in sites:
        own, copy = site.memory["personal"], site.memory["trained"]
        seen = predicted(algorithm, task, site, state)[0]
        np.testing.assert_allclose(seen, 0.25 * own + 0.75 * state.weights, rtol=1e-5)
        seen = predicted(algorithm, task, site, None)[0]
        np.testing.assert_allclose(seen, 0.25 * own + 0.75 * copy, rtol=1e-5)


def test_a_site_without_training_records_steps_along_its_tracker_and_keeps_v() -> None:
    task, sites = Quadratic(lr=0.1), bowls()
    sites.append(Site(Bowl(ONE, ONE, count=0), seed=9))
    state = drive(apfl_gate(task, steps=5, adaptive=True), sites, 3)
    twins = [*bowls(), Site(Bowl(ONE, ONE, count=0), seed=9)]
    gate = drive(fed_gate(task, steps=5), twins, 3)
    np.testing.assert_array_equal(state.weights, gate.weights)
    begun = task.initial(np.random.default_rng(0))
    np.testing.assert_array_equal(sites[-1].memory["personal"], begun)
    assert sites[-1].memory["alpha"] == 0.5
    found = trackers(sites, state, lr=task.lr, tau=5, gamma=1)
    assert np.abs(found.sum(axis=0)).max() < 1e-4 and np.abs(found[-1]).max() > 1e-2


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"alpha": 1.5}, "alpha"),
        ({"alpha": -1e-9}, "alpha"),
        ({"tau": 0.1, "steps": 3}, "R = 3"),
        ({"tau": 1.0, "steps": 3}, "R = 3"),
        ({"gamma": -1.0}, "gamma"),
        ({"lr_personal": -0.1}, "lr_personal"),
        ({"frozen": True, "joint": True}, "frozen"),
        ({"steps": 0}, "steps"),
    ],
)
def test_options_without_meaning_are_refused(options: Any, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        apfl_gate(Quadratic(), **options)


# --- what is kept and what leaves -----------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_it_runs_protected_on_every_task_and_says_one_vector(kind: str) -> None:
    """delta, v and alpha differ from client to client, and stand in no message."""
    task, sites = task_of(kind), sites_of(kind)
    algorithm = apfl_gate(task, epochs=2, adaptive=True)
    said = [kind for form in algorithm.forms for kind in form.messages()]
    names = {(one.__name__, f.name, f.wire) for one in said for f in one.fields}
    assert names == {
        ("Start", "weights", "f4"), ("Start", "step", "u8"), ("Change", "delta", "f8"),
        ("NoisedChange", "delta", "f8"),
    }  # fmt: skip
    played = play(algorithm, sites, "masks", rounds=3)
    (item,) = (item for item in played.plan.items if item.id == "train.up.SUM")
    (message,) = item.messages
    assert [(field.name, field.shape) for field in message.fields] == [("delta", (task.size,))]
    for name in ("delta", "personal"):
        assert len({site.memory[name].tobytes() for site in sites}) == len(sites)
    assert len({site.memory["alpha"] for site in sites}) > 1


def test_memory_holds_plain_values_that_are_never_written_to_again() -> None:
    sites, algorithm = bowls(), apfl_gate(Quadratic(lr=0.1), steps=3, adaptive=True)
    state = drive(algorithm, sites, 2)
    memory = dict(sites[0].memory)
    arrays = {name: value for name, value in memory.items() if isinstance(value, np.ndarray)}
    copies = {name: value.copy() for name, value in arrays.items()}
    drive(algorithm, sites, 2, state=state)
    for name, value in arrays.items():
        np.testing.assert_array_equal(value, copies[name])
    assert set(arrays) == {"delta", "personal", "trained"}
    begun, own = memory["sent"]
    assert isinstance(begun, Message) and isinstance(own, np.ndarray)
    assert isinstance(memory["alpha"], float)
