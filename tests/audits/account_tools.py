"""What the tests of account share."""

from __future__ import annotations

from typing import Any

import pytest

from audits.accounting import rows
from audits.accounting.models import Account
from protocols.disclosures.names import Disclosure
from protocols.plan.plan import Item
from protocols.policy.guards import UnsafeClear
from protocols.policy.policy import PrivacyPolicy
from tests.audits.noised_run import SCORE, NoisedRun, message

CALIBRATED = PrivacyPolicy.preset("calibrated")


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave Opacus out: importing it takes seconds."""
    monkeypatch.setattr(rows, "opacus", lambda history, delta: [("Opacus RDP", "left out")])


@pytest.fixture(scope="module")
def found() -> Account:
    return NoisedRun().account()


def policy(*, seal: bool = True, **changes: Any) -> PrivacyPolicy:
    """Return `calibrated` with other settings."""
    chain = CALIBRATED.rules[Disclosure.SUM]
    if not seal:
        chain = (*chain[:3], UnsafeClear())
    rules = {**CALIBRATED.rules, Disclosure.SUM: chain}
    return PrivacyPolicy.model_validate({**CALIBRATED.model_dump(), "rules": rules, **changes})


def item(run: NoisedRun, id: str = SCORE, **facts: Any) -> Item:
    return run.item(id, (message("Score"),), **facts)
