"""What a client sends that follows from what it was handed: who says so, and who is told (O16)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from protocols.errors import NotAdmitted, NotInPlan
from protocols.forms import Form
from protocols.policy.policy import PrivacyPolicy
from tests.protocols.toys import GIFTS, PULL, Gift, toy_plan
from tests.protocols.wire import World

RETOLD: Form[Any] = replace(
    GIFTS,
    name="retold",
    exchanges=(
        replace(GIFTS.exchanges[0], follows=(Gift,)),
        GIFTS.exchanges[1],
        *PULL.exchanges,
    ),
)
BARE: Form[Any] = replace(RETOLD, name="bare", exchanges=(*GIFTS.exchanges, *PULL.exchanges))


def _loose(name: str) -> PrivacyPolicy:
    policy = PrivacyPolicy.preset(name)
    document = policy.document()
    for guard in document["rules"]["SUM"]:
        if guard["guard"] == "own_noise":
            guard["accept_noise"] = True
    return PrivacyPolicy.model_validate(document)


@pytest.mark.parametrize("name", ["calibrated", "ldp"])
def test_o16_what_follows_from_totals_is_covered_by_their_noise(name: str) -> None:
    """Control: the same message without these words makes epsilon infinite, or is refused."""
    plan = toy_plan(RETOLD, _loose(name), bfv=None)
    item = plan.item("fill.up.SEALED")
    assert item.follows and item.noise is None
    assert "infinity" not in plan.budget
    assert any(text.startswith("fill.up.SEALED: follows from") for text in plan.warnings)
    if name == "ldp":
        with pytest.raises(NotAdmitted):
            toy_plan(BARE, _loose(name), bfv=None)
    else:
        assert "infinity for the run" in toy_plan(BARE, _loose(name), bfv=None).budget


def test_o16_a_client_refuses_a_plan_that_says_so_of_what_holds_its_data() -> None:
    policy = PrivacyPolicy.preset("masks")
    said = toy_plan(RETOLD, policy, bfv=None)
    lie = replace(BARE, name="retold")
    with pytest.raises(NotInPlan, match="no data"):
        World(lie, policy, plan=said, clients=said.clients)
    World(RETOLD, policy, plan=said, clients=said.clients)
