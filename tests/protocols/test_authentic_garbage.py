"""Signed, planned, of the right size, and full of garbage: no peer crashes another."""

import pytest

from crypto.samplers import Stream
from protocols.errors import LocalProtocolError, RemoteProtocolError
from protocols.sessions.part import State
from tests.protocols.toys import GIFTS, SOW, TRAIN
from tests.protocols.wire import World, refused
from tests.thinned import thinned

PARTIES = {"client": "client-1", "aggregator": "aggregator", "key_authority": "key-authority"}
STAGES = ("before the key", "idle", "asked", "opening", "later")


IDENTITIES = World().identities  # making keys takes longer than what is tested


def at(form, stage):
    """Return a world that stands at a stage of its run."""
    world = World(form, identities=IDENTITIES)
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


def bodies(size, stream, stage):
    yield bytes(size)
    yield stream.bytes(size)
    if stage == "idle":
        yield stream.bytes(size + 1)
        yield b"\xff" * size
        yield b"\x1f" + bytes(size - 1) if size else b""  # a cohort of everybody


CASES = [(form, stage) for form in (TRAIN, GIFTS) for stage in STAGES]


@pytest.mark.parametrize(
    ("form", "stage"),
    thinned([*CASES, (SOW, "before the key"), (SOW, "idle")]),
    ids=lambda case: getattr(case, "name", case),
)
def test_every_item_full_of_garbage_ends_in_a_refusal(form, stage):
    stream, world = Stream(b"\x0b" * 32), at(form, stage)
    for item in world.plan.items:
        for number, body in enumerate(bodies(item.body, stream, stage)):
            if not alive(world, item.recipient):
                world = at(form, stage)
            target = alive(world, item.recipient)[0]
            sender = PARTIES[item.sender] if item.sender != "client" else "client-5"
            to = "roster" if item.recipient == "roster" else target
            session = world.session(target)
            where = world.where(exchange=1 + 10 * number * (stage == "later"), given="ab" * 32)
            data = world.forge(sender, item.id, to, body, where)
            try:
                answers = session.receive(data)
            except RemoteProtocolError:
                continue
            if target == "aggregator" and item.id.startswith("pair."):
                continue  # bytes that only a neighbour can judge
            if target == "aggregator":  # it takes an answer in; adding up is another step
                with pytest.raises((RemoteProtocolError, LocalProtocolError)):
                    session.advance()
                    session.reply()
                world = at(form, stage)
            else:
                assert item.id in ("key.call", "pair.call") or refused(answers)


def alive(world, role):
    """Return the parties of a role that are not over; everyone may be a client."""
    names = world.names[:4] if role in ("client", "roster") else [PARTIES[role]]
    return [name for name in names if world.session(name).state is not State.DEAD]
