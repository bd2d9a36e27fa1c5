"""What moves a session of any role; the tables themselves stand in the roles' files, as data.

An illegal move is a missing key. Two rules: everything that decides a transition of a session
stands in its role's table, and any exception moves a session to ``DEAD`` for good, unless the
bytes at fault were never authenticated, came before or after their time in the run, by what their
sender signed, or a round was lost because too many clients vanished.

What happens within an Ask is no state of the session: each part has stages of its own, see
`protocols.sessions.part.SessionPart.go`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from protocols.errors import WrongStage


class State(StrEnum):
    """Where a session stands."""

    NEW = "NEW"
    KEYING = "KEYING"  # aggregator: an epoch's keys are being agreed on
    READY = "READY"  # keys are here, nothing is going on
    ASKED = "ASKED"  # aggregator: an Ask is under way
    PARTING = "PARTING"  # aggregator: all clients were given the last heads
    PARTED = "PARTED"  # aggregator and clients: the run is over, and nothing is asked or answered
    CLOSED = "CLOSED"
    DEAD = "DEAD"


class Event(StrEnum):
    """What can happen to a session."""

    SETUP = "SETUP"  # aggregator: a new epoch begins
    DRAW = "DRAW"  # lots are drawn for the run's cohorts
    KEY = "KEY"  # the epoch's public key was made or received
    PAIR = "PAIR"  # secrets of pairs were called for, handed on, or received
    BEGIN = "BEGIN"  # nothing is left to agree on before the next Ask
    ASK = "ASK"  # aggregator: an Ask begins; client: an Ask arrived
    STEP = "STEP"  # everybody else, and clients: what an Ask needs of them later arrived
    ANSWERED = "ANSWERED"  # aggregator: the reply is complete
    LOST = "LOST"  # aggregator: too few clients are left; the round is skipped
    PART = "PART"  # aggregator: the last heads go out; client: they arrived
    CLOSE = "CLOSE"


Table = Mapping[State, Mapping[Event, State]]
"""By state and event the next state; every state that stands in it can be closed."""


def table(moves: Table) -> Table:
    """Return a role's table, in which every state can also be closed."""
    closes = {Event.CLOSE: State.CLOSED}
    return MappingProxyType({s: MappingProxyType({**moves[s], **closes}) for s in moves})


STEPS = table({State.NEW: {Event.STEP: State.READY}, State.READY: {Event.STEP: State.READY}})
"""Of a role that takes part in Asks and in nothing else."""


def advance(role: str, moves: Table, state: State, event: Event) -> State:
    """Return the next state; raises WrongStage if the table holds none."""
    try:
        return moves[state][event]
    except KeyError as error:
        raise WrongStage(f"A {role} in state {state} does not expect {event}.") from error
