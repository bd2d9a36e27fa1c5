"""The statistics of attacks and the verdict table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from audits.attacks import NotApplicable
from audits.attacks._methods.statistics import Bootstrap, auc, best_known, shares_above
from audits.attacks._shared.models import Value
from audits.attacks._shared.verdicts import decimal, judge, value
from tests.audits.attacks.made_up import CLIENTS, N, around, samples


def verdict(margin: float = 0.05, gate: float = 0.15, **given: Any) -> tuple[str, str]:
    made = judge(samples(**given), np.random.default_rng(1), margin=margin, gate=gate)
    return made.verdict, made.reason


# --- statistics ---------------------------------------------------------------------------------


def test_auc_is_mann_whitney_and_halves_ties():
    rng = np.random.default_rng(0)
    one, other = rng.integers(6, size=40).astype(float), rng.integers(6, size=70).astype(float)
    wanted = stats.mannwhitneyu(one, other).statistic / (one.size * other.size)
    assert auc(one, other) == pytest.approx(wanted)
    assert auc([1, 2], [0, 0]) == 1.0
    assert auc([0, 0], [0, 0]) == 0.5
    for sides in (([], [1.0]), ([1.0], []), ([float("nan")], [1.0])):
        with pytest.raises(ValueError):
            auc(*sides)


def test_true_positive_rate_is_interpolated():
    """A score of few values: 10 % of the negatives tie at the top with 45 of 100 positives."""
    positives = [np.array([3.0] * 45 + [0.0] * 55)]
    negatives = np.array([3.0] * 100 + [0.0] * 900)
    assert shares_above(positives, negatives, 0.01)[0] == pytest.approx(0.045)
    assert shares_above(positives, negatives, 0.10)[0] == pytest.approx(0.45)
    assert shares_above([np.zeros(5)], np.zeros(1000), 0.01)[0] == pytest.approx(0.01)
    assert shares_above([np.ones(5)], np.zeros(1000), 0.01)[0] == 1.0


def test_bootstrap_is_over_clients_not_over_records():
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(0.4, 0.1, 1000), rng.normal(0.6, 0.1, 1000)])
    two = Bootstrap(["a"] * 1000 + ["b"] * 1000, rng).interval(values, (0.0, 1.0))
    many = Bootstrap([str(n) for n in range(2000)], rng).interval(values, (0.0, 1.0))
    assert two.n == 2
    assert two.high - two.low > 0.5
    assert many.high - many.low < 0.02
    assert two.value == pytest.approx(many.value)


def test_interval_of_few_clients_covers_what_it_says():
    """Percentiles of 5 clients alone hold about 83 % of the time."""
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):
        found = Bootstrap(list("abcde"), rng).interval(rng.normal(size=5), (-9.0, 9.0))
        held += found.low <= 0.0 <= found.high
    assert held >= 0.92 * 400


def test_one_client_has_no_interval():
    found = Bootstrap(["a"] * 9, np.random.default_rng(0)).interval(np.full(9, 0.7), (0.0, 1.0))
    assert (found.low, found.high, found.n) == (0.0, 1.0, 1)


def test_prior_is_chosen_on_the_other_clients():
    units = ("a", "b", "c")
    guess, good = np.full(3, 0.5), np.array([0.9, 0.9, 0.2])
    found = best_known(np.array([guess, good]), units, guess=0)
    assert found.tolist() == [0.9, 0.9, 0.2]  # 'c' had no say in its own attacker
    lucky = np.array([1.0, 0.3, 0.1])  # 'a' makes him look good to the others, and he is not
    assert best_known(np.array([guess, lucky]), units, guess=0).tolist() == [0.5, 0.5, 0.5]
    assert best_known(np.array([guess, good])[:, :1], ("a",), guess=0).tolist() == [0.5]


# --- verdicts -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "word", "given"),
    [
        ("INVALID", "null control", {"null": around(0.6)}),
        ("INVALID", "null control", {"null": around(0.4)}),
        ("INVALID", "null control", {"null": around(0.6), "raw": around(0.5)}),  # before weak
        ("INVALID", "null control", {"null": around(0.6), "protected": around(0.9)}),  # before FAIL
        ("INCONCLUSIVE", "weak attack", {"raw": around(0.6)}),
        ("INCONCLUSIVE", "weak attack", {"raw": around(0.7, 0.4)}),  # its lower end counts
        ("INCONCLUSIVE", "weak attack", {"raw": around(0.6), "protected": around(0.9)}),
        ("INCONCLUSIVE", "weak attack", {"raw": around(0.6), "protected": around(0.1)}),
        ("FAIL", "margin", {"protected": around(0.6)}),
        ("PASS", "no evidence", {"protected": around(0.5)}),
        ("PASS", "no evidence", {"protected": around(0.3)}),
        ("PASS", "within the margin", {"protected": around(0.53)}),
        ("INCONCLUSIVE", "sample", {"protected": around(0.55)}),
        ("INCONCLUSIVE", "sample", {"protected": around(0.58, 0.4)}),  # too wide to be a FAIL
        ("INCONCLUSIVE", "sample", {"protected": around(0.5, 0.4)}),  # too wide to be a pass
        ("INCONCLUSIVE", "sample", {"units": ("a",) * N}),
    ],
)
def test_verdict_table(wanted, word, given):
    found, reason = verdict(**given)
    assert (found, word in reason) == (wanted, True), reason


def test_prior_counts_client_by_client():
    """Clients differ by more than the margin, the gain over the prior does not."""
    prior = around(0.5, 0.2)
    assert verdict(prior=prior, protected=prior + 0.02, raw=prior + 0.4)[0] == "PASS"
    assert verdict(prior=prior, protected=prior + 0.08, raw=prior + 0.4)[0] == "FAIL"
    assert verdict(prior=prior, protected=around(0.5), raw=prior + 0.4)[0] == "INCONCLUSIVE"


def test_null_below_chance_is_no_bias_where_that_is_said():
    assert verdict(null=around(0.3), null_side="above")[0] == "PASS"
    assert verdict(null=around(0.6), null_side="above")[0] == "INVALID"
    both = {"prior": np.full(N, 0.65), "null": around(0.6), "raw": around(0.95)}
    assert verdict(**both, null_side="above")[0] == "PASS"


def test_of_facts_the_worst_unit_counts():
    exact = {
        "exact": True,
        "chance": 0.0,
        "prior": np.zeros(N),
        "null": np.zeros(N),
        "raw": np.ones(N),
    }
    none, one = np.zeros(N), np.zeros(N)
    one[7] = 1.0
    assert verdict(margin=0.0, protected=none, **exact)[0] == "PASS"
    assert verdict(margin=0.0, protected=one, **exact)[0] == "FAIL"
    assert verdict(margin=0.05, protected=one, **exact)[0] == "FAIL"  # one of forty is one too many
    made = judge(samples(protected=one, **exact), np.random.default_rng(1), margin=0.0, gate=0.15)
    assert {made.values["protected"].value, made.values["gap"].low} == {1.0}
    assert verdict(margin=0.0, protected=none, **{**exact, "null": one})[0] == "INVALID"
    assert verdict(margin=0.0, protected=none, **{**exact, "raw": 1 - one})[0] == "INCONCLUSIVE"
    alone = {k: v[:1] if isinstance(v, np.ndarray) else v for k, v in exact.items()}
    assert verdict(margin=0.0, units=("a",), protected=none[:1], **alone)[0] == "PASS"


def test_needed_clients_would_indeed_decide_it():
    made = judge(
        samples(protected=around(0.52, 0.15)), np.random.default_rng(1), margin=0.05, gate=0.15
    )
    assert made.verdict == "INCONCLUSIVE"
    assert made.needed is not None
    units = tuple(f"c{n}" for n in range(made.needed + made.needed // 4))
    more = {
        name: around(mean, spread, len(units))
        for name, mean, spread in (
            ("raw", 0.95, 0.02),
            ("null", 0.5, 0.02),
            ("protected", 0.52, 0.15),
        )
    }
    assert verdict(units=units, prior=np.full(len(units), 0.5), **more)[0] == "PASS"


def test_values_are_rounded_outwards():
    found = value(Bootstrap(CLIENTS, np.random.default_rng(0)).interval(around(1 / 3), (0.0, 1.0)))
    assert float(found.low) <= 1 / 3 <= float(found.high)
    assert decimal(-0.00001) == "0"
    assert decimal(0.12345) in ("0.1234", "0.1235")
    with pytest.raises(ValueError):
        Value(value="0.5", low="0.6", high="0.7", n=3)


@pytest.mark.parametrize("name", ["prior", "raw", "null", "protected"])
def test_scores_that_are_no_numbers_are_refused(name):
    with pytest.raises(ValueError, match=name):
        samples(**{name: np.full(N, np.nan)})
    with pytest.raises(ValueError, match=name):
        samples(**{name: np.zeros(N - 1)})


def test_silence_needs_a_reason():
    with pytest.raises(ValueError):
        NotApplicable(" ")
    with pytest.raises(ValueError):
        samples(units=(), **dict.fromkeys(("prior", "raw", "null", "protected"), np.zeros(0)))
