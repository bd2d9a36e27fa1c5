"""Composition held against exact privacy loss distributions: Rényi above, basic above both."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from crypto.ldp import Piecewise, RandomisedResponse, UnaryEncoding
from crypto.ldp_vectors import LEVELS
from protocols.disclosures.noised.randomiser import plan_own
from protocols.privacy.accounting import Noise
from protocols.privacy.pure import Pure
from protocols.privacy.renyi import epsilon
from tests.protocols.pld import composed_epsilon, gaussian_pair, laplace_pair, pairs_of
from tests.protocols.test_own_noise import SAY, Said, own
from tests.protocols.test_renyi import KNOWN
from tests.protocols.toys import toy_plan

DELTA = 1e-5


def law_of(which: str, one: float) -> Any:
    """Return both laws of a mechanism of ε = `one`, at two values that are furthest apart."""
    if which == "discrete_laplace":
        return laplace_pair(64, 64 / one)
    mechanism, values = {
        "response": (RandomisedResponse(5, one), (0, 1)),
        "unary": (UnaryEncoding(3, one), ((0,), (1,))),
        "piecewise": (Piecewise(1.0, one, levels=8), (-8, 8)),
    }[which]
    return pairs_of((mechanism.law(values[0]), mechanism.law(values[1])))


@pytest.mark.parametrize("row", KNOWN["discrete_laplace"])
def test_the_oracle_agrees_with_dp_accountings_laplace(row: Any) -> None:
    pair = laplace_pair(row["sensitivity"], row["scale"])
    step = max(1e-4, row["sensitivity"] / row["scale"] / 200)
    upper, lower = (
        composed_epsilon(*pair, row["releases"], row["delta"], side, step)
        for side in ("upper", "lower")
    )
    slack = 2e-4 * row["releases"] + 1e-6
    assert lower - slack <= row["epsilon_pld"] <= upper + slack


@pytest.mark.parametrize("which", ["response", "unary", "piecewise", "discrete_laplace"])
@pytest.mark.parametrize(("one", "releases"), [(0.1, 1), (0.1, 100), (0.5, 30), (2.0, 10)])
def test_renyi_is_above_the_exact_distribution_of_pure_mechanisms(
    which: str, one: float, releases: int
) -> None:
    pair = law_of(which, one)
    lower = composed_epsilon(*pair, releases, DELTA, "lower")
    upper = composed_epsilon(*pair, releases, DELTA, "upper")
    renyi = epsilon(releases * Pure(one).rdp(1), DELTA)[0]
    assert lower <= upper <= lower + 2.1e-3 * releases
    assert upper <= releases * one * (1 + 1e-6) + 1e-3 * releases
    assert lower < renyi
    basic = releases * one
    if releases >= 30:  # of many messages Rényi says less than adding up
        assert renyi < 0.95 * basic
    elif one == 2.0:  # of few with a large epsilon it says as much, and no more
        assert renyi == pytest.approx(basic, rel=1e-5)
    # Control: of half as much noise the exact distribution is above what is claimed.
    weak = law_of(which, 2 * one)
    if releases >= 30:
        assert composed_epsilon(*weak, releases, DELTA, "lower") > renyi


@pytest.mark.parametrize(("sigma", "releases"), [(40.0, 1), (40.0, 30), (160.0, 10)])
def test_renyi_is_above_the_exact_distribution_of_gaussian_noise(
    sigma: float, releases: int
) -> None:
    apart = 32
    pair = gaussian_pair(apart, sigma)
    lower, upper = (
        composed_epsilon(*pair, releases, DELTA, side, 5e-3) for side in ("lower", "upper")
    )
    noise = Noise("discrete_gaussian", sigma, float(apart), float(apart), 1)
    renyi = epsilon(releases * noise.rdp(1), DELTA)[0]
    basic = releases * epsilon(noise.rdp(1), DELTA / releases)[0]
    assert lower <= upper < renyi < 1.25 * lower
    assert renyi <= basic


@pytest.mark.parametrize("mechanism", ["sqkr", "discrete_laplace"])
def test_a_plans_epsilons_stand_in_this_order(mechanism: str) -> None:
    """PLD below Rényi below basic, of what the plan really says of its run."""
    policy = own(alone=mechanism, noise={"epsilon": 8.0})
    plan = toy_plan(SAY, policy, bfv=None, rounds=30)
    item = plan.item("say.up.NOISED")
    assert item.noise is not None and item.times == 30
    said = re.search(
        r"epsilon <= ([\d.]+), .*?by Renyi composition, ([\d.]+) by basic", plan.budget
    )
    assert said is not None
    renyi, basic = float(said[1]), float(said[2])
    one = float(item.noise.pure)
    if mechanism == "sqkr":
        told = RandomisedResponse(2, one)
        pair = pairs_of((told.law(0), told.law(1)))
    else:
        pair = laplace_pair(2 * LEVELS, float(item.noise.sigma))
    exact = composed_epsilon(*pair, 30, DELTA)
    assert exact < renyi <= 8.0 < basic
    assert renyi < 1.3 * exact + 0.1
    assert plan_own(policy.chain(Said.disclosure), [(4, 30)], 5, policy.smallest_cohort)


def test_control_a_distribution_that_is_cut_off_would_be_below() -> None:
    """What the oracle leaves out counts in full; without that it would flatter."""
    pair = np.array([[1 - 1e-6, 1e-6], [1 - 1e-12, 1e-12]])
    assert composed_epsilon(*pair, 1, 1e-8) > 10.0
    assert composed_epsilon(*pair[:, :1], 1, 1e-8) == 0.0
    rare = np.array([[1 - 1e-17, 1e-17], [1 - 1e-30, 1e-30]])
    assert composed_epsilon(*rare, 1, 1e-18) > 1e-18 and composed_epsilon(*rare, 1, 1e-16) == 0.0
