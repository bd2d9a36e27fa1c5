"""Noise of a run: calibration, head-room and views, each beside what would be too little."""

from __future__ import annotations

import math

import numpy as np
import pytest

from crypto.noise import MAX_SCALE, TAIL_BITS, DiscreteGaussian, DiscreteLaplace
from protocols.errors import PolicyError
from protocols.privacy import accounting, renyi
from protocols.privacy.accounting import (
    MIN_LOCAL_SCALE,
    ORDERS,
    WRAP,
    Noise,
    calibrate,
    epsilon,
    margin,
    net_epsilon,
    tails,
)
from tests.protocols.laws_of_noise import law

ALPHA = np.array(ORDERS)

RUN = {"delta": 1e-5, "releases": 100, "l2": 600.0, "l1": 40_000.0, "dimension": 10_000}


def test_o19_calibrated_noise_is_just_enough():
    for mechanism in ("discrete_gaussian", "discrete_laplace"):
        scale = calibrate(epsilon=5.0, honest=10, tails=2.0**-200, mechanism=mechanism, **RUN)
        spent = []
        for factor in (1.0, 1 - 1e-5):
            noise = Noise(mechanism, scale * factor, RUN["l2"], RUN["l1"], RUN["dimension"])
            rdp = 100 * noise.rdp(10)
            spent.append(net_epsilon(rdp, RUN["delta"], tails=2.0**-200)[0])
        assert spent[0] <= 5.0 < spent[1]
    assert scale > 100  # Laplace


def test_o18_calibration_pays_for_the_honest_minimum():
    few, many = (calibrate(epsilon=5.0, honest=n, tails=0.0, **RUN) for n in (4, 16))
    assert few == pytest.approx(2 * many, rel=1e-5)


def test_o19_wrap_and_tails_come_out_of_delta_first():
    rdp = 0.05 * ALPHA
    plain = epsilon(rdp, 1e-5)[0]
    assert net_epsilon(rdp, 1e-5, tails=0.0)[0] >= epsilon(rdp, 1e-5 - WRAP)[0] > plain
    found, _ = net_epsilon(rdp, 1e-5, tails=1e-7)
    left = 1e-5 - WRAP - (1 + math.exp(found)) * 1e-7
    assert epsilon(rdp, left)[0] <= found < 1.0001 * epsilon(rdp, left)[0]
    assert net_epsilon(rdp, 1e-5, tails=1e-5)[0] == math.inf
    assert net_epsilon(rdp, WRAP / 2, tails=0.0)[0] == math.inf
    assert net_epsilon(100 * ALPHA, 1e-5, tails=1e-9)[0] == math.inf
    with pytest.raises(PolicyError):
        net_epsilon(rdp, 1e-5, tails=math.nan)


def test_o19_the_samplers_tails_leave_room_for_one_honest_client():
    """C.4's last row, 109, survives (1 + e^ε) η only because the table is 255 bits wide."""
    draws = 92_231 * 100
    assert tails(honest=1, dimension=92_231, releases=100) == draws * 2.0**-TAIL_BITS
    rdp = 100 * ALPHA / 2 * 20 / 16
    assert net_epsilon(rdp, 1e-5, tails=draws * 2.0**-TAIL_BITS)[0] < 115
    assert net_epsilon(rdp, 1e-5, tails=draws * 2.0**-128)[0] == math.inf


def test_o19_refusals_say_which_way_to_change_the_grid():
    with pytest.raises(PolicyError, match="below 8") as refused:
        calibrate(epsilon=5.0, honest=10, tails=0.0, **{**RUN, "l2": 0.5, "l1": 0.5})
    assert "finer grid" in str(refused.value)
    with pytest.raises(PolicyError, match="No noise") as refused:
        calibrate(epsilon=5.0, honest=10, tails=0.0, **{**RUN, "l2": MAX_SCALE})
    assert "coarser grid" in str(refused.value)
    with pytest.raises(PolicyError, match="No noise"):
        calibrate(epsilon=5.0, honest=10, tails=1e-4, **RUN)
    for broken in ({"epsilon": 0.0}, {"releases": 0}, {"honest": 0}, {"l2": math.nan}):
        with pytest.raises(PolicyError):
            calibrate(**{"epsilon": 5.0, "honest": 10, "tails": 0.0, **RUN, **broken})


@pytest.mark.parametrize("clients", [1, 2, 4])
@pytest.mark.parametrize(
    ("mechanism", "kind"),
    [("discrete_gaussian", DiscreteGaussian), ("discrete_laplace", DiscreteLaplace)],
)
def test_o19_head_room_holds_the_noise_and_a_third_less_does_not(mechanism, kind, clients):
    x, total = law(kind, 8.0, clients)
    for dimension, releases in ((1, 1), (1000, 30)):
        room = margin(mechanism, 8.0, clients=clients, dimension=dimension, releases=releases)
        wrap = dimension * releases * total[np.abs(x) > room].sum()
        assert wrap <= WRAP
        assert dimension * releases * total[np.abs(x) > room / 1.5].sum() > WRAP


def spent(noise: Noise, honest: list[int]) -> float:
    """Return epsilon of releases with so many unknown shares each, at delta 1e-5."""
    return net_epsilon(sum(noise.rdp(count) for count in honest), 1e-5, tails=0.0)[0]


def test_o18_fewer_unknown_shares_cost_more():
    """By the provable bound; a continuous Gaussian's would be smaller."""
    noise = Noise("discrete_gaussian", 4 * 5000 / math.sqrt(20), 5000.0, 5000.0**2, 92_231)
    aggregator, participant, all_but_one = (spent(noise, [n] * 100) for n in (20, 19, 1))
    assert aggregator == pytest.approx(14.13, abs=0.01)
    assert all_but_one == pytest.approx(114.2, abs=0.1)
    assert aggregator < participant < all_but_one
    assert aggregator < spent(noise, [20] * 99 + [10]) < 1.05 * aggregator
    with pytest.raises(PolicyError):
        noise.rdp(0)


def test_o18_laplace_shares_of_others_earn_nothing():
    noise = Noise("discrete_laplace", 40.0, 100.0, 1000.0, 500)
    assert np.array_equal(noise.rdp(1), noise.rdp(50))


def test_o19_counts_and_scales_outside_their_range_are_refused():
    good = {"clients": 3, "dimension": 1, "releases": 1}
    for name in good:
        with pytest.raises(PolicyError):
            margin("discrete_gaussian", 8.0, **{**good, name: 0})
    for mechanism in ("discrete_gaussian", "discrete_laplace"):
        with pytest.raises(PolicyError):
            margin(mechanism, math.nan, **good)
        with pytest.raises(PolicyError):
            Noise(mechanism, 8.0, 1.0, 1.0, 1).rdp(0)
    for name in ("honest", "dimension", "releases"):
        with pytest.raises(PolicyError):
            tails(**{"honest": 3, "dimension": 1, "releases": 1, name: 0})
    assert MIN_LOCAL_SCALE == 8.0
    assert all(getattr(accounting, name) is getattr(renyi, name) for name in renyi.__all__)
