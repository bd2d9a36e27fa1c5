"""Ledgers show whether a run's sums kept to the policy's `cohort_changes`; the report says it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from audits.evidence.ledger_index import LedgerIndex
from audits.evidence.run_files import RunView
from audits.evidence.verify import verify
from audits.report.build import build_report
from audits.report.limits import limits
from protocols.sessions.survivors import CohortHistory
from protocols.wire.envelope import Header
from tests.audits.lies import finds
from tests.audits.toy_run import FIVE, Bus, Lose, Toy, countless, lose, run_toy, toy
from tests.protocols.toys import changed_policy

LOST = FIVE[1]
RULES = ["floor", "fixed"]


def run(rule: str, losing: Lose | None = None, policy: str = "masks", **facts: int) -> Toy:
    chosen = changed_policy(policy, cohort_changes=rule, **facts)
    return run_toy(chosen, rounds=3, clients=FIVE, losing=losing)


def detail(view: RunView) -> str:
    return next(step.detail for step in verify(view).steps if step.name == "opened")


@pytest.fixture
def careless(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Let no party of a run look at how cohorts change: all of them work together."""

    def careless() -> None:
        monkeypatch.setattr(CohortHistory, "serve", lambda *_: None)
        monkeypatch.setattr(CohortHistory, "fitting", lambda self, names: tuple(names))

    return careless


@pytest.mark.parametrize("policy", ["masks", "he"])
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("item", ["", ".up.SUM"])
def test_o5_an_honest_run_with_drop_outs_verifies_and_says_the_rule(
    rule: str, item: str, policy: str
) -> None:
    made = run(rule, lose(LOST, item, round=2), policy)
    view = made.view()
    assert verify(view).ok, verify(view).failed
    assert made.lost == [2] and f"(cohort_changes: {rule})" in detail(view)
    report = build_report(view)
    (vanished,) = report.dropouts.vanished
    assert (vanished.client, vanished.round) == (LOST, 2)
    assert [(lost.round, lost.arrived) for lost in report.dropouts.lost] == [(2, 4)]
    assert any(f"cohort_changes: {rule}" in limit for limit in report.limits)


@pytest.mark.parametrize("rule", RULES)
def test_o5_a_round_that_is_not_even_asked_leaves_evidence_that_holds(rule: str) -> None:
    """Who misses an epoch's keys costs its rounds: nothing goes out in them."""
    made = run(rule, lose(LOST, "pair.boxes", round=2), rekey_rounds=1)
    view = made.view()
    assert verify(view).ok, verify(view).failed
    assert made.lost == [2]
    opens = LedgerIndex.read(view.ledgers, made.plan).of_kind("open")
    assert [(entry["round"], entry["survivors"]) for _, entry in opens] == [(1, 5), (3, 5)]


@pytest.mark.parametrize("policy", ["masks", "he"])
@pytest.mark.parametrize("rule", RULES)
def test_o5_survivors_that_tell_one_client_fail_at_opened(
    rule: str, policy: str, careless: Callable[[], None]
) -> None:
    careless()
    made = run(rule, lose(LOST, ".up.SUM", round=2), policy)
    assert made.lost == []  # two totals were opened that differ by one client
    finds("opened", f"exchange 2 (round 2): {_says(rule)}", made.view())


@pytest.mark.parametrize("rule", RULES)
def test_o5_cohorts_that_tell_one_client_fail_at_opened(
    rule: str, careless: Callable[[], None]
) -> None:
    careless()
    made = run(rule, lose(LOST, "pair.boxes", round=2), rekey_rounds=1)
    assert made.lost == []
    finds("opened", f"(round 2): {_says(rule)}", made.view())


def test_o5_under_any_the_same_ledgers_verify() -> None:
    made = run("any", lose(LOST, ".up.SUM", round=2))
    view = made.view()
    assert verify(view).ok, verify(view).failed
    assert made.lost == [] and "cohort_changes" not in detail(view)


def test_o5_who_does_not_catch_up_leaves_a_cohort_that_may_be_asked() -> None:
    """Where clients compute models, some are sent totals before an Ask, and some are lost then."""
    plain = toy()
    (form,) = plain.forms
    begun = replace(form.moved_by_totals(), start=plain.init(np.random.default_rng(0)))
    ten = tuple(f"client-{number}" for number in range(10))
    policy = changed_policy("masks", cohort_changes="floor")
    bus = Bus(policy, 5, ten, algorithm=replace(plain, forms=(begun,)))
    away = set(ten[6:])

    def lost(header: Header, to: str) -> bool:
        late = header.round == 4 and to == ten[9] and header.item.startswith("totals")
        return late or (header.round in (2, 3) and bool({header.sender, to} & away))

    bus.lose = lost
    bus.play(5)
    played = bus.finish()
    view = played.view()
    assert verify(view).ok, verify(view).failed
    opens = LedgerIndex.read(view.ledgers, played.plan).of_kind("open")
    assert played.lost == [] and [e["survivors"] for _, e in opens] == [10, 6, 6, 6, 10]


def _says(rule: str) -> str:
    return "A sum is of other clients" if rule == "fixed" else "Totals of this run could be"


@pytest.mark.parametrize(
    ("policy", "said"),
    [("masks", True), ("he", True), ("unsafe_plaintext", False), ("calibrated", False)],
)
def test_a_report_says_where_nothing_bounds_differences(policy: str, said: bool) -> None:
    chosen = changed_policy(policy)
    algorithm = countless() if policy == "calibrated" else None
    plan = Bus(chosen, 1, FIVE, algorithm=algorithm).toy.plan
    found = limits(plan, simulated=True)
    assert any("cohort_changes: any" in limit for limit in found) is said


def test_a_report_says_what_two_of_three_clients_read() -> None:
    chosen = changed_policy("masks", minimum_cohort=2)
    three = limits(Bus(chosen, 1, FIVE[:3]).toy.plan, simulated=True)
    assert any("A total may be of three clients" in limit for limit in three)
    chosen = changed_policy("masks")
    four = limits(Bus(chosen, 1, FIVE[:4]).toy.plan, simulated=True)  # the control
    assert not any("A total may be of three clients" in limit for limit in four)
