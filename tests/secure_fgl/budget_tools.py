"""What the tests of budgets share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from protocols.errors import EvidenceError
from protocols.policy.policy import Budget
from protocols.privacy.accounting import ORDERS, WRAP, net_epsilon
from secure_fgl.store.budgets import BudgetStore, Reservation

SITE, DATA = "bank-1", "accounts"


RHO = 0.5  # zCDP of one run: its curve is α ρ


CURVE = [repr(RHO * order) for order in ORDERS]


NOTHING = "0"


DELTA = 1e-5


def together(runs: int) -> float:
    """Return epsilon of so many runs, from the curve itself."""
    left = DELTA - (runs - 1) * WRAP
    return net_epsilon(np.asarray(ORDERS) * RHO * runs, left, tails=0.0)[0]


CAP = Budget(epsilon=together(2) * 1.001, delta=DELTA)  # covers two runs, not three


def reserve(store: BudgetStore, run: str = "r", data: str = DATA, cap: Budget = CAP) -> Reservation:
    return store.reserve(SITE, data, run, CURVE, NOTHING, cap)


@pytest.fixture
def store(tmp_path: Path) -> BudgetStore:
    return BudgetStore(tmp_path / "budgets")


def file_of(store: BudgetStore, ending: str = "jsonl") -> Path:
    (found,) = store.path.glob(f"*.{ending}")
    return found


def refused(store: BudgetStore) -> EvidenceError:
    with pytest.raises(EvidenceError) as raised:
        reserve(store)
    assert raised.value.step == "budget"
    return raised.value
