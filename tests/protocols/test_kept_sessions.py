"""What sessions keep of a run: by slots and epochs, in every commit."""

from __future__ import annotations

from protocols.keys.groups import slot_of
from protocols.sessions.part import Scope
from tests.protocols.killed import Killed
from tests.protocols.unveiling import ITEM


def _world() -> Killed:
    world = Killed(policy="masks", rounds=2)
    world.keep()
    return world.start()


def test_o9_when_an_epoch_ends_its_journal_does():
    world = _world()
    name = world.names[0]
    client, drawer = world.clients[name], world.state_stores[name]
    client.commit()
    before = drawer.outside
    client.commit()
    assert drawer.outside.generation == before.generation  # the control: no epoch ended
    client.forget(Scope.EPOCH)
    client.commit()
    assert drawer.outside.generation == before.generation + 1
    assert drawer.outside.key != before.key
    assert [n for n in drawer.names() if n.startswith("journal-")] == [
        f"journal-{drawer.outside.generation}"
    ]


def test_o6_a_slot_that_was_used_up_is_flushed_and_nothing_else_is():
    world = _world()
    name = world.names[0]
    client, drawer = world.clients[name], world.state_stores[name]
    client.commit()
    flushed = []
    advance = drawer.advance

    def noted(number, *, flush):
        flushed.append(flush)
        advance(number, flush=flush)

    drawer.advance = noted
    client.commit()
    slot = slot_of(world.plan.item(ITEM), 1, 0)
    client.context.pairs.keys(slot, world.names, ("label",))
    client.commit()
    client.context.pairs.give(slot, world.names, world.names)
    client.commit()
    client.commit()
    assert flushed == [False, True, True, False]
