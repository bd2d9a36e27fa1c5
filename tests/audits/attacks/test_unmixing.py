"""A06 on planted mixtures, on noise, and weakened on purpose.

Trials: 2 to 24 clients of 96 mixed records each, in mixtures of 3 to 32. All draws are pinned, so
no result is false by chance.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from audits.attacks import Material, Mixtures, NotApplicable, attack, unmixing
from audits.attacks._methods.mixed import Victim, _at_most_once, class_counts, violated
from audits.attacks._shared.verdicts import judge
from audits.attacks.unmixing import ATTACK
from audits.evidence.steps import Case
from tests.audits.attacks.planted_mixtures import MEMBERS, mixtures, regrouped
from tests.audits.test_mixtures import policy, run

KNOWN, BEGUN = "by the layers that made", "by the layers that the round began"


@pytest.fixture(scope="module")
def sealed() -> Case:
    """A run whose mixtures hold 8 records at least and are 2 apart."""
    return Case(run(policy()).view())


def judged(case: Case, mixed: Any) -> dict[tuple[str, str], tuple[Any, Any]]:
    """Return (words of the row, first word of its metric) -> samples and judgement."""
    found = {}
    for row in ATTACK.run(Material(case=case, mixed=mixed), np.random.default_rng(3), "quick").rows:
        assert not isinstance(row, NotApplicable), row
        assert row.metric and row.margin is not None and row.gate is not None
        made = judge(row, np.random.default_rng(4), margin=row.margin, gate=row.gate)
        words = next((w for w in (KNOWN, BEGUN) if w in row.what), row.payload)
        found[words, row.metric.split()[0]] = (row, made)
    return found


def area(case: Case, mixed: Any, known: str = KNOWN) -> float:
    return float(judged(case, mixed)[known, "AUC"][0].protected.mean())


@pytest.fixture(scope="module")
def leak(sealed: Case) -> Any:
    return judged(sealed, mixtures())


def test_o22_a_mixture_gives_its_records_away_to_whoever_has_candidates(leak: Any) -> None:
    for metric, least in (("AUC", 0.9), ("recall", 0.5)):
        row, found = leak[KNOWN, metric]
        assert found.verdict == "FAIL" and row.payload == "P10"
        assert row.raw.min() > 0.98 and row.protected.mean() > least


def test_the_layers_of_the_round_s_beginning_tell_less(leak: Any) -> None:
    row, found = leak[BEGUN, "AUC"]
    assert 0.6 < row.protected.mean() < leak[KNOWN, "AUC"][0].protected.mean() - 0.01
    assert found.verdict == "FAIL"


def test_other_clients_mixtures_tell_nothing(leak: Any) -> None:
    for known in (KNOWN, BEGUN):
        null = leak[known, "AUC"][1].values["null"]
        assert null.low <= 0.5 <= null.high and null.high - null.low < 0.15
        row, _ = leak[known, "recall"]
        assert abs(row.null.mean() - row.chance) < 0.05 and row.chance == 12 / MEMBERS


def test_links_and_rounds_and_width_each_help_the_attacker(sealed: Case) -> None:
    narrow = mixtures(4, width=3)
    alone = tuple(replace(one, links=None) for one in narrow)
    least = area(sealed, alone)
    assert area(sealed, narrow) > least + 0.02
    assert area(sealed, tuple(replace(m, links=None) for m in mixtures(4, width=8))) > least + 0.03
    more = tuple(replace(one, links=None) for one in mixtures(4, width=3, rounds=3, drift=0.5))
    first = tuple(one for one in more if one.round == 1)
    assert area(sealed, more) > area(sealed, first) + 0.03


def test_smaller_groups_tell_more(sealed: Case) -> None:
    assert area(sealed, mixtures(4, width=3, size=8)) > area(sealed, mixtures(4, width=3, size=32))


def test_noise_passes_with_enough_clients(sealed: Case) -> None:
    found = judged(sealed, mixtures(24, noise=12.0))
    for key in ((KNOWN, "AUC"), (BEGUN, "AUC"), ("P11", "share")):
        assert found[key][1].verdict == "PASS", found[key][1].reason
    assert found[KNOWN, "AUC"][0].raw.min() > 0.98


def test_noise_with_few_clients_is_no_pass(sealed: Case) -> None:
    _, found = judged(sealed, mixtures(2, noise=4.0))[KNOWN, "AUC"]
    assert found.verdict == "INCONCLUSIVE" and found.reason.startswith("sample")


def test_with_other_vectors_it_is_weak_and_never_pass(sealed: Case) -> None:
    rng = np.random.default_rng(0)
    strange = tuple(
        replace(one, tables={**one.tables, "begun": rng.normal(size=one.tables["begun"].shape)})
        for one in mixtures()
    )
    _, found = judged(sealed, strange)[BEGUN, "AUC"]
    assert found.verdict == "INCONCLUSIVE" and "weak attack" in found.reason


def test_a_null_of_the_victims_own_mixtures_is_invalid(sealed: Case, monkeypatch: Any) -> None:
    monkeypatch.setattr(unmixing, "_others", lambda victims, place: [victims[place]])
    assert judged(sealed, mixtures())[KNOWN, "AUC"][1].verdict == "INVALID"


def test_candidates_beside_the_centres_are_in_the_pool() -> None:
    (one,) = mixtures(1)
    few, all_ = (Victim.of([one], most, np.random.default_rng(0)).pool for most in (100, 1000))
    assert len(few) == 100 and len(all_) == len(one.tables["computed"])
    assert np.array_equal(few[:MEMBERS], np.arange(MEMBERS)) and len(set(few)) == 100


# --- facts ----------------------------------------------------------------------------------------


def test_o22_mixtures_as_the_policy_exchanges_for_them_pass(leak: Any) -> None:
    row, found = leak["P10", "1"]
    assert found.verdict == "PASS" and row.exact and row.raw.min() == 1.0


def short(groups: np.ndarray) -> np.ndarray:
    """A last batch of one."""
    changed = groups.copy()
    changed[0] = groups.max() + 1
    return changed


@pytest.mark.parametrize("client", [0, 5])
def test_o22_one_short_batch_fails(sealed: Case, client: int) -> None:
    mixed = list(mixtures())
    mixed[client] = regrouped(mixed[client], short(mixed[client].groups))
    row, found = judged(sealed, mixed)["P10", "1"]
    assert found.verdict == "FAIL" and row.protected.sum() == 1.0


def test_o15_two_mixtures_that_differ_by_one_record_fail(sealed: Case) -> None:
    mixed = list(mixtures())
    one = mixed[2]
    index = one.index.copy()
    mine = np.flatnonzero(one.groups == 0)
    index[mine, 1], index[mine, 2] = index[mine, 0], index[mine, 0]
    index[mine[0], 2] = one.tables["computed"].shape[0] - 1
    mixed[2] = regrouped(one, one.groups, index)
    lax = Case(run(policy(floor=4)).view())
    row, found = judged(lax, mixed)["P10", "1"]
    assert found.verdict == "PASS"  # two records in, one out: two apart, as the policy says
    index[mine[0], 2] = index[mine[1], 0]
    mixed[2] = regrouped(one, one.groups, index)
    row, found = judged(lax, mixed)["P10", "1"]
    assert found.verdict == "FAIL" and np.array_equal(np.flatnonzero(row.protected), [2])


def test_equal_vectors_are_one_record(sealed: Case) -> None:
    """Members that repeat one record make no crowd."""
    one, *others = mixtures()
    table = one.tables["computed"].copy()
    table[np.flatnonzero(one.groups == 1)] = table[0]
    same = replace(one, tables={**one.tables, "computed": table})
    _, found = judged(sealed, (regrouped(same, one.groups), *others))["P10", "1"]
    assert found.verdict == "FAIL"


@pytest.mark.parametrize("broken", ["floor", "apart"])
def test_facts_that_miss_what_was_planted_prove_nothing(
    sealed: Case, monkeypatch: Any, broken: str
) -> None:
    def blind(records: Any, groups: Any, floor: int, apart: int) -> bool:
        return violated(records, groups, *((0, apart) if broken == "floor" else (floor, 0)))

    monkeypatch.setattr(unmixing, "violated", blind)
    _, found = judged(sealed, mixtures())["P10", "1"]
    assert found.verdict == "INCONCLUSIVE"


# --- labels ---------------------------------------------------------------------------------------


def test_mixed_labels_give_class_counts_exactly(leak: Any) -> None:
    row, found = leak["P11", "share"]
    assert found.verdict == "FAIL" and np.array_equal(row.protected, np.ones(6))
    assert row.prior.mean() < 0.3 and row.null.mean() < 0.3 and row.raw.min() == 1.0


@pytest.mark.parametrize(("size", "members"), [(10, 96), (36, 713), (33, 104)])
def test_sizes_that_differ_by_one_are_told_from_the_shares(size: int, members: int) -> None:
    rng = np.random.default_rng(size)
    count = members // size
    groups = np.arange(members) * count // members
    classes = rng.integers(4, size=members)
    counts = np.stack([np.bincount(classes[groups == g], minlength=4) for g in range(count)])
    shares = counts / counts.sum(axis=1, keepdims=True)
    rounded = shares + rng.uniform(-1, 1, size=shares.shape) / (2**15 - 1)
    assert np.array_equal(class_counts(rounded, 8, members), counts)
    little = rounded + 0.05 / size * rng.normal(size=shares.shape)  # of what one member adds
    assert np.mean((class_counts(little, 8, members) == counts).all(axis=1)) > 0.9
    much = rounded + 2.0 / size * rng.normal(size=shares.shape)
    assert np.mean((class_counts(much, 8, members) == counts).all(axis=1)) < 0.2


# --- what it needs --------------------------------------------------------------------------------


def test_where_no_mixture_leaves_it_does_not_apply(clear: Case) -> None:
    found = {r.id: r for r in attack(Material(case=clear), ["unmix"]).rows}["A06"]
    assert found.verdict == "NOT_APPLICABLE" and "no mixture leaves" in found.reason


@pytest.mark.parametrize(("clients", "said"), [(0, "forbids capture"), (1, "two clients")])
def test_mixtures_that_nobody_could_look_at_are_not_tested(
    sealed: Case, clients: int, said: str
) -> None:
    given = Material(
        case=sealed, mixed=mixtures(1)[:clients], missing="policy 'own' forbids capture"
    )
    report = attack(given, ["A06"])
    found = {r.id: r for r in report.rows}["A06"]
    assert found.verdict == "NOT_TESTED" and said in found.reason
    assert {"P10", "P11"} <= {n.payload for n in report.not_tested}


def test_rows_stand_in_a_report_and_name_no_client(sealed: Case) -> None:
    report = attack(Material(case=sealed, mixed=mixtures()), ["A06"])
    mine = [row for row in report.rows if row.id == "A06"]
    assert [row.verdict for row in mine] == ["FAIL"] * 4 + ["PASS", "FAIL"]
    assert not {"P10", "P11"} & {n.payload for n in report.not_tested}
    assert "client-0" not in report.text()
    assert report.text() == attack(Material(case=sealed, mixed=mixtures()), ["A06"]).text()


def test_nobody_is_in_mixtures_more_than_once() -> None:
    """The nearest point: no other allowed one lies on the far side of it."""
    rng = np.random.default_rng(1)
    given = rng.normal(size=(200, 5))
    nearest = _at_most_once(given)
    assert nearest.min() >= 0.0 and nearest.sum(axis=1).max() <= 1.0 + 1e-12
    allowed = rng.dirichlet(np.ones(6), size=(300, 200))[..., :5]
    assert ((given - nearest) * (allowed - nearest)).sum(axis=2).max() <= 1e-12


def withheld(one: Mixtures) -> Mixtures:
    """Return a client whose first mixture stayed away."""
    seen = {name: value[1:] for name, value in one.seen.items()}
    return replace(one, seen=seen, groups=np.where(one.groups > 0, one.groups - 1, -1))


def test_mixtures_that_stayed_away_and_clients_that_were_away_are_left_out(sealed: Case) -> None:
    played = mixtures(rounds=3)
    second = [withheld(m) if (m.client, m.round) == ("client-00", 2) else m for m in played]
    there = [m for m in second if (m.client, m.round) != ("client-01", 3)]
    rows = judged(sealed, there)
    assert {row.rounds for row, _ in rows.values()} == {(1,)}
    assert all(made.verdict == "FAIL" for (words, _), (_, made) in rows.items() if words == KNOWN)


def test_a_first_round_in_which_mixtures_stayed_away_is_attacked_all_the_same(sealed: Case) -> None:
    rows = judged(sealed, [withheld(one) for one in mixtures()])
    assert rows[KNOWN, "AUC"][1].verdict == "FAIL"
    assert rows["P10", "1"][1].verdict == "PASS"
    assert float(rows["P11", "share"][0].protected.mean()) == 1.0
