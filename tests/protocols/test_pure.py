"""Pure epsilon of single messages: their Rényi divergence, and how many fit into a target."""

from __future__ import annotations

import math

import numpy as np
import pytest

from crypto.ldp import RandomisedResponse
from protocols.errors import PolicyError
from protocols.privacy.pure import Pure, calibrate_pure, rdp_pure
from protocols.privacy.renyi import ORDERS, net_epsilon


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 4.0, 8.0, 24.0])
def test_the_divergence_is_that_of_two_coins(epsilon: float) -> None:
    high = 1.0 / (1.0 + math.exp(-epsilon))
    coins = np.log([high, 1.0 - high]), np.log([1.0 - high, high])
    for order, found in zip(ORDERS, rdp_pure(ORDERS, epsilon), strict=True):
        terms = order * coins[0] + (1.0 - order) * coins[1]
        exact = float(np.logaddexp.reduce(terms)) / (order - 1.0)
        assert exact * (1.0 - 1e-9) - 1e-9 <= found <= epsilon
        assert found <= exact * (1.0 + 1e-6) + 1e-9


@pytest.mark.parametrize("categories", [2, 3, 10])
def test_no_randomiser_of_ours_diverges_further(categories: int) -> None:
    mechanism = RandomisedResponse(categories, 2)
    one, other = mechanism.law(0), mechanism.law(1)
    for order in (1.5, 2.0, 8.0, 64.0):
        total = math.fsum(
            float(one[y]) ** order * float(other[y]) ** (1.0 - order) for y in one
        )  # fmt: skip
        assert math.log(total) / (order - 1.0) <= rdp_pure([order], 2.0)[0] * (1.0 + 1e-9)


@pytest.mark.parametrize(("target", "releases"), [(8.0, 1), (8.0, 50), (1.0, 3), (0.5, 1000)])
def test_so_many_messages_fill_the_target_and_no_more(target: float, releases: int) -> None:
    one = float(calibrate_pure(target, 1e-5, releases))
    spent = net_epsilon(releases * Pure(one).rdp(1), 1e-5, tails=0.0)[0]
    assert 0.98 * target < spent <= target
    more = net_epsilon(releases * rdp_pure(ORDERS, 1.01 * one), 1e-5, tails=0.0)[0]
    assert more > target or 1.01 * one > target


def test_renyi_composition_beats_adding_up_over_many_messages() -> None:
    assert 100 * float(calibrate_pure(1.0, 1e-6, 100)) > 1.5


def test_others_noise_adds_nothing() -> None:
    assert np.array_equal(Pure(1.0).rdp(1), Pure(1.0).rdp(100))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_what_is_no_epsilon_is_refused(bad: float) -> None:
    with pytest.raises(PolicyError, match="finite number above 0"):
        rdp_pure(ORDERS, bad)


def test_a_target_that_no_message_fits_is_refused() -> None:
    with pytest.raises(PolicyError, match="No message"):
        calibrate_pure(1e-6, 1e-5, 10)
