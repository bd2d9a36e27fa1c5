"""Keeps the time of named places, exclusively: what is spent in one is not counted in another.

One clock goes round: whenever something begins, ends or another round starts, the time since the
last such moment is added to where the process stood until then. So the times of all places add up
to the whole, whatever they are. Names of places are ours and few; no value of a run is looked at.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from crypto import spans
from protocols.sessions.engine import Delivery, Session
from protocols.wire.roles import Role

__all__ = ["Places", "Watch", "Watched", "watched"]

Place = tuple[int, tuple[str, ...]]
"""A round (0: before the first one), and the path to a place: a role, then kinds."""
Places = dict[Place, tuple[int, int]]
"""Nanoseconds and visits."""


class Watch:
    """Listens to one process; see `crypto.spans.listen`. Other threads of it are not looked at.

    Args:
        role: whose time it is where no session of another party works.

    Attributes:
        wall: nanoseconds for which this process was listened to, in the end.
    """

    def __init__(self, role: Role = Role.AGGREGATOR) -> None:
        self.role, self.round = str(role), 0
        self.places: Places = {}
        self.counts: Counter[tuple[int, str, str]] = Counter()  # round, role, what
        self._path: tuple[str, ...] = (self.role,)
        self._thread, self._on = threading.get_ident(), False
        self._since = self.wall = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Take all time from here on, until the block ends."""
        self._thread, self._on = threading.get_ident(), True
        began = self._since = time.perf_counter_ns()
        spans.listen(self)
        try:
            yield
        finally:
            spans.listen(None)
            self._passed()
            self._on = False
            self.wall += self._since - began

    def _passed(self, visits: int = 0) -> None:
        now = time.perf_counter_ns()
        place = self.round, self._path
        spent, seen = self.places.get(place, (0, 0))
        self.places[place] = spent + now - self._since, seen + visits
        self._since = now

    def enter(self, kind: str) -> None:
        """Something of this kind begins; see `crypto.spans.Listener`."""
        if self._on and threading.get_ident() == self._thread:
            self._passed()
            self._path = (*self._path, kind)

    def leave(self) -> None:
        """What began last has ended."""
        if self._on and threading.get_ident() == self._thread:
            self._passed(1)
            self._path = self._path[:-1]

    @contextmanager
    def party(self, role: Role) -> Iterator[None]:
        """Count a block as the time of another party of this process."""
        self._passed()
        before, self._path = self._path, (str(role),)
        try:
            yield
        finally:
            self._passed(1)
            self._path = before

    def reached(self, round: int) -> None:
        """The run is in this round from now on."""
        if self._on:
            self._passed()
        self.round = round

    def count(self, what: str, number: int) -> None:
        """Count something of the party that is at work: syncs of the disk, or bytes."""
        if threading.get_ident() == self._thread:
            self.counts[self.round, self._path[0], what] += number

    def told(self) -> dict[str, Any]:
        """Return everything as plain values."""
        return {
            "counts": [(*key, number) for key, number in self.counts.items()],
            "places": [(n, path, *found) for (n, path), found in self.places.items()],
        }

    def add(self, told: Mapping[str, Any]) -> None:
        """Add what another process `told`."""
        for round, role, what, number in told["counts"]:
            self.counts[round, role, what] += number
        for round, path, spent, visits in told["places"]:
            before = self.places.get((round, tuple(path)), (0, 0))
            self.places[round, tuple(path)] = before[0] + spent, before[1] + visits


def watched(sessions: Mapping[str, Session], watch: Watch | None) -> Mapping[str, Any]:
    """Return what receives envelopes in the place of sessions, by name: they, or `Watched` ones."""
    if watch is None:
        return sessions
    return {name: Watched(session, session.role, watch) for name, session in sessions.items()}


class Watched:
    """A session of another party, whose time and envelopes are its own.

    Args:
        session: answers envelopes.
        role: the party's.
        watch: of this process.
    """

    def __init__(self, session: Any, role: Role, watch: Watch) -> None:
        self._session, self._role, self._watch = session, role, watch

    def receive(self, data: bytes) -> list[Delivery]:
        """Take one envelope, return the answers."""
        with self._watch.party(self._role):
            self._watch.count("bytes received", len(data))
            answers: list[Delivery] = self._session.receive(data)
            self._watch.count("bytes sent", sum(len(answer.data) for answer in answers))
            return answers
