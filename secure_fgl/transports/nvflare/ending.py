"""Ending processes for good: with all that they started, and whoever presses Ctrl-C meanwhile.

NVFlare starts a job's process in a session of its own, so a process group is not all there is to
end; a job's process starts more. All of them are found as children of children.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from types import FrameType
from typing import Any

__all__ = ["end", "held_back", "kill"]

_POLITE_SECONDS, _LONGEST_SECONDS, _LOOK_SECONDS = 10.0, 30.0, 0.1
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def end(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End leaders of process groups with all that they started: politely first, then for good.

    Never raises for the dead.
    """
    started = _started(processes)
    for process in processes:
        _signal(process, signal.SIGTERM)
    deadline = time.monotonic() + _POLITE_SECONDS
    while any(process.poll() is None for process in processes) and time.monotonic() < deadline:
        # An engine that is told to end may still start a job, which outlives it and never ends.
        started += _started(processes)
        time.sleep(_LOOK_SECONDS)
    _kill(processes, started)


def kill(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """End them at once (SIGKILL), with all that they started, as a crash of their machine would."""
    _kill(processes, _started(processes))


def _kill(processes: Sequence[subprocess.Popen[bytes]], started: list[Any]) -> None:
    """Kill until nothing of them is left; what is started meanwhile is found in the next look."""
    import psutil  # NVFlare needs it too

    deadline = time.monotonic() + _LONGEST_SECONDS
    while True:
        started += _started(processes)
        for process in processes:
            _signal(process, signal.SIGKILL)  # the group may outlive its leader
        for one in started:
            with contextlib.suppress(psutil.Error):
                started += one.children(recursive=True)
                one.kill()  # by number and start, so never somebody else's
        started = [one for one in started if _lives(one)]
        if not started or time.monotonic() > deadline:
            break
        time.sleep(_LOOK_SECONDS)
    for process in processes:
        process.wait()


def _started(processes: Sequence[subprocess.Popen[bytes]]) -> list[Any]:
    """Return the children of the leaders that still run, and theirs."""
    import psutil

    found: list[Any] = []
    for process in processes:
        if process.poll() is None:
            with contextlib.suppress(psutil.Error):
                found += psutil.Process(process.pid).children(recursive=True)
    return found


def _lives(process: Any) -> bool:
    import psutil

    with contextlib.suppress(psutil.Error):
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    return False


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)


@contextlib.contextmanager
def held_back() -> Iterator[None]:
    """Hold Ctrl-C and its like back until this is over.

    Between a process's start and the note of it, and while all are ended, an interrupt would leave
    one behind.
    """
    if threading.current_thread() is not threading.main_thread():  # signals go to that one
        yield
        return
    came: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        came.append(number)

    before = {number: signal.signal(number, note) for number in _ENDING}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if came:
            signal.raise_signal(came[0])
