"""A01 on planted rows: raw, fresh and sticky decoys, totals, and an attack that cannot work.

Trials: 30 users of 20 items each among 300, one to ten rounds. All draws are pinned, so no result
is false by chance.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from audits.attacks import ItemRows, Material, NotApplicable, attack, item_support
from audits.attacks._methods.support import missing, singles, totals
from audits.attacks._methods.support import rated as rated_method
from audits.attacks._shared.verdicts import judge
from audits.attacks.item_support import ATTACK, CATALOGUE
from audits.evidence.steps import Case

ITEMS, HELD, SENT, WIDTH, CLIENTS = 300, 20, 120, 6, 30
ALL = np.arange(ITEMS)

pytestmark = pytest.mark.usefixtures("same_chance")


def planted(kind: str, rounds: int = 3) -> tuple[ItemRows, ...]:
    """Rows of clients whose items are all as popular: nothing but the message can tell them."""
    rng, found = np.random.default_rng(5), list[ItemRows]()
    shares = [rng.permutation(ITEMS).reshape(-1, HELD) for _ in range(CLIENTS * HELD // ITEMS)]
    users = [np.sort(own) for own in np.concatenate(shares)]
    sticky = [drawn(rng, own) for own in users]
    for round in range(1, rounds + 1):
        rows = [rng.normal(size=(HELD, WIDTH)) for _ in users]
        whole = np.zeros((ITEMS, WIDTH))
        for own, values in zip(users, rows, strict=True):
            whole[own] += values
        there = np.flatnonzero(whole.any(axis=1))
        for number, (own, values) in enumerate(zip(users, rows, strict=True)):
            numbers = sticky[number] if kind == "sticky" else drawn(rng, own)
            seen = {
                "clear": (own, values),
                "total": (there, whole[there]),
                "sticky": (numbers, rng.normal(size=(SENT, WIDTH))),
                "fresh": (numbers, rng.normal(size=(SENT, WIDTH))),
                "nothing": None,
            }[kind]
            cohort = CLIENTS if kind == "total" else int(kind != "nothing")
            name = f"client-{number:02d}"
            found.append(ItemRows(name, round, round, ITEMS, own, (own, values), seen, cohort))
    return tuple(found)


def drawn(rng: np.random.Generator, own: np.ndarray) -> np.ndarray:
    decoys = rng.permutation(np.setdiff1d(ALL, own))[: SENT - HELD]
    return np.sort(np.concatenate([own, decoys]))


def judged(case: Case, rounds: Any) -> dict[str, tuple[Any, Any]]:
    """Return the pool asked about -> samples and judgement."""
    found = {}
    given = Material(case=case, items=rounds)
    for row in ATTACK.run(given, np.random.default_rng(3), "quick").rows:
        if isinstance(row, NotApplicable):
            continue
        assert row.metric and row.margin is not None and row.gate is not None
        made = judge(row, np.random.default_rng(4), margin=row.margin, gate=row.gate)
        found[row.what.rpartition(" ")[2]] = (row, made)
    return found


@pytest.fixture(autouse=True)
def rows_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy run has no items; what an item of the plan is, the real runs' test asks."""
    monkeypatch.setattr(item_support, "item_rows", lambda plan, policy: "P07")


def area(case: Case, kind: str, rounds: int, pool: str) -> float:
    return float(judged(case, planted(kind, rounds))[pool][0].protected.mean())


def test_fresh_decoys_fall_to_intersection_within_three_rounds(clear: Case) -> None:
    """One round hides among the rows that were sent; three do not."""
    areas = [area(clear, "fresh", rounds, "sent") for rounds in (1, 2, 3)]
    assert areas[0] == pytest.approx(0.5, abs=0.06)
    assert areas[1] > 0.8 and areas[2] > 0.95
    assert judged(clear, planted("fresh"))["sent"][1].verdict == "FAIL"


