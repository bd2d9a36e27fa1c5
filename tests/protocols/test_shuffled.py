"""What shuffling would buy: published numbers, exact small cases, and who may count with it."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from protocols.errors import PolicyError
from protocols.policy.policy import PRESETS
from protocols.privacy.shuffled import (
    closed_epsilon,
    numerical_delta,
    numerical_epsilon,
    run_epsilon,
)


def exact_delta(ones: tuple[int, ...], odds: Fraction, bound: Fraction) -> Fraction:
    """Return, exactly, δ at e^ε = `bound` of shuffled binary randomised response.

    Client 1 says 1 or 0 and the others say `ones`; whoever reads learns how many said 1.
    """
    keep = odds / (1 + odds)
    laws = []
    for mine in (1, 0):
        law: Counter[int] = Counter()
        truth = (mine, *ones)
        for said in product((0, 1), repeat=len(truth)):
            chance = math.prod(
                (keep if a == b else 1 - keep for a, b in zip(truth, said, strict=True)),
                start=Fraction(1),
            )
            law[sum(said)] += chance  # type: ignore[assignment]
        laws.append(law)
    one, other = laws
    return max(
        sum((max(Fraction(0), a[k] - bound * b[k]) for k in a), Fraction(0))
        for a, b in ((one, other), (other, one))
    )


def test_the_authors_published_numbers() -> None:
    """Their example: 10^5 messages of ε₀ = 4 at δ = 10^-6 (apple/ml-shuffling-amplification)."""
    closed = closed_epsilon(4.0, 100_000, 1e-6)
    assert closed == pytest.approx(0.5378040242374512, rel=1e-9)
    assert numerical_delta(4.0, 100_000, 0.172790550755978) <= 1e-6
    assert numerical_delta(4.0, 100_000, 0.1675385583317841) > 1e-6


@pytest.mark.parametrize("odds", [2, 3, 8])
@pytest.mark.parametrize("ones", [(0, 0, 0), (1, 0, 1, 0), (0,) * 6, (1,) * 6])
def test_no_batch_of_a_real_randomiser_exceeds_the_numerical_bound(
    odds: int, ones: tuple[int, ...]
) -> None:
    for bound in (Fraction(5, 4), Fraction(3, 2), Fraction(odds) * Fraction(9, 10)):
        exact = exact_delta(ones, Fraction(odds), bound)
        upper = numerical_delta(math.log(odds), len(ones) + 1, math.log(bound))
        assert float(exact) <= upper * (1 + 1e-9) + 1e-15
    # Control: with a hundred others more, the bound does not hold for so few.
    few = exact_delta((0, 0), Fraction(odds), Fraction(5, 4))
    assert numerical_delta(math.log(odds), 200, math.log(1.25)) < float(few)


def test_the_closed_form_is_above_the_numerical_bound_and_above_the_theorem() -> None:
    for local, honest in ((0.1, 500), (0.5, 2_000), (1.0, 2_000), (2.0, 5_000), (1.5, 943)):
        closed = closed_epsilon(local, honest, 1e-5)
        if closed is None:
            continue
        assert numerical_delta(local, honest, closed) <= 1e-5
        power, stars = math.exp(local), 1e-5
        most = 8 * math.sqrt(power * math.log(4 / stars) / honest) + 8 * power / honest
        theorem = math.log1p((power - 1) / (power + 1) * most)
        assert min(local, theorem) <= closed <= local
    assert closed_epsilon(1.0, 2_000, 1e-5) is not None


@pytest.mark.parametrize("honest", [2, 5, 50, 195])
def test_below_196_honest_clients_the_closed_form_says_nothing(honest: int) -> None:
    assert closed_epsilon(1e-6, honest, 1e-5) is None
    limit = math.log(943 / (16 * math.log(2 / 1e-5)))
    assert closed_epsilon(limit + 1e-9, 943, 1e-5) is None


def test_every_message_counts_once_and_more_others_hide_better() -> None:
    found = [numerical_epsilon(1.0, honest, 1e-5) for honest in (2, 50, 200)]
    assert found == sorted(found, reverse=True) and 0.999 < found[0] <= 1.0 and found[-1] < 0.8
    count = stats.binom(199, 1 / (1 + math.e))
    told = np.arange(201)
    one = (math.e * count.pmf(told - 1) + count.pmf(told)) / (1 + math.e)
    none = (count.pmf(told - 1) + math.e * count.pmf(told)) / (1 + math.e)
    lower = np.maximum(one - math.exp(found[2] / 2) * none, 0).sum()
    assert lower > 1e-5  # half of the bound is false for a real batch, so it is no loose one


@pytest.mark.parametrize("bad", [(0.0, 9, 0.1), (math.inf, 9, 0.1), (1.0, 1, 0.1), (1.0, 9, 0.0)])
def test_what_cannot_be_counted_is_refused(bad: tuple[float, int, float]) -> None:
    for function in (closed_epsilon, numerical_epsilon):
        with pytest.raises(PolicyError):
            function(*bad)


def test_batches_of_a_run_are_added_up_and_samplers_are_paid() -> None:
    one = closed_epsilon(0.5, 2_000, 1e-5 * (1 - 2.0**-20) / 4)
    assert one is not None and run_epsilon(0.5, 2_000, 1e-5, 4) == 4 * one
    assert run_epsilon(0.5, 2_000, 1e-5, 4, tails=1e-70) == 4 * one
    assert run_epsilon(0.5, 2_000, 1e-5, 4, tails=1e-10) is None  # control: tails beyond delta
    for honest, batches in ((1, 1), (0, 1), (50, 1), (2_000, 0)):
        assert run_epsilon(0.5, honest, 1e-5, batches) is None


def test_o23_only_plans_and_accounts_count_with_it_and_by_the_closed_form() -> None:
    """No mixture, attack, budget or report reads these bounds; the numerical one nobody does."""
    texts = {
        path.as_posix(): path.read_text()
        for floor in ("secure_fgl", "audits", "algorithms", "protocols", "crypto")
        for path in Path(floor).rglob("*.py")
    }
    readers = {path for path, text in texts.items() if "privacy.shuffled" in text}
    assert readers == {"protocols/privacy/own_target.py", "audits/accounting/rows.py"}
    assert not any("numerical_" in texts[path] for path in readers)
    for policy in PRESETS.values():
        for disclosure, chain in policy.rules.items():
            assert disclosure == "MIXED" or all(guard.guard != "relay" for guard in chain)
