"""Every state and transition of every role, as data. An illegal move is a missing key.

Two rules: everything that decides a transition lives in this file, and any exception moves a
session to ``DEAD`` for good, unless the bytes at fault were never authenticated, or a round was
lost because too many clients vanished.
"""

from __future__ import annotations

from enum import StrEnum

from protocols.errors import WrongStage
from protocols.wire.roster import Role


class State(StrEnum):
    """Where a session stands."""

    NEW = "NEW"
    KEYING = "KEYING"  # aggregator: an epoch's keys are being agreed on
    READY = "READY"  # keys are here, nothing is going on
    ASKED = "ASKED"  # aggregator: answers are on their way
    VOTING = "VOTING"  # aggregator: votes for the survivor list are on their way
    SHARING = "SHARING"  # aggregator: shares of the masks' seeds are on their way
    WITNESSING = "WITNESSING"  # aggregator: witnesses are computing a result again
    REVEALING = "REVEALING"  # aggregator: the key authority is opening a witnessed result
    RELAYING = "RELAYING"  # aggregator: the relay is taking the senders off mixtures
    MATCHING = "MATCHING"  # aggregator: tags are made and compared, and cells add up
    PARTING = "PARTING"  # aggregator: all clients were given the last heads
    PARTED = "PARTED"  # aggregator: the run is over
    OPENING = "OPENING"  # aggregator: the key authority is opening the blinded total
    CLOSED = "CLOSED"
    DEAD = "DEAD"


class Event(StrEnum):
    """What can happen to a session."""

    SETUP = "SETUP"  # aggregator: a new epoch begins
    KEY = "KEY"  # the epoch's public key was made or received
    PAIR = "PAIR"  # secrets of pairs were called for, handed on, or received
    BEGIN = "BEGIN"  # nothing is left to agree on before the next Ask
    ASK = "ASK"  # aggregator: send an Ask; client: an Ask arrived
    SHARE = "SHARE"  # client: a survivor list, or the votes for it, arrived
    UNMASK = "UNMASK"  # aggregator: all answers are here, the survivor list goes out
    CERTIFY = "CERTIFY"  # aggregator: enough votes are here, they go out to the holders
    ANSWERED = "ANSWERED"  # aggregator: the reply is complete
    COLLECTED = "COLLECTED"  # aggregator: the total goes to be opened
    OPEN = "OPEN"  # authority: an open request arrived; aggregator: the opened total arrived
    WITNESS = "WITNESS"  # aggregator: a result goes to the witnesses; witness: it arrived
    REVEAL = "REVEAL"  # aggregator: a witnessed result goes to be opened
    RELAY = "RELAY"  # aggregator: mixtures go to the relay; relay: they arrived
    MATCH = "MATCH"  # a step of matching: it goes out, or arrived
    LOST = "LOST"  # aggregator: too few clients are left; the round is skipped
    PART = "PART"  # aggregator: the last heads go out
    CLOSE = "CLOSE"


_CLOSES = {Event.CLOSE: State.CLOSED}

TRANSITIONS: dict[Role, dict[State, dict[Event, State]]] = {
    Role.CLIENT: {
        State.NEW: {
            Event.KEY: State.READY,
            Event.PAIR: State.READY,
            Event.BEGIN: State.READY,
            **_CLOSES,
        },
        State.READY: {
            Event.KEY: State.READY,
            Event.PAIR: State.READY,
            Event.ASK: State.READY,
            Event.SHARE: State.READY,
            Event.MATCH: State.READY,
            **_CLOSES,
        },
    },
    Role.AGGREGATOR: {
        State.NEW: {Event.SETUP: State.KEYING, Event.BEGIN: State.READY, **_CLOSES},
        State.KEYING: {
            Event.KEY: State.KEYING,
            Event.PAIR: State.KEYING,
            Event.BEGIN: State.READY,
            **_CLOSES,
        },
        State.READY: {
            Event.SETUP: State.KEYING,
            Event.ASK: State.ASKED,
            Event.PART: State.PARTING,
            Event.WITNESS: State.WITNESSING,
            Event.REVEAL: State.REVEALING,
            **_CLOSES,
        },
        State.PARTING: {Event.ANSWERED: State.PARTED, **_CLOSES},
        State.PARTED: _CLOSES,
        State.ASKED: {
            Event.ANSWERED: State.READY,
            Event.UNMASK: State.VOTING,
            Event.COLLECTED: State.OPENING,
            Event.WITNESS: State.WITNESSING,
            Event.REVEAL: State.REVEALING,
            Event.RELAY: State.RELAYING,
            Event.MATCH: State.MATCHING,
            Event.LOST: State.READY,
            **_CLOSES,
        },
        State.MATCHING: {Event.ANSWERED: State.READY, Event.LOST: State.READY, **_CLOSES},
        State.RELAYING: {
            Event.ANSWERED: State.READY,
            Event.UNMASK: State.VOTING,
            Event.COLLECTED: State.OPENING,
            Event.WITNESS: State.WITNESSING,
            Event.REVEAL: State.REVEALING,
            Event.LOST: State.READY,
            **_CLOSES,
        },
        State.WITNESSING: {Event.REVEAL: State.REVEALING, Event.LOST: State.READY, **_CLOSES},
        State.REVEALING: {
            Event.ASK: State.ASKED,
            Event.ANSWERED: State.READY,
            Event.UNMASK: State.VOTING,
            Event.COLLECTED: State.OPENING,
            Event.LOST: State.READY,
            **_CLOSES,
        },
        State.VOTING: {Event.CERTIFY: State.SHARING, Event.LOST: State.READY, **_CLOSES},
        State.SHARING: {
            Event.ANSWERED: State.READY,
            Event.COLLECTED: State.OPENING,
            Event.LOST: State.READY,
            **_CLOSES,
        },
        State.OPENING: {Event.OPEN: State.READY, **_CLOSES},
    },
    Role.KEY_AUTHORITY: {
        State.NEW: {Event.KEY: State.READY, Event.BEGIN: State.READY, **_CLOSES},
        State.READY: {Event.KEY: State.READY, Event.OPEN: State.READY, **_CLOSES},
    },
    Role.WITNESS: {
        State.NEW: {Event.KEY: State.READY, **_CLOSES},
        State.READY: {Event.KEY: State.READY, Event.WITNESS: State.READY, **_CLOSES},
    },
    Role.RELAY: {
        State.NEW: {Event.RELAY: State.READY, **_CLOSES},
        State.READY: {Event.RELAY: State.READY, **_CLOSES},
    },
    Role.TAG_SERVER: {
        State.NEW: {Event.MATCH: State.READY, **_CLOSES},
        State.READY: {Event.MATCH: State.READY, **_CLOSES},
    },
    Role.MATCHER: {
        State.NEW: {Event.MATCH: State.READY, **_CLOSES},
        State.READY: {Event.MATCH: State.READY, **_CLOSES},
    },
}


def advance(role: Role, state: State, event: Event) -> State:
    """Return the next state; raises WrongStage if the table holds none."""
    try:
        return TRANSITIONS[role][state][event]
    except KeyError as error:
        raise WrongStage(f"A {role} in state {state} does not expect {event}.") from error
