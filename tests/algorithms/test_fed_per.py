"""FedPer: the base is averaged, the head stays at home."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from algorithms.fed_avg import Start as Whole
from algorithms.fed_avg import fed_avg
from algorithms.fed_per import Start, fed_per
from tests.predicting import predicted
from tests.toys.kinds import KINDS, sites_of, task_of
from tests.toys.quadratic import Quadratic, bowls, drive, said_by
from tests.toys.stage import play


def first(algorithm: Any) -> Start:
    found = algorithm.init(np.random.default_rng(0))
    assert isinstance(found, Start)
    return found


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_the_first_round_is_fed_avg_s_in_the_base(kind: str, form: int) -> None:
    task = task_of(kind)
    algorithm = fed_per(task, epochs=2)
    start = first(algorithm)
    whole = Whole(weights=task.initial(np.random.default_rng(start.seed)))
    np.testing.assert_array_equal(whole.weights[: task.base], start.weights)
    mine = drive(algorithm, sites_of(kind), 1, form=form, state=start)
    theirs = drive(fed_avg(task, epochs=2), sites_of(kind), 1, form=form, state=whole)
    assert 0 < task.base < task.size
    np.testing.assert_array_equal(mine.weights, theirs.weights[: task.base])
    assert mine.weights.tobytes() != start.weights.tobytes()


@pytest.mark.parametrize("form", [0, 1])
def test_nothing_but_the_base_is_said(form: int) -> None:
    task = Quadratic(size=5, lr=0.1)
    algorithm = fed_per(task)
    assert algorithm.dims == {"d": 4}
    (site,) = bowls(1, size=5)
    start = first(algorithm)
    said = said_by(algorithm, site, start, form)
    assert said.delta.shape == start.weights.shape == (4,)  # type: ignore[attr-defined]
    fitted = site.memory["trained"]
    np.testing.assert_allclose(said.delta, fitted[:4] - start.weights)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(site.memory["head"], fitted[4:])


def test_each_client_keeps_its_own_head_and_trains_on_with_it() -> None:
    task, sites = Quadratic(lr=0.3), bowls(3)
    algorithm = fed_per(task, epochs=5)
    state = drive(algorithm, sites, 30)
    heads = np.array([site.memory["head"][0] for site in sites])
    np.testing.assert_allclose(heads, [site.data.centre[-1] for site in sites], atol=1e-3)
    for site in sites:
        seen = predicted(algorithm, task, site, state)[0]
        np.testing.assert_array_equal(seen, [*state.weights, *site.memory["head"]])
        np.testing.assert_array_equal(
            predicted(algorithm, task, site, None)[0], site.memory["trained"]
        )


def test_all_heads_begin_with_the_same_public_values() -> None:
    task = Quadratic()
    algorithm = fed_per(task)
    start = first(algorithm)
    seen = [predicted(algorithm, task, site, start).tobytes() for site in bowls(3)]
    assert len(set(seen)) == 1
    other = algorithm.init(np.random.default_rng(1))
    assert predicted(algorithm, task, bowls(1)[0], other).tobytes() != seen[0]


def test_a_client_that_joins_late_begins_where_all_began() -> None:
    task, sites = Quadratic(), bowls(3)
    algorithm = fed_per(task)
    state = drive(algorithm, sites, 3, absent={1: [2], 2: [2], 3: [2]})
    seen = predicted(algorithm, task, sites[2], state)[0]
    assert seen[-1] == task.initial(np.random.default_rng(state.seed))[-1]


@pytest.mark.parametrize("model", ["sgc"])
def test_a_model_of_a_single_layer_is_refused_with_the_reason(model: str) -> None:
    with pytest.raises(ValueError, match="single layer"):
        fed_per(task_of("node", model=model))


@pytest.mark.parametrize("kind", KINDS)
def test_it_runs_protected_on_every_task(kind: str) -> None:
    task, sites = task_of(kind), sites_of(kind)
    played = play(fed_per(task), sites, "masks", rounds=2)
    assert played.state.weights.shape == (task.base,)
    heads = {site.memory["head"].tobytes() for site in sites}
    assert len(heads) == len(sites)


@pytest.mark.parametrize("form", [0, 1])
def test_mu_pulls_the_base_alone(form: int) -> None:
    """FedProx on the shared layers: the pull is zero where it starts, so a second step shows it."""
    task, kept = Quadratic(lr=0.3), []
    for mu in (0.0, 2.0):
        (site,) = bowls(1)
        algorithm = fed_per(task, epochs=3, mu=mu)
        drive(algorithm, [site], 1, form=form)
        kept.append(site.memory["trained"])
    start = first(fed_per(task)).weights
    free, held = kept
    assert np.all(np.abs(held[:-1] - start) < np.abs(free[:-1] - start))
    assert held[-1] == free[-1]


@pytest.mark.parametrize("mu", [-0.1, float("inf")])
def test_a_pull_out_of_range_is_refused(mu: float) -> None:
    with pytest.raises(ValueError, match="at 0 or above"):
        fed_per(Quadratic(), mu=mu)
