"""Every state and transition of every role, as data. An illegal move is a missing key.

Two rules: everything that decides a transition lives in this file, and any exception moves a
session to ``DEAD`` for good, unless the bytes at fault were never authenticated.
"""

from __future__ import annotations

from enum import StrEnum

from protocols.errors import WrongStage
from protocols.roster import Role


class State(StrEnum):
    """Where a session stands."""

    NEW = "NEW"
    READY = "READY"  # keys are here, nothing is going on
    ASKED = "ASKED"  # aggregator: answers are on their way
    OPENING = "OPENING"  # aggregator: the key authority is opening the blinded total
    CLOSED = "CLOSED"
    DEAD = "DEAD"


class Event(StrEnum):
    """What can happen to a session."""

    KEY = "KEY"  # the run's public key was made or received
    BEGIN = "BEGIN"  # there is nothing to agree on before the first Ask
    ASK = "ASK"  # aggregator: send an Ask; client: an Ask arrived
    ANSWERED = "ANSWERED"  # aggregator: all answers are here and need no opening
    COLLECTED = "COLLECTED"  # aggregator: all answers are here, the total goes to be opened
    PAIR = "PAIR"  # secrets of pairs were handed on, or received
    OPEN = "OPEN"  # authority: an open request arrived; aggregator: the opened total arrived
    CLOSE = "CLOSE"


_CLOSES = {Event.CLOSE: State.CLOSED}

TRANSITIONS: dict[Role, dict[State, dict[Event, State]]] = {
    Role.CLIENT: {
        State.NEW: {Event.KEY: State.READY, Event.BEGIN: State.READY, **_CLOSES},
        State.READY: {Event.ASK: State.READY, Event.PAIR: State.READY, **_CLOSES},
    },
    Role.AGGREGATOR: {
        State.NEW: {Event.KEY: State.READY, Event.BEGIN: State.READY, **_CLOSES},
        State.READY: {Event.ASK: State.ASKED, Event.PAIR: State.READY, **_CLOSES},
        State.ASKED: {
            Event.ANSWERED: State.READY,
            Event.COLLECTED: State.OPENING,
            **_CLOSES,
        },
        State.OPENING: {Event.OPEN: State.READY, **_CLOSES},
    },
    Role.KEY_AUTHORITY: {
        State.NEW: {Event.KEY: State.READY, **_CLOSES},
        State.READY: {Event.OPEN: State.READY, **_CLOSES},
    },
}


def advance(role: Role, state: State, event: Event) -> State:
    """Return the next state; raises WrongStage if the table holds none."""
    try:
        return TRANSITIONS[role][state][event]
    except KeyError as error:
        raise WrongStage(f"A {role} in state {state} does not expect {event}.") from error
