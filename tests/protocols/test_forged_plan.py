"""A plan from somebody else: the policy decides how a message is protected, not a label in it."""

from __future__ import annotations

from typing import Any

import pytest

from protocols.disclosures.names import Disclosure
from protocols.errors import NotInPlan
from protocols.plan.plan import Plan, message_plan
from protocols.policy.guard import describe
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.codec import bundle_bytes
from tests.protocols.toys import Update, toy_plan
from tests.protocols.wire import World

POLICY = PrivacyPolicy.preset("masks")


def relabelled(disclosure: Disclosure, **facts: Any) -> Plan:
    """Return a plan that calls the upload of a SUM something else, consistently."""
    plan = toy_plan(policy=POLICY, bfv=None)
    item = plan.item("train.up.SUM")
    body = bundle_bytes((Update,), {**plan.dims, **item.dims})
    changed = {
        "disclosure": disclosure,
        "guards": tuple(describe(guard) for guard in POLICY.chain(disclosure)),
        "body": body,
        "bytes": item.bytes + body + 4000,
        "messages": (message_plan(Update, plan.dims),),
        **facts,
    }
    items = tuple(
        each.model_copy(update=changed) if each.id == item.id else each for each in plan.items
    )
    return plan.model_copy(update={"items": items})


@pytest.mark.parametrize("label", ["PUBLIC", "RELEASED", "SEALED"])
def test_an_upload_that_is_called_something_else_is_not_begun(label: str) -> None:
    with pytest.raises(NotInPlan):
        World(policy=POLICY, plan=relabelled(Disclosure(label)))


@pytest.mark.parametrize("label", ["PUBLIC", "RELEASED", "SEALED"])
def test_nor_with_its_message_called_the_same(label: str) -> None:
    """The class knows what it discloses; a plan that says otherwise never gets an upload."""
    told = message_plan(Update, toy_plan(policy=POLICY, bfv=None).dims)
    message = told.model_copy(update={"disclosure": Disclosure(label)})
    plan = relabelled(Disclosure(label), messages=(message,))
    try:
        world = World(policy=POLICY, plan=plan).start()
    except NotInPlan:
        return
    client = world.clients["client-1"]
    client.receive(world.evil_ask("client-1"))
    assert isinstance(client.last_error, NotInPlan)
    assert not [e for e in world.entries("client-1") if e.get("item") == "train.up.SUM"]


@pytest.mark.parametrize("label", ["PUBLIC", "RELEASED", "SEALED"])
def test_o13_nor_beside_a_message_that_is(label: str) -> None:
    """What the item is called is then said in it, and would protect the upload beside it."""
    dims = toy_plan(policy=POLICY, bfv=None).dims
    told = message_plan(Update, dims)
    beside = told.model_copy(update={"name": "Beside", "disclosure": Disclosure(label)})
    with pytest.raises(NotInPlan, match="something that it does not say"):
        World(policy=POLICY, plan=relabelled(Disclosure(label), messages=(beside, told)))


def test_the_honest_plan_is_begun() -> None:
    assert World(policy=POLICY, plan=toy_plan(policy=POLICY, bfv=None)).start()


def as_drawn(**items: dict[str, Any]) -> Plan:
    """Return a plan of which these items, by their step's name, say something else."""
    document = toy_plan(policy=POLICY, bfv=None).document()
    for item in document["items"]:
        item.update(items.get(item["step"], {}))
    return Plan.model_validate(document)


def test_ways_that_may_leave_unequally_often_do_not_hide_what_leaves() -> None:
    """Totals count the larger way alone, which is right if both may leave equally often.

    Of 3 answers and 100 votes, a gateway lets 3 and then 97 leave.
    """
    as_drawn()
    for facts in ({"times": 100}, {"per_round": 7}):
        with pytest.raises(ValueError, match="ways"):
            as_drawn(vote=facts)
