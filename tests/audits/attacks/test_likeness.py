"""A13 on planted cosines: equal data found, noise at chance, few clients, a weak attack.

Trials: 3 to 60 clients, three matrices each; ten seeds for the null. All draws are pinned, so no
result is false by chance.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from audits.attacks import Compared, Material, Matrix, attack
from audits.attacks._methods import likeness
from audits.attacks._methods.likeness import closer, matched, read, triplets, unit_rows
from audits.attacks._shared.models import AttackRow
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.verdicts import Judgement, NotApplicable, Samples, judge
from audits.attacks.likeness import CLOSER, OWNERS, READ, _coordinates, _row
from audits.evidence.steps import Case

pytestmark = pytest.mark.usefixtures("same_chance")

Array = Any


@pytest.fixture(autouse=True)
def short_searches(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is planted is plain enough to be found from few starts, and the null asks often."""
    monkeypatch.setattr(likeness, "_STARTS", 8)


def alike(clients: int, seed: int) -> Array:
    """Return the overlap of label histograms: clients of four kinds, no two quite equal."""
    rng = np.random.default_rng(seed)
    own = np.stack([rng.dirichlet(np.eye(4)[n % 4] * 12 + 0.5) for n in range(clients)])
    found: Array = 1.0 - np.abs(own[:, None] - own[None]).sum(axis=2) / 2.0
    return found


def noise(clients: int, seed: int) -> Array:
    drawn = np.random.default_rng([seed, 1]).normal(size=(clients, clients))
    return (drawn + drawn.T) / 2.0


def lines(clients: int, numbers: int, seed: int) -> Array:
    """Return vectors of length 1 around one that all expect."""
    drawn = np.random.default_rng([seed, 2]).normal(size=(clients + 1, numbers))
    return unit_rows(drawn[:1] + drawn[1:])


def planted(clients: int, *, seen: float, raw: float, seed: int = 1, rounds: int = 3) -> Compared:
    """Return matrices that are the true likeness under noise of so many standard deviations."""
    true, places = alike(clients, seed), np.arange(clients)
    spread = float(true[np.triu_indices(clients, 1)].std()) * np.sqrt(2 * rounds)

    def drawn(level: float, number: int) -> Array:
        if np.isinf(level):
            return noise(clients, seed * 100 + number)
        return true + level * spread * noise(clients, seed * 100 + number)

    matrices = tuple(
        Matrix(n, places, drawn(seen, n), drawn(raw, n + 50), lines(clients, 60, seed))
        for n in range(1, rounds + 1)
    )
    names = tuple(f"client-{n:02d}" for n in places)
    records = np.full(clients, 100)
    return Compared("P15", names, matrices, true, "overlap of labels", records)


def rows(case: Case, given: Compared | None) -> list[AttackRow]:
    return [row for row in attack(Material(case=case, compared=given), ["A13"]).rows if row.payload]


def test_clients_of_equal_data_are_found(clear: Case) -> None:
    nearer, whose, _ = rows(clear, planted(16, seen=0.1, raw=0.1))
    assert (nearer.verdict, whose.verdict) == ("FAIL", "FAIL")
    assert nearer.chance == "0.5" and whose.chance == "0.0625"
    for row, least in ((nearer, 0.85), (whose, 0.5)):
        assert row.protected is not None and row.prior is not None and row.null is not None
        assert float(row.protected.value) > least
        assert float(row.prior.value) == pytest.approx(float(row.chance), abs=1e-3)
        assert float(row.null.value) == pytest.approx(float(row.chance), abs=0.05)


def test_the_report_no_longer_lists_cosines_as_untested_and_names_no_client(clear: Case) -> None:
    report = attack(Material(case=clear, compared=planted(16, seen=0.1, raw=0.1)), ["A13"])
    assert "client-" not in report.text()
    assert not any(gap.payload == "P15" for gap in report.not_tested)


@pytest.mark.parametrize(("rule", "clients"), [(CLOSER, 16), (OWNERS, 6)])
def test_cosines_that_say_nothing_are_at_chance_over_seeds(rule: Rule, clients: int) -> None:
    verdicts, shares = [], []
    for seed in range(10):
        made, row = judged(planted(clients, seen=np.inf, raw=0.1, seed=seed), rule, seed)
        verdicts.append(made.verdict)
        shares.append(float(row.protected.mean()) - row.chance)
    assert abs(np.mean(shares)) < 0.1
    assert "FAIL" not in verdicts and verdicts.count("INVALID") <= 1