def test_sticky_decoys_hold_within_the_rows_that_were_sent(clear: Case) -> None:
    for rounds in (3, 10):
        assert area(clear, "sticky", rounds, "sent") == pytest.approx(0.5, abs=0.06)
    # Over the catalogue, that other rows were not sent says as much as ever.
    expected = 1.0 - (SENT - HELD) / (ITEMS - HELD) / 2
    assert area(clear, "sticky", 3, "catalogue") == pytest.approx(expected, abs=0.03)
    assert judged(clear, planted("sticky"))["catalogue"][1].verdict == "FAIL"


def test_a_sticky_row_that_lasts_among_decoys_drawn_anew_is_found(clear: Case) -> None:
    """The item's own gradient is much the same in every round, and a decoy's is not."""
    lasting = {}

    def held(one: ItemRows) -> ItemRows:
        assert one.seen is not None
        number, rows = one.seen
        own = lasting.setdefault(one.client, np.random.default_rng(9).normal(size=(HELD, WIDTH)))
        mixed = np.array(rows)
        mixed[np.isin(number, one.held)] = own  # as long as a decoy, on average
        return replace(one, seen=(number, mixed))

    assert area(clear, "sticky", 10, "sent") < 0.56
    rounds = [held(one) for one in planted("sticky", 10)]
    lasts = [trail.attacked("sent", "seen")[0] for trail in item_support._trails(rounds)]
    assert np.mean(lasts) > 0.9  # by itself, and not by the direction that rows share
    found = judged(clear, rounds)
    assert float(found["sent"][0].protected.mean()) > 0.9


def test_a_total_shows_nothing_of_a_client(clear: Case) -> None:
    found = judged(clear, planted("total"))
    row, made = found["catalogue"]
    assert made.verdict == "PASS"
    np.testing.assert_allclose(row.protected, row.prior, atol=0.02)


def shrinking(away: dict[str, int], rounds: int = 5) -> tuple[ItemRows, ...]:
    """Totals of a model that hardly moves, with clients away in one round each."""
    first = [one for one in planted("total", 1)]
    found = []
    for round in range(1, rounds + 1):
        there = [one for one in first if away.get(one.client) != round]
        whole = np.zeros((ITEMS, WIDTH))
        for one in there:
            np.add.at(whole, one.raw[0], one.raw[1] * (1.0 - 0.05 * round))
        seen = ALL, whole
        found += [
            replace(one, round=round, ask=round, seen=seen, cohort=len(there)) for one in there
        ]
    return tuple(found)


def test_totals_without_a_client_tell_its_items(clear: Case) -> None:
    """The control of all totals: who is away once is read from the totals beside that round."""
    away = {"client-03": 2, "client-07": 3, "client-11": 5}
    found = judged(clear, shrinking(away))
    row, made = found["absence"]
    assert row.units == tuple(away)
    assert made.verdict == "FAIL" and row.protected.min() > 0.9
    assert row.null.mean() < 0.7 and row.raw.min() == 1.0
    rest, passed = found["catalogue"]  # which is why it is asked apart
    assert passed.verdict != "FAIL" and rest.protected.mean() < 0.55


def test_a_total_of_another_cohort_is_no_total_without_a_client() -> None:
    """The cohort of the even is lost in round 3; what the odd say then tells nothing of them."""
    rounds = shrinking({})
    even = [one for one in rounds if int(one.client[-2:]) % 2 == 0 and one.round != 3]
    odd = [replace(one, ask=100 + one.ask) for one in rounds if int(one.client[-2:]) % 2]
    read = totals([*even, *odd])
    assert {total.round for total in read if "client-02" not in total.clients} == {1, 2, 3, 4, 5}
    assert missing("client-02", read) is None
    alone = totals([one for one in rounds if (one.client, one.round) != ("client-02", 3)])
    assert missing("client-02", alone) is not None


def test_where_everybody_stays_absence_is_not_asked(clear: Case) -> None:
    report = attack(Material(case=clear, items=shrinking({"client-03": 2})), ["A01"])
    rows = [row for row in report.rows if row.id == "A01"]
    assert rows[0].verdict == "PASS"
    assert rows[-1].verdict == "NOT_APPLICABLE" and "fewer than two clients" in rows[-1].reason


