"""The budget store (O20): reservations compose, and nothing is refunded."""

from __future__ import annotations

import numpy as np
import pytest

from protocols.errors import BudgetExceeded, NotInPlan, PolicyError
from protocols.policy.budget import Reserve
from protocols.policy.policy import Budget
from protocols.privacy.accounting import ORDERS, WRAP, net_epsilon
from secure_fgl.errors import UsageError
from secure_fgl.store.budgets import BudgetStore
from tests.secure_fgl.budget_tools import (
    CAP,
    CURVE,
    DATA,
    DELTA,
    NOTHING,
    RHO,
    SITE,
    file_of,
    reserve,
    together,
)


def test_o20_reservations_compose_and_the_cap_holds(store: BudgetStore) -> None:
    first, second = reserve(store), reserve(store)
    assert (first.entries, second.entries) == (1, 2)
    for found, runs in ((first, 1), (second, 2)):
        assert together(runs) <= float(found.epsilon) <= together(runs) * 1.00001  # rounded up
        assert found.delta == repr(DELTA)
    before = file_of(store).read_bytes()
    with pytest.raises(BudgetExceeded) as raised:
        reserve(store)
    assert isinstance(raised.value, PolicyError)
    assert "accounts" in str(raised.value) and "before: 2;" in raised.value.why
    assert file_of(store).read_bytes() == before  # a refused run has reserved nothing
    assert store.spent(SITE, DATA, DELTA) == second


def test_o20_one_run_too_large_is_refused_at_once(store: BudgetStore) -> None:
    with pytest.raises(BudgetExceeded):
        reserve(store, cap=Budget(epsilon=together(1) * 0.999, delta=DELTA))
    assert store.spent(SITE, DATA, DELTA).entries == 0
    assert reserve(store, cap=Budget(epsilon=together(1) * 1.001, delta=DELTA)).entries == 1


def test_o20_nothing_is_refunded_and_the_same_run_pays_again(store: BudgetStore) -> None:
    assert [reserve(store, "run").entries for _ in range(2)] == [1, 2]
    with pytest.raises(BudgetExceeded):
        reserve(BudgetStore(store.path), "run")  # another object, the same file
    assert not [name for name in dir(store) if "refund" in name or "remove" in name]


def test_o20_every_data_set_and_site_has_its_own_budget(store: BudgetStore) -> None:
    reserve(store)
    reserve(store)
    assert reserve(store, data="loans").entries == 1
    assert store.reserve("bank-2", DATA, "r", CURVE, NOTHING, CAP).entries == 1
    assert len(list(store.path.glob("*.jsonl"))) == 3


def test_o20_a_smaller_cap_of_a_later_policy_counts_what_went_before(store: BudgetStore) -> None:
    reserve(store)
    with pytest.raises(BudgetExceeded):
        reserve(store, cap=Budget(epsilon=together(1) * 1.2, delta=DELTA))


def test_o19_tails_of_all_runs_come_out_of_delta(store: BudgetStore) -> None:
    wide = Budget(epsilon=1000.0, delta=DELTA)
    part = DELTA * 1e-5
    curve = np.asarray(ORDERS) * RHO
    for runs in (1, 2):
        found = store.reserve(SITE, DATA, "r", CURVE, repr(part), wide)
        left = DELTA - (runs - 1) * WRAP
        exact = net_epsilon(curve * runs, left, tails=part * runs)[0]
        assert float(found.epsilon) == pytest.approx(exact, rel=1e-5)
        assert float(found.epsilon) > together(runs) * 1.00002
    with pytest.raises(BudgetExceeded):
        store.reserve(SITE, DATA, "r", CURVE, repr(DELTA), wide)  # e^ε times this is all of it


def test_o19_wrap_comes_out_of_delta_once_for_every_run(store: BudgetStore) -> None:
    cap = Budget(epsilon=1000.0, delta=2.5 * WRAP)
    flat = ["0"] * len(ORDERS)
    for _ in range(2):
        store.reserve(SITE, DATA, "r", flat, NOTHING, cap)
    with pytest.raises(BudgetExceeded):
        store.reserve(SITE, DATA, "r", flat, NOTHING, cap)


def test_o20_a_session_gets_a_door_to_its_own_site_only(store: BudgetStore) -> None:
    door: Reserve = store.door(SITE)
    curve = [float(text) for text in CURVE]
    facts = door(dataset=DATA, run="r", rdp=curve, cap=CAP)
    assert sorted(facts) == ["dataset", "delta", "entries", "epsilon", "head"]
    assert (facts["dataset"], facts["entries"], facts["delta"]) == (DATA, 1, repr(DELTA))
    assert facts["head"] == store.spent(SITE, DATA, DELTA).head
    door(dataset=DATA, run="r", rdp=curve, cap=CAP)
    with pytest.raises(BudgetExceeded):
        door(dataset=DATA, run="r", rdp=curve, cap=CAP)


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "1e", "", "0x1", "1" * 65])
def test_a_reservation_holds_numbers_only(store: BudgetStore, text: str) -> None:
    for curve, delta in (([text, *CURVE[1:]], NOTHING), (CURVE, text)):
        with pytest.raises(UsageError):
            store.reserve(SITE, DATA, "r", curve, delta, CAP)
    with pytest.raises(UsageError):
        store.reserve(SITE, DATA, "r", CURVE[1:], NOTHING, CAP)
    assert store.spent(SITE, DATA, DELTA).entries == 0


def test_o20_a_site_reserves_for_its_own_data_only(store: BudgetStore) -> None:
    """A plan from somebody else may name other data, whose budget is untouched."""
    take = store.door(SITE, DATA)
    curve = [RHO * order for order in ORDERS]
    with pytest.raises(NotInPlan, match="another data set"):
        take(dataset="other", run="r", rdp=curve, cap=CAP)
    assert not list(store.path.glob("*.jsonl"))
    assert take(dataset=DATA, run="r", rdp=curve, cap=CAP)["entries"] == 1
