"""A label stands in every derivation: what people read may be renamed, and no result moves."""

from __future__ import annotations

import numpy as np
import pytest

from protocols.evidence.ledger import Ledger, MemoryStore
from protocols.plan.plan import Plan
from protocols.wire.gateway import Gateway
from tests.protocols.toys import Update
from tests.protocols.unveiling import ITEM
from tests.protocols.wire import ROUNDING, World

ROUNDS = 3


def uploads(world: World, *places: tuple[int, int]) -> list[bytes]:
    """Return what client 1 uploads at these (round, exchange), one after the other, in clear."""
    context = world.context("client-1")
    gateway = Gateway(context, Ledger("client-1", world.run, MemoryStore(), lambda: ""), ROUNDING)
    message = Update(delta=np.linspace(-0.31, 0.37, world.d), count=3)
    return [
        bytes(
            gateway.release(
                ITEM, [message], "aggregator", world.where(round=round, exchange=exchange)
            ).body
        )
        for round, exchange in places
    ]


@pytest.fixture(scope="module")
def world() -> World:
    return World(policy="unsafe_plaintext", d=64, rounds=ROUNDS)


def test_rounding_follows_label_round_and_ordinal_and_not_the_number_of_an_ask(
    world: World,
) -> None:
    one, two, three = uploads(world, (1, 1), (2, 2), (3, 3))
    assert len({one, two, three}) == 3
    assert uploads(world, (1, 5), (2, 9), (3, 10)) == [one, two, three]


def test_rounding_follows_the_label(world: World) -> None:
    def labelled(text: str) -> Plan:
        items = tuple(
            item.model_copy(update={"label": text}) if item.id == ITEM else item
            for item in world.plan.items
        )
        return world.plan.model_copy(update={"items": items})

    same, other = (
        World(policy="unsafe_plaintext", d=64, rounds=ROUNDS, plan=labelled(text))
        for text in (ITEM, "another label")
    )
    assert uploads(same, (1, 1)) == uploads(world, (1, 1)) != uploads(other, (1, 1))


def test_no_two_items_share_a_label(world: World) -> None:
    item = world.plan.item(ITEM)
    twin = item.model_copy(update={"id": "twin.up.SUM"})
    document = world.plan.model_copy(update={"items": (*world.plan.items, twin)}).document()
    with pytest.raises(ValueError, match="labels: a name stands twice"):
        Plan.model_validate(document)