def test_the_note_says_how_many_rows_of_a_total_are_one_client_s(clear: Case) -> None:
    rounds = [one for one in planted("total") if one.client < "client-20"]
    counts = np.bincount(np.concatenate([one.held for one in rounds if one.round == 1]))
    share = float(np.mean(counts[counts > 0] == 1))
    assert singles(rounds) == pytest.approx(share) and 0.0 < share < 1.0
    note = judged(clear, rounds)["catalogue"][0].note
    assert f"{share:.0%} (O12)" in note
    assert "not asked here" in note  # what is not asked is said
    assert singles(planted("fresh")) is None


def test_rows_in_clear_are_read_and_hide_among_none(clear: Case) -> None:
    found = judged(clear, planted("clear"))
    assert set(found) == {"catalogue"}
    row, made = found["catalogue"]
    assert made.verdict == "FAIL" and row.protected.min() == 1.0


def test_controls(clear: Case) -> None:
    for kind in ("fresh", "sticky", "total"):
        for row, _ in judged(clear, planted(kind)).values():
            assert row.raw.min() == 1.0
            assert row.null.mean() < 0.56


def test_popularity_is_the_prior(clear: Case) -> None:
    """Who knows what is popular is not told anything by a message that says just that."""
    rounds = tuple(replace(one, held=planted("total")[0].held) for one in planted("total"))
    row, _ = judged(clear, rounds)["catalogue"]
    assert row.prior.min() == 1.0


def test_an_attack_that_cannot_work_says_nothing(clear: Case) -> None:
    def spoilt(one: ItemRows) -> ItemRows:
        return replace(one, raw=(ALL, np.zeros((ITEMS, WIDTH))))

    _, made = judged(clear, [spoilt(one) for one in planted("sticky")])["sent"]
    assert made.verdict == "INCONCLUSIVE"


def test_nothing_seen_is_not_tested(clear: Case) -> None:
    for rounds in (planted("nothing"), ()):
        report = attack(Material(case=clear, items=rounds), ["item-support"])
        row = next(row for row in report.rows if row.id == "A01")
        assert row.verdict == "NOT_TESTED" and row.payload == "P07"


