"""The one-run bound against the figures that its paper prints, and against its own null."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from audits.attacks._shared.records_asked import SHARES, bound_of, one_run_bound, p_value

PRINTED = [
    # Steinke, Nasr and Jagielski, arXiv:2305.08846v1: Appendix D (pages 45 and 46) and section 7
    # (page 28, figure 11); canaries, guesses, right ones, delta, and epsilon as printed.
    (100, 100, 75, 0.0, 0.702),
    (100, 100, 75, 1e-4, 0.699),
    (1000, 100, 75, 1e-4, 0.673),
    (100_000, 1510, 1439, 1e-5, 2.675),
]


@pytest.mark.parametrize(("records", "guesses", "right", "delta", "epsilon"), PRINTED)
def test_the_bounds_that_the_paper_prints(
    records: int, guesses: int, right: int, delta: float, epsilon: float
) -> None:
    """To one in the last digit: the paper rounds some figures and cuts others."""
    assert one_run_bound(records, guesses, right, delta) == pytest.approx(epsilon, abs=1e-3)


def test_the_probability_that_the_paper_prints() -> None:
    assert p_value(100, 100, 75, math.log(3), 0.0) == pytest.approx(0.553, abs=1e-3)


@pytest.mark.parametrize("delta", [0.0, 1e-5, 1e-2])
@pytest.mark.parametrize(
    ("records", "guesses", "right"), [(50, 20, 15), (200, 200, 130), (9, 9, 9)]
)
def test_the_formula_term_by_term(records: int, guesses: int, right: int, delta: float) -> None:
    """As Appendix D writes it, one probability after the other."""
    for epsilon in (0.0, 0.4, 2.0):
        law = stats.binom(guesses, 1 / (1 + math.exp(-epsilon)))
        beta = sum(law.pmf(n) for n in range(right, guesses + 1))
        between = [
            sum(law.pmf(right - j) for j in range(1, i + 1)) / i for i in range(1, right + 1)
        ]
        whole = min(1.0, beta + 2 * records * delta * max(between))
        assert p_value(records, guesses, right, epsilon, delta) == pytest.approx(whole, rel=1e-9)


@pytest.mark.parametrize("guesses", [16, 500])
def test_right_guesses_of_all_give_the_closed_form(guesses: int) -> None:
    """q^r = error; nothing proves more, so this is the ceiling."""
    chance = 0.05 ** (1 / guesses)
    assert one_run_bound(guesses, guesses, guesses, 0.0) == pytest.approx(
        math.log(chance / (1 - chance)), abs=1e-5
    )


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 3.0])
def test_randomised_response_is_falsified_in_one_run_of_twenty_at_most(epsilon: float) -> None:
    """Exactly: over all numbers of right guesses, by how likely each is. It is tight to a half."""
    law = stats.binom(100, 1 / (1 + math.exp(-epsilon)))
    wrong = sum(law.pmf(v) for v in range(101) if one_run_bound(100, 100, v, 0.0) > epsilon)
    assert 0.02 < wrong <= 0.05
    weaker = stats.binom(100, 1 / (1 + math.exp(-2.0 * epsilon)))  # the control: a broken claim
    caught = sum(weaker.pmf(v) for v in range(101) if one_run_bound(100, 100, v, 0.0) > epsilon)
    assert caught > 2 * wrong


def test_scores_are_guessed_from_both_ends_with_the_error_shared_out() -> None:
    coins = np.arange(100) % 2 == 0
    found = bound_of([coins * 1.0], [coins], 0.0)
    assert found.epsilon == found.ceiling == one_run_bound(100, 100, 100, 0.0, error=0.05 / 3)
    assert found.trials == 100 and len(SHARES) == 3
    surest = np.where(np.arange(100) < 20, np.where(coins, 9.0, -9.0), 0.0)
    surest[20:] = np.random.default_rng(3).normal(size=80)
    some = bound_of([surest], [coins], 0.0)  # few are known, those surely
    assert some.epsilon == pytest.approx(one_run_bound(100, 20, 20, 0.0, error=0.05 / 3))
    none = bound_of([np.random.default_rng(5).normal(size=100)], [coins], 0.0)
    assert none.epsilon < 0.3 < none.ceiling


def test_what_are_no_counts_of_guesses_is_refused() -> None:
    for wrong in ((10, 11, 5), (10, 5, 6), (10, 5, -1)):
        with pytest.raises(ValueError, match="guesses"):
            p_value(*wrong, 1.0, 0.0)
