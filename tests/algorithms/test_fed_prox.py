"""FedProx: FedAvg with a pull, and FedAvg itself without."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from algorithms.fed_avg import fed_avg
from algorithms.fed_prox import fed_prox
from secure_fgl.config import Config
from tests.laws.runs import config, record
from tests.toys.kinds import KINDS, sites_of, task_of
from tests.toys.quadratic import Quadratic, bowls, drive, said_by
from tests.toys.stage import play


def of(name: str, policy: str, mu: float = 0.0) -> Config:
    """Return a run of two local epochs: in the first step of a round there is no pull."""
    document = config(name, policy).model_dump(mode="json")
    document["algorithm"].update(epochs=2, options={"fed_prox": {"mu": mu}})
    return Config.parse(document)


@pytest.mark.parametrize("policy", ["masks", "unsafe_plaintext"])
def test_without_a_pull_a_whole_run_is_fed_avg_bit_for_bit(policy: str, tmp_path: Path) -> None:
    plain = record(of("fed_avg", policy), tmp_path / "plain")
    none, some = (record(of("fed_prox", policy, mu), tmp_path / str(mu)) for mu in (0.0, 0.5))
    assert none.result["model_sha256"] == plain.result["model_sha256"] is not None
    assert none.result["metrics"] == plain.result["metrics"]
    assert some.result["model_sha256"] != plain.result["model_sha256"]
    assert none.plan.items == plain.plan.items  # the same messages, fields and bytes
    assert none.plan.form == plain.plan.form and none.plan.algorithm == "fed_prox"


@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_without_a_pull_it_is_fed_avg_on_every_task_and_in_both_forms(kind: str, form: int) -> None:
    found = [
        drive(algorithm, sites_of(kind), 3, form=form).weights.tobytes()
        for algorithm in (
            fed_avg(task_of(kind, optimiser="adamw", dropout=0.5), epochs=2),
            fed_prox(task_of(kind, optimiser="adamw", dropout=0.5), epochs=2, mu=0.0),
            fed_prox(task_of(kind, optimiser="adamw", dropout=0.5), epochs=2, mu=0.5),
        )
    ]
    assert found[0] == found[1] != found[2]


def test_the_messages_are_fed_avg_s() -> None:
    task = Quadratic()
    for mine, theirs in zip(fed_prox(task).forms, fed_avg(task).forms, strict=True):
        assert mine.messages() == theirs.messages()
        assert (mine.name, mine.by_gradients) == (theirs.name, theirs.by_gradients)


def test_the_pull_leads_to_the_minimum_of_the_paper_s_subproblem() -> None:
    """min 1/2 a (w - c)^2 + mu/2 (w - w_t)^2 lies at (a c + mu w_t) / (a + mu)."""
    task, mu = Quadratic(lr=0.1), 2.0
    (site,) = bowls(1)
    algorithm = fed_prox(task, epochs=300, mu=mu)
    start = algorithm.init(np.random.default_rng(0))
    moved = start.weights + said_by(algorithm, site, start, form=1).delta  # type: ignore[attr-defined]
    curvature, centre = site.data.curvature, site.data.centre
    expected = (curvature * centre + mu * start.weights) / (curvature + mu)
    np.testing.assert_allclose(moved, expected, atol=1e-5)


@pytest.mark.parametrize("mu", [-0.1, float("nan"), float("inf")])
def test_a_pull_without_meaning_is_refused(mu: float) -> None:
    with pytest.raises(ValueError, match="mu"):
        fed_prox(Quadratic(), mu=mu)


@pytest.mark.parametrize("kind", KINDS)
def test_it_runs_protected_on_every_task(kind: str) -> None:
    task = task_of(kind)
    played = play(fed_prox(task, mu=0.1), sites_of(kind), "masks", rounds=2)
    assert np.isfinite(played.state.weights).all() and played.state.weights.shape == (task.size,)