def test_where_no_item_rows_leave_it_does_not_apply(
    clear: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    row = next(r for r in attack(Material(case=clear), ["A01"]).rows if r.id == "A01")
    assert row.verdict == "NOT_APPLICABLE" and "no gradient of item rows" in row.reason


def test_rows_stand_in_a_report_and_name_no_client(clear: Case) -> None:
    given = Material(case=clear, items=planted("fresh"))
    report = attack(given, ["A01"])
    mine = [row for row in report.rows if row.id == "A01"]
    assert [row.verdict for row in mine] == ["FAIL", "FAIL"]
    assert mine[0].metric == CATALOGUE.metric
    assert "client-0" not in report.text()
    assert report.text() == attack(given, ["A01"]).text()


def rated(*, noise: float = 0.0, rounds: int = 3, total: bool = False) -> tuple[ItemRows, ...]:
    """Rows of matrix factorisation, as FedMF says them, of users who rate from 1 to 5.

    Args:
        noise: on what is seen, in standard deviations of the rows.
        rounds: in which users and items step.
        total: only the sum over all users is seen.
    """
    rng, found = np.random.default_rng(6), list[ItemRows]()
    items = rng.normal(size=(ITEMS, WIDTH)) / 2
    users = rng.normal(size=(CLIENTS, WIDTH))
    held = [np.sort(rng.permutation(ITEMS)[:HELD]) for _ in users]
    truth = [np.clip(np.round(3 + items[o] @ u), 1, 5) for o, u in zip(held, users, strict=True)]
    table = np.hstack([0.3 * rng.normal(size=(ITEMS, WIDTH)), np.zeros((ITEMS, 1))])
    own = 0.3 * rng.normal(size=users.shape)
    for round in range(1, rounds + 1):
        rows = []
        for number, (there, ratings) in enumerate(zip(held, truth, strict=True)):
            error = table[there] @ np.append(own[number], 1.0) - (ratings - 3)
            rows.append(0.1 * error[:, None] * np.append(own[number], 1.0))
            own[number] = own[number] - 0.2 * error @ table[there, :-1]
        whole = np.zeros_like(table)
        for there, values in zip(held, rows, strict=True):
            whole[there] += values
        for number, (there, values) in enumerate(zip(held, rows, strict=True)):
            seen = (ALL, whole) if total else (there, values)
            blur = noise * values.std() * rng.normal(size=seen[1].shape)
            found.append(
                ItemRows(
                    f"client-{number:02d}", round, round, ITEMS, there, (there, values),
                    (seen[0], seen[1] + blur), CLIENTS if total else 1, truth[number], table.copy(),
                )
            )  # fmt: skip
        table = table - 0.5 * whole
    return tuple(found)


def test_two_rounds_of_rows_tell_how_high_a_user_rates(clear: Case) -> None:
    """One round leaves open how large its errors are; with the next the ratings follow (X4)."""
    row, made = judged(clear, rated(rounds=2))["ratings"]
    assert made.verdict == "FAIL" and row.protected.mean() > 0.95, made.reason
    assert row.metric == item_support.RATINGS.metric and row.rounds == (1, 2)
    assert abs(row.null.mean() - 0.5) < 0.05
    assert "ratings" not in judged(clear, rated(rounds=1))
    unknown = [replace(one, table=None) for one in rated()]
    assert "ratings" not in judged(clear, unknown)


def test_rows_that_leave_in_blocks_tell_the_ratings_too(clear: Case) -> None:
    """Blocks of one gradient share its Ask; the next one's rows of an item are two blocks on."""
    blocks = []
    for one in rated(rounds=2):
        for number in range(2):
            there = (one.held < ITEMS // 2) == (number == 0)
            part = one.raw[0][there], one.raw[1][there]
            blocks.append(replace(one, raw=part, seen=part))
    row, made = judged(clear, tuple(blocks))["ratings"]
    assert made.verdict == "FAIL" and row.protected.mean() > 0.95, made.reason


@pytest.mark.parametrize(("planned", "arises"), [(3, True), (1, False)])
def test_ratings_that_kept_rounds_do_not_tell_are_not_tested(planned: int, arises: bool) -> None:
    """The receiver had both rounds; that one was captured makes no question go away."""
    case: Any = SimpleNamespace(plan=SimpleNamespace(rounds=planned, items=()), policy=None)
    given = Material(case=case, items=rated(rounds=1))
    *_, last = ATTACK.run(given, np.random.default_rng(3), "quick").rows
    assert isinstance(last, NotApplicable) and last.reason == item_support.UNRATED
    assert last.arises == arises


def test_noise_and_totals_hide_how_high_a_user_rates(clear: Case) -> None:
    """The same attack, the same raw control: what is read is too little."""
    for hidden in (rated(noise=300.0), rated(total=True)):
        row, made = judged(clear, hidden)["ratings"]
        assert row.raw.mean() > 0.95 and row.protected.mean() < row.prior.mean() + 0.1
        assert made.verdict in ("PASS", "INCONCLUSIVE") and "weak" not in made.reason
    assert judged(clear, rated(noise=300.0))["ratings"][1].verdict == "PASS"


def test_ratings_follow_exactly_from_two_rounds_of_one_user() -> None:
    """But for a constant: the scale of the errors is solved for, not guessed."""
    own = [one for one in rated(rounds=3) if one.client == "client-03"]
    told = rated_method([(one.raw, one.table) for one in own if one.table is not None], ITEMS)
    assert told is not None and own[0].ratings is not None
    apart = told[own[0].held] - own[0].ratings
    assert np.ptp(apart) < 1e-6
    assert rated_method([(own[0].raw, np.zeros((ITEMS, WIDTH + 1)))], ITEMS) is None
