"""benchmarks/ldp.py: its estimates have no bias, and its errors are the mechanisms' own."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.ldp import Statistic, errors, items, sigma_of
from crypto.ldp.gaussian import GaussianVector
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