def test_many_clients_whose_cosines_say_nothing_pass() -> None:
    """The attack works on the exact cosines, so that it finds nothing in these says something."""
    made, _ = judged(planted(60, seen=np.inf, raw=0.1), CLOSER, 1)
    assert made.verdict == "PASS"


def judged(given: Compared, rule: Rule, seed: int) -> tuple[Judgement, Samples]:
    rng = np.random.default_rng(seed)
    row = _row(given, rule, rng)
    return judge(row, rng, margin=rule.margin, gate=rule.gate), row


def test_an_attack_that_does_not_work_on_exact_cosines_is_undecided(clear: Case) -> None:
    for row in rows(clear, planted(16, seen=np.inf, raw=np.inf))[:2]:
        assert row.verdict == "INCONCLUSIVE" and row.reason.startswith("weak attack")


def test_few_clients_decide_nothing_and_the_row_says_how_many_would(clear: Case) -> None:
    (row,) = rows(clear, planted(3, seen=0.1, raw=0.1))
    assert row.verdict == "NOT_TESTED" and "4 clients are needed, and 3 were" in row.reason
    nearer = rows(clear, planted(5, seen=1.5, raw=1.5, seed=3))[0]
    assert nearer.verdict == "INCONCLUSIVE"
    number = re.search(r"With 5 clients .* about (\d+) would", nearer.reason)
    assert number is not None and int(number[1]) > 5


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"matrices": ()}, "no cosines were opened in the captured rounds"),
        ({"alike": None}, "no classes"),
        ({"alike": np.ones((16, 16))}, "all equally alike"),
    ],
)
def test_what_cannot_be_asked_is_not_tested(clear: Case, change: Any, why: str) -> None:
    (row,) = rows(clear, replace(planted(16, seen=0.1, raw=0.1), **change))
    assert row.verdict == "NOT_TESTED" and row.payload == "P15" and why in row.reason


def test_where_nobody_is_compared_it_does_not_apply(clear: Case) -> None:
    row = next(row for row in attack(Material(case=clear), ["A13"]).rows if row.id == "A13")
    assert row.verdict == "NOT_APPLICABLE"


def test_numbers_of_records_are_the_prior(clear: Case) -> None:
    """Who is told by a matrix what sizes tell already is told nothing."""
    size = np.repeat([6, 7, 8, 9], 4)
    near = -np.abs(size[:, None] - size[None]).astype(float)
    given = planted(16, seen=0.1, raw=0.1)
    matrices = tuple(replace(one, seen=near, raw=near) for one in given.matrices)
    known = replace(given, alike=near, matrices=matrices, records=2**size)
    nearer = rows(clear, known)[0]
    assert nearer.prior is not None and nearer.prior.value == "1"
    assert nearer.verdict == "INCONCLUSIVE"


def test_who_was_never_compared_counts_as_least_alike() -> None:
    two = np.eye(2)
    first = Matrix(1, np.array([0, 1]), np.array([[1, -0.5], [-0.5, 1]]), np.eye(2), two)
    second = Matrix(2, np.array([1, 2]), np.array([[1, 0.5], [0.5, 1]]), np.eye(2), two)
    both = (first, replace(first, round=2, seen=np.array([[1, 0.1], [0.1, 1]])), second)
    given = Compared("P15", ("a", "b", "c"), both, None, "", np.ones(3))
    mean = given.mean("seen")
    assert mean[0, 1] == pytest.approx(-0.2) and mean[1, 2] == 0.5
    assert mean[0, 2] < -0.2


def test_the_share_is_kendall_s_and_its_parts_hold_how_clients_hang_together() -> None:
    true = alike(9, 4)
    seen = true + 0.5 * noise(9, 4)
    parts = closer(seen, true)
    others = ~np.eye(9, dtype=bool)
    taus = [stats.kendalltau(seen[n, others[n]], true[n, others[n]])[0] for n in range(9)]
    assert parts.mean() == pytest.approx((1 + np.mean(taus)) / 2)
    assert triplets(true) == 9 * 8 * 7 // 2
    drawn = [closer(noise(9, s), alike(9, s)) for s in range(200)]
    spread = np.std([d.mean() for d in drawn])
    estimated = np.sqrt(np.mean([d.var(ddof=1) / 9 for d in drawn]))
    assert 0.9 * spread < estimated < 2.5 * spread  # never too sure


