"""Whether a party's process hangs. Its supervisor watches from outside and asks it nothing.

A process that waits, for its relay or for an exchange, beats. One that computes uses the processor,
itself or the process of its answers: training may take hours and is left alone. One that does
neither for two minutes waits for something that does not come: it was stopped by a signal, its
threads wait for each other, or a disk does not answer.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["HUNG_SECONDS", "Watch", "processor_seconds"]

HUNG_SECONDS = 120.0
"""Four times what a session may wait for another process of its own party, the longest that it
waits for anything at one site; a fifth of an exchange's deadline, so that a session which was ended
is back while those who need it still wait."""

_LOOK_SECONDS = 10.0  # of silence, after which its processor time is looked at
_LEAST_SECONDS = 0.2  # of processor time that count as work; who polls in vain uses far less
_MOST_SECONDS = 5.0  # of silence between two looks: who slept itself has seen no silence


class Watch:
    """How long a process has shown no sign of life.

    Args:
        pid: of the process.
        seconds: of silence that are a hang.
        worked: returns the processor time of a process and of all that it started, None where that
            is not to be seen; then nothing counts as a hang.
        now: tells the time, in seconds.
    """

    def __init__(
        self,
        pid: int,
        *,
        seconds: float = HUNG_SECONDS,
        worked: Callable[[int], float | None] | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pid, self._seconds, self._now = pid, seconds, now
        self._worked = worked or processor_seconds
        self._silent, self._looked, self._used = 0.0, now(), self._worked(pid)

    def beat(self) -> None:
        """Note that the process said something."""
        self._silent = 0.0

    def hangs(self) -> bool:
        """Tell whether it has been silent, and idle, for too long; to be asked again and again."""
        now = self._now()
        self._silent += min(now - self._looked, _MOST_SECONDS)
        self._looked = now
        if self._silent < min(_LOOK_SECONDS, self._seconds):
            return False
        used, before = self._worked(self._pid), self._used
        # It is less than before where one of them is gone.
        if used is None or before is None or not 0.0 <= used - before < _LEAST_SECONDS:
            self._used, self._silent = used, 0.0
        return self._silent >= self._seconds


def processor_seconds(pid: int) -> float | None:
    """Return the processor time of a process and of all its descendants, ended ones included.

    None where this machine does not show the process: a session that holds keys is not traceable,
    and some machines show such processes to nobody else (``hidepid`` of ``/proc``).
    """
    times, parents = dict[int, float](), dict[int, int]()
    tick = os.sysconf("SC_CLK_TCK")
    for place in Path("/proc").iterdir():
        if not place.name.isdigit():
            continue
        with contextlib.suppress(OSError):  # it is gone
            # The name, in brackets, may hold anything; after it come state, parent, ..., times.
            told = (place / "stat").read_bytes().rpartition(b")")[2].split()
            parents[int(place.name)] = int(told[1])
            times[int(place.name)] = sum(map(int, told[11:15])) / tick
    if pid not in times:
        return None
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(times[one] for one in family)
