"""The account's budget, the other arithmetics, honest shares, hostile files."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from audits.accounting import account as account_module
from audits.accounting import engines, models, rows
from audits.accounting.account import account, account_of
from audits.accounting.engines import differs, opacus
from audits.accounting.models import Account
from audits.evidence.steps import Case, Status, Step, Verification
from protocols.errors import EvidenceError
from protocols.plan.plan import NoisePlan
from tests.audits.account_tools import CALIBRATED, item
from tests.audits.noised_run import DELTA, NoisedRun, noise_plan


def budget(**facts: Any) -> dict[str, Any]:
    return {"epsilon": "8", "delta": repr(DELTA), "entries": 1, **facts}


def test_o20_the_store_s_state_stands_beside_each_client(found: Account) -> None:
    for client in found.clients:
        assert client.budget is not None
        assert (client.budget.epsilon.value, client.budget.cap.value) == ("8.0", "10.0")
        assert client.budget.epsilon.scope == "all runs"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (budget(epsilon="10.5"), "is exceeded"),
        (budget(epsilon="nan"), "is exceeded"),
        (budget(epsilon="much"), "is exceeded"),
        (budget(delta="0.01"), "is exceeded"),
        (budget(epsilon="7.9"), "reserved less than the run's noise comes to"),
        (None, "before a budget was reserved"),
    ],
)
def test_o20_a_budget_exceeded_or_not_reserved_falsifies(
    facts: dict[str, Any] | None, why: str, quick: None
) -> None:
    found = NoisedRun(budget=facts).account()
    assert found.verdict == "FALSIFIED"
    assert [why in reason for reason in found.reasons] == [True]


def test_o20_a_reservation_after_the_first_noise_is_none(quick: None) -> None:
    run = NoisedRun()
    entries = NoisedRun._entries

    def late(self: NoisedRun, name: str, plan: Any) -> Iterator[Any]:
        found = list(entries(self, name, plan))
        yield from (*found[1:], found[0])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NoisedRun, "_entries", late)
        assert run.account().verdict == "FALSIFIED"


def test_opacus_agrees_on_the_equivalent_gaussian(found: Account) -> None:
    own, rdp, prv = found.engines
    assert own.epsilon == found.clients[0].epsilon or own.epsilon is not None
    assert rdp.epsilon and prv.epsilon
    assert rdp.epsilon.as_float() == pytest.approx(found.epsilon.as_float(), rel=1e-3)
    assert 0.9 < float(prv.ratio) < 1.0
    assert not any(engine.differs for engine in found.engines)
    assert not any("gdp" in engine.engine.lower() for engine in found.engines)


@pytest.mark.parametrize(("missing", "epsilon"), [(0, 13.2), (2, 14.1), (10, 20.7), (18, 64.2)])
def test_c4_the_worked_example(missing: int, epsilon: float) -> None:
    history = [(4.0 * math.sqrt((20 - missing) / 20), 1.0, 100)]
    values = dict(opacus(history, 1e-5))
    assert values["Opacus PRV"] == pytest.approx(epsilon, rel=0.01)
    assert values["Opacus PRV"] < values["Opacus RDP"] < values["Opacus PRV"] * 1.1


def test_c4_one_honest_client_is_above_what_prv_is_asked_for() -> None:
    values = dict(opacus([(4.0 / math.sqrt(20), 1.0, 100)], 1e-5))
    assert values["Opacus RDP"] > 109
    assert "not computed" in values["Opacus PRV"]


def test_many_shares_are_merged_towards_less_noise() -> None:
    history = [(4.0 + n / 100, 1.0, 5) for n in range(20)]
    values, least = dict(opacus(history, 1e-5)), dict(opacus([(4.0, 1.0, 100)], 1e-5))
    assert len(engines._few(history)) <= 8
    assert values["Opacus PRV"] > dict(opacus([(4.1, 1.0, 100)], 1e-5))["Opacus PRV"] * 0.99
    assert values["Opacus PRV"] <= least["Opacus PRV"]


def test_arithmetics_that_differ_by_more_than_a_tenth_are_said_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rows, "opacus", lambda history, delta: [("Opacus RDP", 5.0), ("x", 6.3)])
    found = NoisedRun().account()
    assert [engine.differs for engine in found.engines] == [False, True, False]
    assert found.engines[1].note.startswith("DIFFERS")
    assert found.verdict == "NOT FALSIFIED"
    assert [differs(1.0, x) for x in (0.89, 0.91, 1.0, 1.09, 1.11, math.nan)] == [
        True, False, False, False, True, True,
    ]  # fmt: skip


def test_c4_the_whole_column_is_told(found: Account, quick: None) -> None:
    assert [(row.missing, row.honest) for row in found.honest_share] == [
        (x, 6 - x) for x in range(6)
    ]
    column = [row.epsilon.as_float() for row in found.honest_share]
    assert column == sorted(column)
    assert column[-1] > 2 * column[0]
    many = NoisedRun(clients=200).account().honest_share
    missing = [row.missing for row in many]
    assert {0, 1, 196, 199} <= set(missing)  # 196: what the plan counts on
    assert len(missing) < 20
    assert [row.honest for row in many] == [200 - x for x in missing]


@pytest.mark.parametrize(
    "facts",
    [
        {"sigma": "nan"}, {"sigma": "-1"}, {"sigma": "x"}, {"l2": "inf"}, {"l1": "0"},
        {"honest": 0}, {"honest": 7}, {"honest": 10**15}, {"releases": 0}, {"releases": 10**15},
        {"coordinates": 10**15}, {"delta": "1"}, {"delta": "0"}, {"epsilon": "0"},
        {"mechanism": "gaussian"},
    ],
)  # fmt: skip
def test_noise_that_cannot_be_counted_with_is_refused(facts: dict[str, Any]) -> None:
    noise = noise_plan(CALIBRATED, 3).model_copy(update=facts)
    run = NoisedRun()
    with pytest.raises(EvidenceError) as raised:
        NoisedRun(more=(item(run, noise=noise),)).account()
    assert raised.value.step == "plan"


def test_noise_outside_of_what_was_analysed_has_no_bound(quick: None) -> None:
    found = NoisedRun(noise={"sigma": "0.3"}).account()
    assert found.verdict == "FALSIFIED"
    assert found.epsilon.value == "infinity"


def test_broken_evidence_is_told(quick: None) -> None:
    view = NoisedRun().view()
    found = account(view)  # written by hand, so without receipts and heads
    assert found.failed
    assert found.evidence.startswith("FAILED at")
    step = Step("receipts", Status.FAIL, "x")
    told = account_of(Case(view), Verification((step,)))
    assert (told.failed, told.evidence) == (("receipts",), "FAILED at receipts")
    with pytest.raises(EvidenceError):
        account(replace(view, plan_text=b"{}"))


def test_reading_changes_nothing(quick: None) -> None:
    view = NoisedRun().view()
    case = Case(view)
    one, two = (account_of(case, Verification(())) for _ in range(2))
    assert one == two == account_of(Case(view), Verification(()))


def test_names_are_unique(found: Account) -> None:
    assert models.Account is account_module.Account
    assert len({client.name for client in found.clients}) == len(found.clients) == 6
    assert isinstance(noise_plan(CALIBRATED, 3), NoisePlan)
