"""benchmarks/ldp.py: its estimates have no bias, and its errors are the mechanisms' own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks.ldp import Statistic, errors, items, sigma_of
from benchmarks.ldp_runs import federation_of
from crypto.ldp_vectors import GaussianVector
from protocols.privacy.renyi import ORDERS, net_epsilon


def test_the_mean_of_drawn_items_is_what_is_estimated() -> None:
    held = [np.array([0, 1]), np.array([1]), np.array([1, 2, 3])]
    stat = items("three users", held, 5)
    assert stat.truth == pytest.approx([1 / 6, (1 / 2 + 1 + 1 / 3) / 3, 1 / 9, 1 / 9, 0])
    assert stat.guess == pytest.approx([0.2] * 5)


def test_more_epsilon_errs_less_down_to_what_drawing_an_item_costs() -> None:
    rng = np.random.default_rng(1)
    held = [np.unique(rng.integers(0, 6, size=3)) for _ in range(400)]
    stat: Statistic = items("users", held, 6)
    found = {e: float(errors(stat, "randomised_response", e, 1).mean()) for e in (1.0, 4.0, 12.0)}
    assert found[1.0] > 3 * found[4.0] and found[1.0] > 3 * found[12.0]
    made = stat.ways["randomised_response"][0](1.0)
    assert 0.3 < found[1.0] / made.variance(400) < 3
    assert found[12.0] < 6 / 400


@pytest.mark.parametrize("epsilon", [1.0, 8.0])
def test_the_gaussians_scale_reaches_its_epsilon(epsilon: float) -> None:
    rho = GaussianVector(3, 1.0, sigma_of(epsilon)).rho
    spent = net_epsilon(rho * np.array(ORDERS), 1e-5, tails=0.0)[0]
    assert 0.999 * epsilon < spent <= epsilon


@pytest.mark.parametrize(("what", "form"), [("mean", "told_mean"), ("labels", "told_labels")])
def test_in_runs_each_client_tells_once_and_spends_the_whole_target(
    what: str, form: str, tmp_path: Path
) -> None:
    plan = federation_of(what, 2.0, 1, tmp_path, tmp_path).plan()
    assert plan.form == f"{form}_unscored"
    (told,) = (item for item in plan.items if item.noise and item.disclosure == "NOISED")
    assert told.times == 1 and told.noise is not None
    share = 2.0 if what == "mean" else 1.0  # sums of gradients take their part of the target
    assert float(told.noise.pure) == pytest.approx(share, rel=0.05)
    assert plan.budget.startswith("epsilon <= 2.000")