@pytest.mark.parametrize("clients", [6, 9])
def test_owners_are_found_and_no_more_than_can_be_told(clients: int) -> None:
    rng = np.random.default_rng(2)
    true = alike(clients, 5)
    assert matched(true, true, rng).mean() == 1.0
    names = np.roll(np.arange(clients), 1)
    assert matched(true[np.ix_(names, names)], true, rng).mean() == 0.0
    blind = np.zeros((6, 6))
    assert matched(blind, alike(6, 5), rng) == pytest.approx(np.full(6, 1 / 6))


@pytest.mark.parametrize(
    ("numbers", "attackers", "share"), [(5, 1, 0.3), (5, 4, 1.0), (9, 2, 0.25), (1000, 1, 0.0)]
)
def test_who_chooses_vectors_reads_one_coordinate_each(
    numbers: int, attackers: int, share: float
) -> None:
    rng, exact = np.random.default_rng(3), np.zeros(1)
    found = [read(lines(12, numbers, s), attackers, exact, rng) for s in range(40)]
    assert np.mean(found) == pytest.approx(share, abs=0.06)


def test_coordinates_of_random_sign_or_under_noise_say_nothing() -> None:
    rng, exact = np.random.default_rng(3), np.zeros(1)
    for numbers, attackers in ((5, 1), (5, 3), (60, 2)):
        control = [
            read(lines(12, numbers, s), attackers, exact, rng, mirror=True) for s in range(40)
        ]
        assert np.mean(control) < 0
    assert not read(np.tile(lines(1, 5, 1)[:1], (4, 1)), 1, exact, rng).any()  # all are alike
    assert not read(lines(12, 5, 1), 4, np.array([-9.0, 9.0]), rng).any()  # they guess
    assert np.mean(read(lines(12, 5, 1), 4, np.array([-0.2, 0.2]), rng)) > 0


def test_short_vectors_fail_and_long_ones_are_no_finding(clear: Case) -> None:
    long = rows(clear, planted(16, seen=0.1, raw=0.1))[2]
    assert long.metric == READ.metric and long.verdict == "INCONCLUSIVE"
    assert "60 numbers, by a client that chooses its own" in long.what
    given = planted(16, seen=0.1, raw=0.1)
    few = tuple(replace(m, vectors=lines(16, 4, 1), seen=m.raw) for m in given.matrices)
    short = rows(clear, replace(given, matrices=few))[2]
    assert short.verdict == "FAIL" and short.protected is not None
    assert float(short.protected.value) > 0.25


def test_who_was_in_no_comparison_with_two_others_has_no_score() -> None:
    """Else a client that nobody could attack would count as one of which nothing is read."""
    rng, given = np.random.default_rng(3), planted(8, seen=0.1, raw=0.1, rounds=1)
    (whole,) = given.matrices
    first, second = (
        replace(whole, places=p, seen=whole.seen[np.ix_(p, p)], raw=whole.raw[np.ix_(p, p)],
                vectors=lines(len(p), 5, 1))
        for p in (np.arange(6), np.array([6, 7]))
    )  # fmt: skip
    row = _coordinates(replace(given, matrices=(first, second)), 1, rng)
    assert isinstance(row, Samples)
    assert row.units == given.clients[:6] and len(row.protected) == 6 and (row.raw > 0).any()
    none = _coordinates(replace(given, matrices=(second,)), 1, rng)
    assert isinstance(none, NotApplicable) and none.arises and "two others" in none.reason


@pytest.mark.parametrize(("lost", "passes"), [(4.0, False), (0.0, True)])
def test_clients_that_are_alike_hide_no_others_that_are_read(
    lost: float, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twelve are as near as cosines are off; without the rule, the control, they hide four."""
    monkeypatch.setattr(likeness, "_LOST", lost)
    rng, places = np.random.default_rng(0), np.arange(16)
    apart = np.where(places < 12, 0.01, 1.0)[:, None]
    found = unit_rows(rng.normal(size=5) + apart * rng.normal(size=(16, 5)))
    off = np.triu(0.02 * rng.normal(size=(16, 16)), 1)
    raw = found @ found.T
    given = replace(
        planted(16, seen=0.1, raw=0.1), matrices=(Matrix(1, places, raw + off + off.T, raw, found),)
    )
    row = _coordinates(given, 1, np.random.default_rng(1))
    assert isinstance(row, Samples) and row.raw.mean() > READ.gate
    made = judge(row, np.random.default_rng(2), margin=READ.margin, gate=READ.gate)
    assert (made.verdict == "PASS") is passes
    assert (row.protected.mean() > READ.margin) is not passes
