"""The transition table: everything that is not in it raises, for every role, state and event."""

import itertools

import pytest

from protocols.errors import LocalProtocolError, WrongStage
from protocols.sessions.table import TRANSITIONS, Event, State, advance
from protocols.wire.roster import Role
from tests.protocols.wire import World

ALL = list(itertools.product(Role, State, Event))
LEGAL = {
    (Role.CLIENT, State.NEW, Event.KEY): State.READY,
    (Role.CLIENT, State.NEW, Event.PAIR): State.READY,
    (Role.CLIENT, State.NEW, Event.BEGIN): State.READY,
    (Role.CLIENT, State.READY, Event.KEY): State.READY,
    (Role.CLIENT, State.READY, Event.PAIR): State.READY,
    (Role.CLIENT, State.READY, Event.ASK): State.READY,
    (Role.CLIENT, State.READY, Event.SHARE): State.READY,
    (Role.CLIENT, State.READY, Event.MATCH): State.READY,
    (Role.AGGREGATOR, State.ASKED, Event.MATCH): State.MATCHING,
    (Role.AGGREGATOR, State.MATCHING, Event.ANSWERED): State.READY,
    (Role.AGGREGATOR, State.MATCHING, Event.LOST): State.READY,
    (Role.TAG_SERVER, State.NEW, Event.MATCH): State.READY,
    (Role.TAG_SERVER, State.READY, Event.MATCH): State.READY,
    (Role.MATCHER, State.NEW, Event.MATCH): State.READY,
    (Role.MATCHER, State.READY, Event.MATCH): State.READY,
    (Role.AGGREGATOR, State.NEW, Event.SETUP): State.KEYING,
    (Role.AGGREGATOR, State.NEW, Event.BEGIN): State.READY,
    (Role.AGGREGATOR, State.KEYING, Event.KEY): State.KEYING,
    (Role.AGGREGATOR, State.KEYING, Event.PAIR): State.KEYING,
    (Role.AGGREGATOR, State.KEYING, Event.BEGIN): State.READY,
    (Role.AGGREGATOR, State.READY, Event.SETUP): State.KEYING,
    (Role.AGGREGATOR, State.READY, Event.ASK): State.ASKED,
    (Role.AGGREGATOR, State.ASKED, Event.ANSWERED): State.READY,
    (Role.AGGREGATOR, State.ASKED, Event.UNMASK): State.VOTING,
    (Role.AGGREGATOR, State.VOTING, Event.CERTIFY): State.SHARING,
    (Role.AGGREGATOR, State.VOTING, Event.LOST): State.READY,
    (Role.AGGREGATOR, State.ASKED, Event.COLLECTED): State.OPENING,
    (Role.AGGREGATOR, State.ASKED, Event.LOST): State.READY,
    (Role.AGGREGATOR, State.SHARING, Event.ANSWERED): State.READY,
    (Role.AGGREGATOR, State.SHARING, Event.COLLECTED): State.OPENING,
    (Role.AGGREGATOR, State.SHARING, Event.LOST): State.READY,
    (Role.AGGREGATOR, State.READY, Event.PART): State.PARTING,
    (Role.AGGREGATOR, State.PARTING, Event.ANSWERED): State.PARTED,
    (Role.AGGREGATOR, State.OPENING, Event.OPEN): State.READY,
    (Role.AGGREGATOR, State.ASKED, Event.WITNESS): State.WITNESSING,
    (Role.AGGREGATOR, State.ASKED, Event.REVEAL): State.REVEALING,
    (Role.AGGREGATOR, State.READY, Event.WITNESS): State.WITNESSING,
    (Role.AGGREGATOR, State.READY, Event.REVEAL): State.REVEALING,
    (Role.AGGREGATOR, State.WITNESSING, Event.REVEAL): State.REVEALING,
    (Role.AGGREGATOR, State.WITNESSING, Event.LOST): State.READY,
    (Role.AGGREGATOR, State.REVEALING, Event.ASK): State.ASKED,
    (Role.AGGREGATOR, State.REVEALING, Event.ANSWERED): State.READY,
    (Role.AGGREGATOR, State.REVEALING, Event.UNMASK): State.VOTING,
    (Role.AGGREGATOR, State.REVEALING, Event.COLLECTED): State.OPENING,
    (Role.AGGREGATOR, State.REVEALING, Event.LOST): State.READY,
    (Role.AGGREGATOR, State.ASKED, Event.RELAY): State.RELAYING,
    (Role.AGGREGATOR, State.RELAYING, Event.ANSWERED): State.READY,
    (Role.AGGREGATOR, State.RELAYING, Event.UNMASK): State.VOTING,
    (Role.AGGREGATOR, State.RELAYING, Event.COLLECTED): State.OPENING,
    (Role.AGGREGATOR, State.RELAYING, Event.WITNESS): State.WITNESSING,
    (Role.AGGREGATOR, State.RELAYING, Event.REVEAL): State.REVEALING,
    (Role.AGGREGATOR, State.RELAYING, Event.LOST): State.READY,
    (Role.RELAY, State.NEW, Event.RELAY): State.READY,
    (Role.RELAY, State.READY, Event.RELAY): State.READY,
    (Role.WITNESS, State.NEW, Event.KEY): State.READY,
    (Role.WITNESS, State.READY, Event.KEY): State.READY,
    (Role.WITNESS, State.READY, Event.WITNESS): State.READY,
    (Role.KEY_AUTHORITY, State.NEW, Event.BEGIN): State.READY,  # where no keys are called for
    (Role.KEY_AUTHORITY, State.NEW, Event.KEY): State.READY,
    (Role.KEY_AUTHORITY, State.READY, Event.KEY): State.READY,
    (Role.KEY_AUTHORITY, State.READY, Event.OPEN): State.READY,
}


def test_the_table_holds_these_moves_and_closing():
    found = {
        (role, state, event): after
        for role, states in TRANSITIONS.items()
        for state, events in states.items()
        for event, after in events.items()
    }
    closes = {k: v for k, v in found.items() if k[2] is Event.CLOSE}
    assert {k: v for k, v in found.items() if k not in closes} == LEGAL
    assert set(closes.values()) == {State.CLOSED}
    assert not any(state in (State.DEAD, State.CLOSED) for _, state, _ in found)


@pytest.mark.parametrize(("role", "state", "event"), ALL)
def test_every_other_move_raises(role, state, event):
    if event in TRANSITIONS[role].get(state, {}):
        assert advance(role, state, event) is TRANSITIONS[role][state][event]
        return
    with pytest.raises(WrongStage) as caught:
        advance(role, state, event)
    assert str(state) in caught.value.what


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


def test_the_aggregator_does_one_thing_at_a_time():
    world = World().start()
    request = world.until_open(1)
    with pytest.raises(WrongStage):
        world.ask(2)
    assert world.aggregator.state is State.DEAD
    (answer,) = world.deliver(request)
    with pytest.raises(LocalProtocolError):
        world.aggregator.receive(answer.data)
