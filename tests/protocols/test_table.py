"""The tables of roles and of parts: everything that is not in them raises."""

import itertools

import pytest

from protocols.errors import LocalProtocolError, WrongStage
from protocols.sessions.part import IDLE, Event, SessionPart, State, advance
from protocols.wire.roles import Role, session_of
from tests.protocols.wire import World

ALL = list(itertools.product(Role, State, Event))
LEGAL = {
    (Role.CLIENT, State.NEW, Event.KEY): State.READY,
    (Role.CLIENT, State.NEW, Event.DRAW): State.NEW,
    (Role.CLIENT, State.READY, Event.DRAW): State.READY,
    (Role.AGGREGATOR, State.KEYING, Event.DRAW): State.KEYING,
    (Role.CLIENT, State.NEW, Event.PAIR): State.READY,
    (Role.CLIENT, State.NEW, Event.BEGIN): State.READY,
    (Role.CLIENT, State.READY, Event.KEY): State.READY,
    (Role.CLIENT, State.READY, Event.PAIR): State.READY,
    (Role.CLIENT, State.READY, Event.ASK): State.READY,
    (Role.CLIENT, State.READY, Event.STEP): State.READY,
    (Role.CLIENT, State.READY, Event.PART): State.PARTED,
    (Role.TAG_SERVER, State.NEW, Event.STEP): State.READY,
    (Role.TAG_SERVER, State.READY, Event.STEP): State.READY,
    (Role.MATCHER, State.NEW, Event.STEP): State.READY,
    (Role.MATCHER, State.READY, Event.STEP): State.READY,
    (Role.RELAY, State.NEW, Event.STEP): State.READY,
    (Role.RELAY, State.READY, Event.STEP): State.READY,
    (Role.WITNESS, State.NEW, Event.KEY): State.READY,
    (Role.WITNESS, State.READY, Event.KEY): State.READY,
    (Role.WITNESS, State.READY, Event.STEP): State.READY,
    (Role.KEY_AUTHORITY, State.NEW, Event.BEGIN): State.READY,  # where no keys are called for
    (Role.KEY_AUTHORITY, State.NEW, Event.KEY): State.READY,
    (Role.KEY_AUTHORITY, State.READY, Event.KEY): State.READY,
    (Role.KEY_AUTHORITY, State.READY, Event.STEP): State.READY,
    (Role.AGGREGATOR, State.NEW, Event.SETUP): State.KEYING,
    (Role.AGGREGATOR, State.NEW, Event.BEGIN): State.READY,
    (Role.AGGREGATOR, State.KEYING, Event.KEY): State.KEYING,
    (Role.AGGREGATOR, State.KEYING, Event.PAIR): State.KEYING,
    (Role.AGGREGATOR, State.KEYING, Event.BEGIN): State.READY,
    (Role.AGGREGATOR, State.READY, Event.SETUP): State.KEYING,
    (Role.AGGREGATOR, State.READY, Event.ASK): State.ASKED,
    (Role.AGGREGATOR, State.READY, Event.PART): State.PARTING,
    (Role.AGGREGATOR, State.ASKED, Event.ANSWERED): State.READY,
    (Role.AGGREGATOR, State.ASKED, Event.LOST): State.READY,
    (Role.AGGREGATOR, State.PARTING, Event.ANSWERED): State.PARTED,
}
WORK = {
    ("calling", IDLE): {"waiting"},
    ("totals", IDLE): {"catching up"},
    ("unlinking", IDLE): {"relaying"},
    ("matching", IDLE): {"matching"},
    ("rowmatching", IDLE): {"matching"},
    ("results", IDLE): {"witnessing", "revealing"},
    ("results", "witnessing"): {"revealing"},
    ("sums", IDLE): {"voting", "serving", "opening"},
    ("sums", "voting"): {"sharing"},
    ("sums", "sharing"): {"opening"},
    ("sums", "serving"): {"opening"},
}
"""By part of the aggregator and stage, the stages that may follow."""


