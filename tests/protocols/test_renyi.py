"""Formulas of accounting: exact divergences, dp-accounting's answers, worked examples, controls."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from crypto.noise import DiscreteGaussian, DiscreteLaplace
from crypto.quantiser import Grid
from crypto.samplers import Stream
from protocols.errors import PolicyError
from protocols.privacy.renyi import (
    ORDERS,
    epsilon,
    gaussian_epsilon,
    rdp_distributed_gaussian,
    rdp_laplace,
    rounded_l1,
    rounded_sensitivity,
    tau,
)
from tests.crypto.known import vectors
from tests.protocols.laws_of_noise import law

ALPHA = np.array(ORDERS)
KNOWN = vectors("dp_accounting.json")
USUAL = math.exp(-0.5)  # beta
INTEGERS = [*map(float, range(2, 129)), 256.0]  # the orders of the authors' code


def divergence(probabilities: np.ndarray, shift: int, alpha: float) -> float:
    """Return the exact Rényi divergence of a law from itself, `shift` steps further."""
    p, q = np.log(probabilities[shift:]), np.log(probabilities[: probabilities.size - shift])
    return float(special.logsumexp(alpha * p - (alpha - 1) * q) / (alpha - 1))


# --- sensitivity (O14)


def test_o14_rounded_sensitivity_of_the_worked_example():
    """At 1/50 C per step and 92,231 weights rounding inflates by 3.2."""
    assert rounded_sensitivity(50, 92_231, USUAL) / 50 == pytest.approx(3.2, abs=0.05)
    assert rounded_sensitivity(50, 92_231, 0) == 50 + math.sqrt(92_231)
    assert rounded_sensitivity(1e6, 4, 1e-300) == 1e6 + 2  # the first term is the smaller
    assert rounded_l1(3.0, 100) == 9.0
    assert rounded_l1(30.0, 100) == 300.0


@pytest.mark.parametrize("beta", [USUAL, 0.2, 0.9])
@pytest.mark.parametrize("entry", [0.5, 1.5, 0.1])
def test_o14_one_rounding_in_1_over_1_minus_beta_fits_and_all_fit_the_first_term(beta, entry):
    d, grid = 400, Grid(127.0, 8)
    clipped = math.sqrt(d) * entry
    norms = [
        float(np.linalg.norm(grid.quantise(np.full(d, entry), Stream(key.to_bytes(32, "big")))))
        for key in range(600)
    ]
    assert max(norms) <= rounded_sensitivity(clipped, d, 0)
    share = np.mean(np.array(norms) <= rounded_sensitivity(clipped, d, beta))
    assert share >= 1 - beta - 0.02
    if entry == 0.5:  # control: without the variance of rounding nothing fits
        assert np.mean(np.array(norms) <= clipped * 1.1) == 0


# --- the divergence of sums (O18)


@pytest.mark.parametrize("shares", [2, 3, 5, 20])
@pytest.mark.parametrize("sigma", [0.5, 0.6, 0.8, 1.0])
def test_o18_tau_bounds_how_far_a_sum_is_from_one_discrete_gaussian(sigma, shares):
    x, total = law(DiscreteGaussian, sigma, shares)
    near = np.abs(x) <= 8 * sigma * math.sqrt(shares)
    one = np.exp(-(x.astype(float) ** 2) / (2 * sigma**2 * shares))
    gap = np.log(total / (one / one.sum()))[near]
    assert gap.max() - gap.min() <= tau(sigma, shares)
    assert 2 * np.abs(gap).max() <= tau(sigma, shares)
    assert np.abs(gap).max() > 1e-4 * tau(sigma, shares), "the bound says nothing"
    assert tau(sigma, 1) == 0.0


def test_o18_controls_without_tau_or_with_a_steeper_one_the_bound_is_too_low():
    for sigma, shares in [(0.5, 2), (0.5, 20), (0.6, 5)]:
        _, total = law(DiscreteGaussian, sigma, shares)
        assert divergence(total, 1, 1.05) > 1.01 * 1.05 / 2 / (sigma**2 * shares)
    for sigma in (0.5, 0.6, 0.8):
        x, total = law(DiscreteGaussian, sigma, 2)
        near = np.abs(x) <= 8 * sigma
        gap = np.ptp((np.log(total) + x.astype(float) ** 2 / (4 * sigma**2))[near])
        assert 10 * math.exp(-4 * math.pi**2 * sigma**2 / 2) < gap <= tau(sigma, 2)


@pytest.mark.parametrize("shares", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("sigma", [0.5, 0.6, 1.0, 3.0])
@pytest.mark.parametrize("shift", [1, 2, 5])
def test_o18_distributed_gaussian_is_never_below_the_exact_divergence(sigma, shares, shift):
    _, total = law(DiscreteGaussian, sigma, shares)
    orders = [1.05, 1.5, 2.0, 4.0]
    bound = rdp_distributed_gaussian(
        orders, sigma_local=sigma, honest=shares, l2=shift, l1=shift, dimension=1
    )
    exact = np.array([divergence(total, shift, alpha) for alpha in orders])
    assert np.all(exact <= bound * (1 + 1e-9))
    if sigma == 3.0:
        assert np.all(exact > 0.99 * bound)


def test_o18_each_of_the_three_bounds_can_be_the_smallest():
    found = set()
    for sigma, l2, d, alpha in [(0.5, 1.0, 1, 50.0), (0.6, 4.0, 50, 1.1), (0.6, 3.0, 9, 1.1)]:
        for l1 in (l2, rounded_l1(l2, d)):
            near, far, t = l2 / sigma / 2**0.5, l1 / sigma / 2**0.5, tau(sigma, 2)
            three = (
                alpha / 2 * near**2 + t * d,
                alpha / 2 * (near**2 + 2 * far * t + t**2 * d),
                alpha / 2 * (near + math.sqrt(d) * t) ** 2,
            )
            got = rdp_distributed_gaussian(
                [alpha], sigma_local=sigma, honest=2, l2=l2, l1=l1, dimension=d
            )
            assert got[0] == pytest.approx(min(three), rel=1e-12)
            found.add(int(np.argmin(three)))
    assert {0, 1} <= found


# --- Laplace


@pytest.mark.parametrize("scale", [0.7, 4.0, 30.0])
def test_o18_laplace_is_never_below_the_exact_divergence_of_any_split(scale):
    _, one = law(DiscreteLaplace, scale)
    for shifts in ([1], [5], [3, 4], [1] * 9, [20, 1]):
        l2, l1 = math.hypot(*shifts), sum(shifts)
        for alpha in (1.1, 2.0, 8.0):
            exact = math.fsum(divergence(one, shift, alpha) for shift in shifts)
            bound = rdp_laplace([alpha], scale=scale, l2=l2, l1=l1)[0]
            assert exact <= bound * (1 + 1e-9)
    assert rdp_laplace([1e6], scale=scale, l2=3.0, l1=3.0)[0] == 3.0 / scale


# --- epsilon


def test_zcdp_rows_of_the_worked_example():
    """ρ = 0.5 gives 4.73 (5.30 by the simple formula), ρ = 1.5 gives 9.01."""
    assert epsilon(0.5 * ALPHA, 1e-5)[0] == pytest.approx(4.73, abs=0.005)
    assert 0.5 + 2 * math.sqrt(0.5 * math.log(1e5)) == pytest.approx(5.30, abs=0.005)
    assert epsilon(1.5 * ALPHA, 1e-5)[0] == pytest.approx(9.01, abs=0.005)


@pytest.mark.parametrize(
    ("absent", "stated"), [(0, 13.2), (2, 14.1), (10, 20.7), (18, 64.2), (19, 109.0)]
)
def test_o18_honest_share_rows_of_the_worked_example(absent, stated):
    """These five rows are exact for *continuous* noise (μ-GDP).

    By Rényi divergences, which is what we claim, they are 14.1, 15.1, 22.0, 67.4 and 114.2: up to
    7 % more.
    """
    mu = math.sqrt(100) / (4 * math.sqrt((20 - absent) / 20))
    exact = gaussian_epsilon(mu, 1e-5)
    assert exact == pytest.approx(stated, abs=0.5 if stated == 109 else 0.05)
    assert exact < epsilon(mu**2 / 2 * ALPHA, 1e-5)[0] < 1.08 * exact


@pytest.mark.parametrize(("grid", "stated"), [(50, 74.5), (500, 15.1), (5000, 14.2)])
def test_o18_grid_rows_of_the_worked_example(grid, stated):
    """92,231 weights, beta = e^(-1/2), *integer* orders as in the authors' code.

    With fractional orders the first row is 68.9: its best order is 1.6.
    """
    d = 92_231
    l2 = rounded_sensitivity(grid, d, USUAL)
    release = {"honest": 20, "l2": l2, "l1": rounded_l1(l2, d), "dimension": d}
    release["sigma_local"] = 4 * grid / math.sqrt(20)
    coarse = 100 * rdp_distributed_gaussian(INTEGERS, **release)
    assert epsilon(coarse, 1e-5, INTEGERS)[0] == pytest.approx(stated, abs=0.05)
    assert epsilon(100 * rdp_distributed_gaussian(ORDERS, **release), 1e-5)[0] <= stated + 0.05


@pytest.mark.parametrize("row", KNOWN["gaussian"]["rows"])
def test_gaussian_answers_of_dp_accounting(row):
    mu = math.sqrt(row["releases"]) / row["multiplier"]
    orders = KNOWN["gaussian"]["orders"]
    found, order = epsilon(mu**2 / 2 * np.array(orders), row["delta"], orders)
    assert found == pytest.approx(row["epsilon_rdp"], rel=1e-9)
    assert order == row["order"]
    assert gaussian_epsilon(mu, row["delta"]) == pytest.approx(row["epsilon_pld"], rel=1e-3)


@pytest.mark.parametrize("row", KNOWN["discrete_gaussian"])
def test_discrete_gaussian_is_above_and_close_to_dp_accountings_distribution(row):
    one = rdp_distributed_gaussian(
        ORDERS,
        sigma_local=row["sigma"],
        honest=1,
        l2=row["sensitivity"],
        l1=row["sensitivity"],
        dimension=1,
    )
    found = epsilon(row["releases"] * one, row["delta"])[0]
    assert row["epsilon_pld"] < found < 1.13 * row["epsilon_pld"]


@pytest.mark.parametrize("row", KNOWN["discrete_laplace"])
def test_discrete_laplace_is_above_and_close_to_dp_accountings_distribution(row):
    size = row["sensitivity"]
    one = rdp_laplace(ORDERS, scale=row["scale"], l2=size, l1=size)
    found = epsilon(row["releases"] * one, row["delta"])[0]
    # Pure bounds compose to at most their sum, which dp-accounting's distribution knows too.
    assert row["epsilon_pld"] < found * (1 + 1e-4)
    assert found < 1.2 * max(row["epsilon_pld"], row["releases"] * size / row["scale"])


def test_dp_accounting_itself_where_it_is_installed():
    dp_accounting = pytest.importorskip("dp_accounting")
    rdp = pytest.importorskip("dp_accounting.rdp")
    for multiplier, releases, delta in [(4.0, 100, 1e-5), (0.9, 7, 1e-7), (30.0, 40, 1e-6)]:
        accountant = rdp.RdpAccountant(orders=ORDERS)
        accountant.compose(dp_accounting.GaussianDpEvent(multiplier), releases)
        theirs, order = accountant.get_epsilon_and_optimal_order(delta)
        assert epsilon(releases / (2 * multiplier**2) * ALPHA, delta) == (
            pytest.approx(theirs, rel=1e-12),
            order,
        )


def test_the_orders_cost_little_against_a_fine_grid():
    fine = 1 + np.exp(np.linspace(math.log(1e-3), math.log(3e4), 50_000))
    for delta in (1e-3, 1e-5, 1e-8):
        for rho in np.geomspace(1e-6, 200, 60):
            best = epsilon(rho * fine, delta, fine)[0]
            if 0.01 <= best <= 500:
                assert best * (1 - 1e-6) <= epsilon(rho * ALPHA, delta)[0] < 1.003 * best


def test_epsilon_fails_closed():
    nothing = np.zeros(len(ORDERS))
    assert 0 <= epsilon(nothing, 1e-5)[0] < 2e-4
    assert epsilon(nothing, 0.9)[0] == 0.0
    assert epsilon(nothing + np.nan, 1e-5)[0] == math.inf
    assert epsilon(nothing + np.inf, 1e-5)[0] == math.inf
    assert epsilon(nothing - 1.0, 1e-5)[0] == math.inf
    for delta in (0.0, -1e-9, 1.0, math.nan):
        with pytest.raises(PolicyError, match="Delta"):
            epsilon(nothing, delta)
    with pytest.raises(PolicyError, match="one divergence"):
        epsilon(nothing[1:], 1e-5)
    for orders in ([1.0], [0.5], [], [math.inf], [math.nan]):
        with pytest.raises(PolicyError, match="above 1"):
            epsilon([0.0] * len(orders), 1e-5, orders)


def test_arguments_outside_their_range_are_refused():
    good = {"sigma_local": 8.0, "honest": 3, "l2": 1.0, "l1": 1.0, "dimension": 2}
    for name, value in [
        ("sigma_local", 0.49),
        ("sigma_local", math.nan),
        ("honest", 0),
        ("dimension", 0),
        ("l2", 0.0),
        ("l1", math.inf),
    ]:
        with pytest.raises(PolicyError):
            rdp_distributed_gaussian(ORDERS, **{**good, name: value})
    for c, d, beta in [(0, 1, 0.5), (1, 0, 0.5), (1, 1, 1.0), (1, 1, -0.1), (math.inf, 1, 0.5)]:
        with pytest.raises(PolicyError):
            rounded_sensitivity(c, d, beta)
    for broken in ({"scale": 0.0}, {"l2": -1.0}, {"l1": math.nan}):
        with pytest.raises(PolicyError):
            rdp_laplace(ORDERS, **{"scale": 8.0, "l2": 1.0, "l1": 1.0, **broken})
    for mu, delta in ((0.0, 1e-5), (1.0, 0.0), (1.0, 1.0)):
        with pytest.raises(PolicyError):
            gaussian_epsilon(mu, delta)
    assert gaussian_epsilon(1e-9, 0.5) == 0.0
