"""Work on all cores of this process, to make tags with (`crypto.oprf.Spread`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

__all__ = ["only_one", "over_cores", "usable"]

_one: list[bool] = []  # whether this process shares the cores with others like it


def over_cores(
    work: Callable[[slice], list[bytes]], parts: Iterable[slice]
) -> Iterable[list[bytes]]:
    """Return what `work` makes of every part, in their order, as the builtin `map` does.

    On several cores it runs in threads, made once: libsodium runs beside Python's lock, and secrets
    stay in this process. A single part, or a single core, needs none.
    """
    parts, cores = list(parts), _cores()
    if min(len(parts), cores) < 2:
        return map(work, parts)
    return _pool(os.getpid(), cores).map(work, parts)


def usable() -> int:
    """Return how many cores this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed is not None else os.cpu_count() or 1


def only_one() -> None:
    """Work on one core from now on: this process is one of several at work on one run."""
    _one[:] = [True]


def _cores() -> int:
    return 1 if _one else usable()


@cache
def _pool(process: int, cores: int) -> ThreadPoolExecutor:
    """Return the threads of a process; a fork has none of its parent's."""
    return ThreadPoolExecutor(cores, thread_name_prefix="points")
