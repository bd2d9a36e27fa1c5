"""Sums whose masks came off in one answer: losses are explained, and lies about it are found."""

from __future__ import annotations

from dataclasses import replace

import pytest

from audits.checks.opened import _at_once
from audits.evidence.drift import Yardstick
from audits.evidence.steps import Case
from audits.evidence.verify import verify
from audits.report.build import build_report
from protocols.errors import EvidenceError
from protocols.evidence.ledger import Entry
from tests.audits.forging import Change, rewrite
from tests.audits.lies import after, both, counts, drop, finds, matches, setting, silent, untold
from tests.audits.toy_run import AGGREGATOR, FIVE, Lose, Toy, lose, run_toy

LOST, OTHER = FIVE[1], FIVE[2]
HERE, SERVED = "step.all_here", "step.self_shares"


def run(policy: str = "masks", losing: Lose | None = None) -> Toy:
    return run_toy(policy, clients=FIVE, losing=losing)


@pytest.fixture(scope="module")
def whole() -> Toy:
    return run()


@pytest.mark.parametrize("policy", ["masks", "he"])
@pytest.mark.parametrize(
    ("item", "moment"),
    [
        (".all_here", "before the survivor list reached it"),
        (".self_shares", "before its shares arrived"),
    ],
)
def test_o5_a_holder_that_vanishes_is_told_and_explained(
    item: str, moment: str, policy: str
) -> None:
    toy = run(policy, lose(LOST, item, round=2))
    view = toy.view()
    assert verify(view).ok, verify(view).failed
    (vanished,) = build_report(view).dropouts.vanished
    assert (vanished.client, vanished.round, vanished.moment) == (LOST, 2, moment)
    assert toy.lost == []


@pytest.mark.parametrize(("item", "votes", "shares"), [(".all_here", 3, 3), (".self_shares", 3, 3)])
def test_a_round_lost_for_want_of_answers_is_told(item: str, votes: int, shares: int) -> None:
    two = [lose(name, item, round=1) for name in (LOST, OTHER)]
    toy = run(losing=lambda header, to: any(lost(header, to) for lost in two))
    view = toy.view()
    assert verify(view).ok, verify(view).failed
    (lost,) = build_report(view).dropouts.lost
    assert (lost.round, lost.arrived, lost.votes, lost.shares) == (1, 5, votes, shares)


LIES: dict[str, tuple[Change, str, str]] = {
    "an upload is denied, and counted": (
        drop(AGGREGATOR, kind="receipt", item="step.up.SUM", sender=LOST, round=2),
        "receipts",
        "no receipt",
    ),
    "an upload is taken away at both ends": (
        both(silent(LOST, "step.up.SUM"), counts(4)),
        "opened",
        "who had vanished",
    ),
    "what a holder was told is denied": (
        drop(LOST, kind="receipt", item=HERE, round=2),
        "receipts",
        "no receipt",
    ),
    "a holder recorded no list": (drop(OTHER, kind="survivors", round=2), "opened", "no list"),
    "another list": (
        setting(OTHER, {"kind": "survivors"}, list="0" * 64),
        "opened",
        "others were shown",
    ),
    "a list of fewer": (setting(OTHER, {"kind": "survivors"}, survivors=4), "opened", "other"),
    "too few answers": (
        both(*(silent(name, SERVED) for name in FIVE[:2])),
        "opened",
        "3 shares of one client's seed; 4 are needed",
    ),
    "an answer to what was never sent": (
        untold(OTHER, "step", 2, "all_here", keep=True),
        "opened",
        "never sent",
    ),
    "a list recorded before it came": (
        after(
            OTHER,
            {"kind": "receipt", "item": HERE, "round": 2},
            {"kind": "survivors", "round": 2},
        ),
        "opened",
        "before it came",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_o5_o7_a_lie_about_one_answer_is_found(name: str, whole: Toy) -> None:
    change, step, text = LIES[name]
    finds(step, text, rewrite(whole, whole.view(reports=False), change))


def test_o7_answers_that_came_after_the_opening_do_not_count(whole: Toy) -> None:
    held: list[Entry] = []

    def late(party: str, entry: Entry) -> list[Entry]:
        here = party == AGGREGATOR and entry.get("round") == 2
        if here and matches(entry, kind="receipt", item=SERVED) and entry["sender"] in FIVE[:2]:
            held.append(entry)
            return []
        return [entry, *held] if here and entry["kind"] == "open" else [entry]

    finds("opened", "3 shares of one", rewrite(whole, whole.view(reports=False), late))


def test_o7_what_one_answer_may_not_stand_beside(whole: Toy) -> None:
    case = Case(whole.view(reports=False))
    ask = case.exchanges.all[1]
    group = case.exchanges.group(ask.round)
    assert group is not None and set(ask.whole) == set(ask.served) == set(FIVE)
    _at_once(case, ask, group)
    sent = next(iter(ask.served.values()))
    wrong = {
        "some were not": replace(ask, arrived=frozenset(FIVE[:4])),
        "second survivor list": replace(ask, voted={OTHER: sent}),
        "never sent": replace(ask, whole={OTHER: sent}),
    }
    for text, changed in wrong.items():
        with pytest.raises(EvidenceError, match=text):
            _at_once(case, changed, group)
    with pytest.raises(EvidenceError, match="sparse graph"):
        _at_once(case, ask, replace(group, degree=2))
    with pytest.raises(EvidenceError, match="sparse graph"):
        _at_once(case, ask, replace(group, threshold=2))


def test_o7_both_ways_of_one_sum_are_more_than_was_planned(whole: Toy) -> None:
    case = Case(whole.view(reports=False))
    yardstick = Yardstick(case.plan, case.policy, case.roster)
    served = case.exchanges.all[1].served.values()
    votes = [replace(sent, facts={**sent.facts, "item": "step.vote"}) for sent in served]
    first = (sent for sent in case.ledger_index.releases() if sent.facts["round"] <= 1)
    kept = [sent for sent in first if sent not in served]
    often = "left more often in one round than planned"
    for releases, found in (([*kept, *served, *votes], len(votes)), ([*kept, *votes], 0)):
        whats = [violation.what for violation in yardstick.violations(releases)]
        assert whats.count(often) == found