def test_the_tables_hold_these_moves_and_closing():
    found = {
        (role, state, event): after
        for role in Role
        for state, events in session_of(role).table.items()
        for event, after in events.items()
    }
    closes = {k: v for k, v in found.items() if k[2] is Event.CLOSE}
    assert {k: v for k, v in found.items() if k not in closes} == LEGAL
    assert set(closes.values()) == {State.CLOSED}
    assert {k[:2] for k in closes} >= {k[:2] for k in LEGAL}
    assert not any(state in (State.DEAD, State.CLOSED) for _, state, _ in found)


@pytest.mark.parametrize(("role", "state", "event"), ALL)
def test_every_other_move_raises(role, state, event):
    table = session_of(role).table
    if event in table.get(state, {}):
        assert advance(role, table, state, event) is table[state][event]
        return
    with pytest.raises(WrongStage) as caught:
        advance(role, table, state, event)
    assert str(state) in caught.value.what


def test_a_table_is_data_that_nobody_changes():
    for role in Role:
        with pytest.raises(TypeError):
            session_of(role).table[State.NEW] = {}
        with pytest.raises(TypeError):
            session_of(role).table[State.NEW][Event.LOST] = State.READY


def test_the_aggregators_parts_have_these_stages_and_nobody_else_has_any():
    parts = World().start().aggregator.parts
    found = {
        (name, stage): set(after)
        for name, part in parts.items()
        for stage, after in part.stages.items()
    }
    assert found == WORK
    others = [kind for r in set(Role) - {Role.AGGREGATOR} for kind in session_of(r).made_of]
    assert others and not any(kind.stages for kind in others)


@pytest.mark.parametrize("name", sorted({name for name, _ in WORK}))
def test_a_part_goes_no_other_way_and_may_always_rest(name):
    part = World().start().aggregator.parts[name]
    stages = {IDLE, *itertools.chain(*WORK.values()), "elsewhere"}
    for here, there in itertools.product(stages, stages):
        part.stage = here
        if there in WORK.get((name, here), ()):
            part.go(there)
            assert part.stage == there
        else:
            with pytest.raises(WrongStage, match=name):
                part.go(there)
            assert part.stage == here
        part.rest()
        assert part.stage == IDLE


def test_between_asks_and_after_a_death_every_part_rests():
    world = World().start()
    world.until_open(1)
    assert {n: p.stage for n, p in world.aggregator.parts.items() if p.stage} == {"sums": "opening"}
    world.aggregator.die(RuntimeError())
    assert not any(part.stage for part in world.aggregator.parts.values())
    world = World().start()
    world.round(1)
    assert not any(part.stage for part in world.aggregator.parts.values())


def test_a_part_that_declares_nothing_goes_nowhere():
    part = SessionPart(World().start().aggregator)
    with pytest.raises(WrongStage, match="idle"):
        part.go("waiting")


@pytest.mark.parametrize("party", ["client-1", "aggregator", "key-authority"])
@pytest.mark.parametrize("state", [State.DEAD, State.CLOSED])
def test_a_session_that_is_over_moves_no_more(party, state):
    world = World().start()
    session = world.session(party)
    if state is State.DEAD:
        session.die(RuntimeError())
    else:
        session.close()
    for event in Event:
        with pytest.raises(WrongStage):
            session.move(event)
    assert session.state is state
    size = session.ledger.size
    for data in world.wire:
        with pytest.raises(LocalProtocolError):
            session.receive(data)
    assert session.ledger.size == size


@pytest.mark.parametrize("died", [True, False])
@pytest.mark.parametrize("party", ["client-1", "aggregator", "key-authority"])
def test_a_session_records_its_end_once_however_often_it_is_closed(party, died):
    world = World().start()
    session = world.session(party)
    if died:
        session.die(RuntimeError())
    for _ in range(3):
        session.close()
    assert world.kinds(party).count("close") == 1 and world.kinds(party)[-1] == "close"
    assert world.entries(party)[-1]["state"] == ("DEAD" if died else "CLOSED")
    assert session.kept()["session"]["ended"]  # and so after a kill


def test_the_aggregator_does_one_thing_at_a_time():
    world = World().start()
    request = world.until_open(1)
    with pytest.raises(WrongStage):
        world.ask(2)
    assert world.aggregator.state is State.DEAD
    (answer,) = world.deliver(request)
    with pytest.raises(LocalProtocolError):
        world.aggregator.receive(answer.data)
