"""Signed, planned, of the right size, and full of garbage: no peer crashes another."""

import pytest

from crypto.samplers import Stream
from protocols.errors import LocalProtocolError, RemoteProtocolError
from protocols.sessions.table import State
from tests.protocols.toys import GIFTS, SOW, TRAIN
from tests.protocols.wire import World, refused

PARTIES = {"client": "client-1", "aggregator": "aggregator", "key_authority": "key-authority"}
STAGES = ("before the key", "idle", "asked", "opening", "later")


def at(form, stage):
    """Return a world that stands at a stage of its run."""
    world = World(form)
    if stage == "before the key":
        return world
    world.start()
    if stage == "asked" or (stage == "opening" and form is GIFTS):
        world.ask(1)
    elif stage == "opening":
        world.until_open(1)
    elif stage == "later":
        world.round(1)
    return world


def bodies(size, stream):
    yield bytes(size)
    yield b"\xff" * size
    yield stream.bytes(size)
    yield b"\x1f" + bytes(size - 1) if size else b""  # a cohort of everybody
    yield stream.bytes(size + 1)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("form", [TRAIN, SOW, GIFTS], ids=lambda form: form.name)
def test_every_item_full_of_garbage_ends_in_a_refusal(form, stage):
    stream = Stream(b"\x0b" * 32)
    for item in World(form).plan.items:
        sender = "client-2" if item.sender == "client" else PARTIES[item.sender]
        target = PARTIES.get(item.recipient, "client-1")
        to = "roster" if item.recipient == "roster" else target
        world = at(form, stage)
        for number, body in enumerate(bodies(item.body, stream)):
            session = world.session(target)
            if session.state is State.DEAD:
                world = at(form, stage)
                session = world.session(target)
            where = world.where(exchange=1 + 10 * number * (stage == "later"), given="ab" * 32)
            data = world.forge(sender, item.id, to, body, where)
            try:
                answers = session.receive(data)
            except RemoteProtocolError:
                continue
            if target == "aggregator":  # it takes an answer in; adding up is another step
                with pytest.raises((RemoteProtocolError, LocalProtocolError)):
                    session.advance()
                    session.reply()
            else:
                assert item.id == "key.call" or refused(answers)
