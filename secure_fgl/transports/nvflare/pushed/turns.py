"""At a site: works on each request once, however often it comes, and keeps its answer.

NVFlare runs every pushed request in a thread of its own, and the party's process serves one caller
at a time: a request waits here until the one before it is answered. The server has one exchange at
a time, so a new request takes the place of one that waits, which the party then never sees. Whoever
still asks for that one is told that it is unknown, and sends it again. Of several who wait for one
answer the last one does: NVFlare has few threads, and each of them that waits takes one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from nvflare.apis.signal import Signal

from secure_fgl.transports.nvflare.site.codes import Code, Heard
from secure_fgl.transports.nvflare.wire import Word

__all__ = ["Turns", "Work"]

_LOOK_SECONDS = 0.2  # how often a wait looks whether the job was aborted


class Work(Protocol):
    """Hands a request to the party."""

    def __call__(self, taken: Callable[[], None]) -> Heard:
        """Return what the party says; call `taken` once it has taken the request."""


class _Turn:
    """One request: whether the party took it, and what it said."""

    def __init__(self) -> None:
        self.taken, self.done = threading.Event(), threading.Event()
        self.said: Heard | Word = Heard(Code.FAILED)
        self.replaced, self.asked = False, 0

    def run(self, one: threading.Lock, work: Work) -> None:
        """Do the work once nothing else is at work, unless another request took its place."""
        mine = False
        try:
            while not (mine or self.replaced):
                mine = one.acquire(timeout=_LOOK_SECONDS)
            self.said = Word.UNKNOWN if self.replaced else work(self.taken.set)
        finally:  # whatever it raised: who asks is told that it failed
            if mine:
                one.release()
            self.done.set()


class Turns:
    """The requests of one job at one site."""

    def __init__(self) -> None:
        self._turns, self._change = dict[str, _Turn](), threading.Lock()
        self._one = threading.Lock()

    def take(self, name: str, work: Work | None, hold: float, abort: Signal) -> Heard | Word:
        """Return what the party said, or how far its work is when `hold` seconds are over.

        Args:
            name: of the request.
            work: begins where the name is new; None: the request only asks.
            hold: seconds.
            abort: ends the waiting.
        """
        with self._change:
            if (turn := self._turns.get(name)) is None:
                if work is None:
                    return Word.UNKNOWN
                # The last answer stays until the next request comes: its reply may be lost.
                for other in self._turns.values():
                    other.replaced = not other.taken.is_set()
                self._turns = {
                    n: t for n, t in self._turns.items() if not (t.replaced or t.done.is_set())
                }
                turn = self._turns[name] = _Turn()
                threading.Thread(target=turn.run, args=(self._one, work), daemon=True).start()
            turn.asked = asked = turn.asked + 1
        while not turn.done.wait(min(hold, _LOOK_SECONDS)):
            hold -= _LOOK_SECONDS
            if hold <= 0 or abort.triggered or turn.asked != asked:
                return Word.TAKEN if turn.taken.is_set() else Word.QUEUED
        return turn.said
