"""Every item of every plan is sent by one role and taken by one handler at its recipient."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, NotAdmitted, NotInPlan
from protocols.plan.plan import Item, Plan
from protocols.plan.steps import Service, Step, item_id
from protocols.policy.policy import PRESETS
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role, session_of
from protocols.wire.roster import EVERYONE
from secure_fgl.catalogue import algorithm_names
from secure_fgl.federation import Federation
from tests.laws.runs import config
from tests.protocols.matched import match_plan, match_policy
from tests.protocols.rowed import row_plan, row_policy
from tests.protocols.test_o23_noised import relaying
from tests.protocols.test_own_noise import SAY
from tests.protocols.toys import TRAIN, toy_plan
from tests.protocols.wire import World


def plans() -> list[Plan]:
    """Return the plan of every algorithm under every preset that has a form of it."""
    found = [World(policy=name).plan for name in ("pilot", "masks", "ckks")]
    found.append(World(replace(TRAIN, drawn=4), "masks", clients=8).plan)
    for name in algorithm_names():
        for policy in PRESETS:
            try:
                found.append(Federation.from_config(config(name, policy)).plan())
            except NotAdmitted:
                continue
    return found


PUBLISHED = match_policy(form="published")
MATCHED = [match_plan(match_policy()), match_plan(PUBLISHED, places=400)]
ROWED = row_plan(row_policy())
RELAYED = toy_plan(SAY, relaying(alone="sqkr"), bfv=None)  # noised messages, which no preset relays
ITEMS = [item for plan in [*plans(), *MATCHED, ROWED, RELAYED] for item in plan.items]
ROLES = {str(role): session for role, session in ((r, session_of(r)) for r in Role)}


def test_every_planned_step_has_one_handler_at_its_recipient() -> None:
    seen = {(item.recipient, item.part, item.step) for item in ITEMS}
    assert len(seen) > 30 and {part for _, part, _ in seen} >= {*Service}
    for recipient, part, step in seen:
        if recipient == EVERYONE:
            takers = [session for session in ROLES.values() if (part, step) in session.takes]
            assert takers, (part, step)
        else:
            assert (part, step) in ROLES[recipient].takes, (recipient, part, step)


def test_no_handler_waits_for_what_nobody_plans() -> None:
    seen = {(part, step) for item in ITEMS for part, step in [(item.part, item.step)]}
    everything = {(d, Step.UP) for d in Disclosure}  # an algorithm may bring back any of them
    for session in ROLES.values():
        assert set(session.takes) <= seen | everything, session


def test_ids_and_steps_name_the_same_item() -> None:
    for item in ITEMS:
        assert item.id == item_id(item.exchange, item.part, item.step, item.sender)


@pytest.mark.parametrize(
    ("part", "step", "exchange", "why"),
    [
        (Service.REFUSAL, Step.REFUSE, "train", "is no refusal"),
        (Service.REFUSAL, Step.UP, "", "is no refusal"),
        (Service.KEYS, Step.REFUSE, "", "is not the id of its part and step"),
    ],
)
def test_a_plan_whose_refusal_is_of_another_step_is_none(
    part: Service, step: Step, exchange: str, why: str
) -> None:
    plan = World().plan
    kept = plan.model_dump(mode="json")
    Plan.model_validate(kept)  # the control
    (refusal,) = (item for item in kept["items"] if item["id"] == "refusal.client")
    refusal.update({"part": str(part), "step": str(step), "exchange": exchange})
    with pytest.raises(ValueError, match=why):
        Plan.model_validate(kept)


@pytest.mark.parametrize("role", [Role.CLIENT, Role.AGGREGATOR, Role.KEY_AUTHORITY])
def test_an_unknown_step_falls_through_to_nothing(role: Role) -> None:
    world = World()
    session = {
        Role.CLIENT: world.clients[world.names[0]],
        Role.AGGREGATOR: world.aggregator,
        Role.KEY_AUTHORITY: world.authority,
    }[role]
    known = world.plan.items[0]
    for part, step in ((Service.ASK, Step.PART), (Disclosure.SUM, Step.TAGS)):
        item: Item = known.model_copy(update={"part": part, "step": step})
        with pytest.raises(BadEnvelope, match="not for a"):
            session.handler(Incoming(None, item, b"", None))  # type: ignore[arg-type]


def test_a_step_that_is_not_planned_is_not_found() -> None:
    context = World(policy="masks").context("client-1")
    assert context.find("train", Disclosure.SUM, Step.UP).id == "train.up.SUM"
    assert context.refusal.id == "refusal.client"
    for place in (("train", Disclosure.SUM, Step.OPEN), ("other", Disclosure.SUM, Step.UP)):
        assert not context.plans(*place)
        with pytest.raises(NotInPlan):
            context.find(*place)
