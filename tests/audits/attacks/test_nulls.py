"""Null controls over all rows of a report, and what a PASS could have missed.

Trials: 5,000 reports of 36 rows each, whose null controls are sound and drawn as the attacks' are;
2,000 planted gains. The seeds are pinned, so no result here is false by chance.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from audits.attacks._methods.statistics import Bootstrap, Interval, auc
from audits.attacks._shared.together import biased, settled
from audits.attacks._shared.verdicts import (
    FAMILY,
    LEVEL,
    POWER,
    detectable,
    holm,
    judge,
    p_value,
    trials,
)
from tests.audits.attack_tools import BIASED, row
from tests.audits.attacks.made_up import N, around, samples

REPORTS = 5000
Array = np.ndarray


def ranked(rng: np.random.Generator, members: int, others: int, count: int = 20_000) -> Array:
    """Return AUCs of so many records against others that nothing sets apart."""
    order = rng.random((count, members + others)).argsort(axis=1).argsort(axis=1)
    least = members * (members - 1) / 2
    return (order[:, :members].sum(axis=1) - least) / (members * others)


def intervals(means: Array) -> tuple[Array, Array, Array]:
    """Return mean and interval over clients (R, n), as rows write them down."""
    from scipy.special import stdtrit

    n, middle = means.shape[1], means.mean(axis=1)
    wide = stdtrit(n - 1, (1 + LEVEL) / 2) * means.std(axis=1, ddof=1) / np.sqrt(n)
    low, high = np.floor((middle - wide) * 1e4) / 1e4, np.ceil((middle + wide) * 1e4) / 1e4
    middle = np.clip(np.round(middle, 4), low, high)
    return middle, np.maximum(low, 0.0), np.minimum(high, 1.0)


def drawn(rng: np.random.Generator) -> list[Array]:
    """Return p-values (R,) of every row of 5,000 sound reports."""
    long, short = ranked(rng, 10, 60), ranked(rng, 4, 4)
    kinds = [  # draws of clients' scores, clients, where the control should be, above, records
        *[(partial(rng.choice, long), n, 0.5, False, trials(8 * n, 32 * n, n)) for n in (8, 40)],
        *[(partial(rng.choice, short), n, 0.5, True, trials(4 * n, 4 * n, n)) for n in (2, 3, 8)],
        *[(rng.random, n, 0.5, False, trials(n, 16 * n, n)) for n in (4, 12)],
        (lambda s: rng.binomial(10, 0.01, s) / 10, 20, 0.01, False, trials(128, 1024, 20)),
        (lambda s: rng.binomial(24, 1 / 32, s) / 24, 6, 1 / 32, False, trials(128, 0, 6)),
        (lambda s: rng.binomial(1, 0.05, s) * 1.0, 20, 0.05, True, trials(16, 0, 20)),
        (lambda s: rng.beta(2, 5, s), 12, 2 / 7, True, trials(64, 0, 12)),
        (lambda s: rng.beta(5, 2, s), 12, 5 / 7, True, trials(64, 0, 12)),
    ]  # fmt: skip
    return [
        p_value(*intervals(draw((REPORTS, n))), n, limit, above=above, records=records)
        for draw, n, limit, above, records in kinds
        for _ in range(3)
    ]


def test_at_most_one_of_5000_sound_reports_is_invalid():
    found = np.array(drawn(np.random.default_rng(11))).T
    wrong = sum(any(holm(report)) for report in found.tolist())
    assert wrong <= 1
    alone = (found < 1.0 - LEVEL).any(axis=1).mean()  # without a correction: the rule of before
    assert alone > 0.5
    assert (found < 1.0 - LEVEL).mean() < 0.06


def test_a_biased_control_is_found_among_many_that_are_sound():
    rows = [row(what=f"row {n}") for n in range(40)]
    assert not any(biased(rows))
    rows[7] = row(**{**BIASED, "verdict": "PASS"}, what="biased")
    assert [n for n, wrong in enumerate(biased(rows)) if wrong] == [7]
    made = settled(rows)
    assert [r.verdict for r in made].count("INVALID") == 1 and made[7].verdict == "INVALID"
    assert made[7].detectable == "" and "null control" in made[7].reason
    near = row(null="0.515 0.501 0.53", what="one row of twenty")
    assert not any(biased([*rows[:7], near]))


def test_holm_rejects_step_by_step_and_no_further():
    assert holm([0.01, 0.04, 0.03, 0.005], 0.05) == [True, False, False, True]
    assert holm([0.012, 0.012, 0.02, 0.04], 0.05) == [True, True, True, True]
    assert holm([], 0.05) == []


def test_scores_that_agree_by_luck_are_no_bias():
    """Two clients of four records each with one AUC: no spread between them, and no bias."""
    facts = (0.5625, 0.5625, 0.5625, 2, 0.5)
    assert p_value(*facts, above=True, records=trials(8, 8, 2)) > 0.2
    assert p_value(*facts, above=True, records=1e12) < FAMILY  # without the records' own spread
    assert p_value(0.5, 0.5, 0.5, 2, 0.5, above=False, records=4.0) == 1.0
    assert p_value(0.3, 0.29, 0.31, 40, 0.5, above=True, records=4e4) > 0.5


def test_the_p_value_of_an_interval_is_that_of_the_t_test():
    from scipy.stats import ttest_1samp

    rng = np.random.default_rng(5)
    for n in (5, 20):
        values = 0.6 + 0.1 * rng.normal(size=n)
        low = Bootstrap([str(k) for k in range(n)], rng).interval(values, (0.0, 1.0))
        found = p_value(low.value, low.low, low.high, n, 0.5, above=False, records=1e12)
        assert np.log10(found) == pytest.approx(np.log10(ttest_1samp(values, 0.5).pvalue), rel=0.25)


def test_auc_of_the_simulation_is_that_of_the_attacks():
    rng = np.random.default_rng(2)
    one = rng.random(14)
    order = one.argsort().argsort()
    assert auc(one[:4], one[4:]) == pytest.approx((order[:4].sum() - 6) / 40)


# --- power --------------------------------------------------------------------------------------


def test_a_gain_of_the_stated_power_is_found_in_95_of_100_draws():
    """The gain over the prior is drawn with the spread that a row showed; half of it is missed."""
    n, spread, margin, rng = 12, 0.04, 0.05, np.random.default_rng(9)
    exact = stretched(n, spread)
    power = detectable(Interval(0.0, -exact, exact, n), Interval(0.4, 0.4, 0.4, n), margin, False)
    assert margin < power < 0.15

    def share(gain: float) -> float:
        draws = gain + spread * rng.normal(size=(2000, n))
        low = draws.mean(axis=1) - [stretched(n, s) for s in draws.std(axis=1, ddof=1)]
        return float((low > margin).mean())

    assert abs(share(power) - POWER) < 0.02
    assert share((power + margin) / 2) < 0.7


def stretched(n: int, spread: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(n - 1, (1 + LEVEL) / 2)) * spread / np.sqrt(n)


def test_power_stands_beside_a_pass_and_nowhere_else():
    rng = np.random.default_rng(1)
    few, many = (
        judge(
            samples(protected=around(0.5, 0.1, n), units=tuple(map(str, range(n))), **same(n)), rng,
            margin=0.05, gate=0.15,
        )
        for n in (40, 400)
    )  # fmt: skip
    assert many.verdict == few.verdict == "PASS"
    assert 0.05 < float(many.detectable) < float(few.detectable) < 0.15
    for given in ({"protected": around(0.7)}, {"raw": around(0.5)}, {"null": around(0.8)}):
        assert judge(samples(**given), rng, margin=0.05, gate=0.15).detectable == ""
    facts = {"exact": True, "chance": 0.0, "prior": np.zeros(N), "null": np.zeros(N)}
    fact = samples(**facts, raw=np.ones(N), protected=np.zeros(N))
    assert judge(fact, rng, margin=0.0, gate=1.0).detectable == "1"


def same(n: int) -> dict[str, Array]:
    return {"prior": np.full(n, 0.5), "raw": around(0.95, n=n), "null": around(0.5, n=n)}
