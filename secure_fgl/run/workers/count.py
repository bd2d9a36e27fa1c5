"""How many processes play the clients of a simulation.

Said by `transport.workers`. Where it is not said: as many as there are cores that this process may
use, but none has fewer than `FEWEST` clients. One, which is this process itself, where

- answers are isolated (one process computes them all) or a transport was handed over;
- this process has other Python threads, whose locks a fork would copy as they stand;
- an accelerator is in use, which no fork can go on with;
- the system is not Linux, where a worker would outlive a parent that is killed.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from secure_fgl.config import Config
from secure_fgl.devices import chosen
from secure_fgl.errors import UsageError
from secure_fgl.run.cores import usable

__all__ = ["FEWEST", "how_many"]

FEWEST = 2
"""Clients of one worker, from which on it is worth its start."""


def how_many(config: Config, clients: int, connect: Any = None) -> int:
    """Return how many processes play the clients; 1 is this one.

    Args:
        config: of the run.
        clients: how many there are.
        connect: makes a transport of the caller's own; None for the one in memory.

    Raises:
        UsageError: several are asked for where they cannot be.
    """
    wanted = config.transport.workers
    if wanted is not None:
        wanted = min(wanted, clients)
    if wanted == 1:
        return 1
    found = _hindrance(config, connect)
    if wanted is not None:
        if found:
            raise UsageError(
                f"The clients cannot be played in {wanted} processes: {found}.",
                fix="set transport.workers to 1, or leave it out",
            )
        return wanted
    alone = found or threading.active_count() > 1
    return 1 if alone else max(1, min(usable(), clients // FEWEST))


def _hindrance(config: Config, connect: Any) -> str:
    """Say what stands against several processes; empty if nothing does."""
    if config.isolated:
        return "answers are isolated, and one process computes them all"
    if connect is not None:
        return "a transport was handed over, which calls the sessions in this process"
    if not sys.platform.startswith("linux"):
        return "that needs Linux"
    if config.device != "cpu" and chosen(config) != "cpu":
        return "a GPU is used, which no fork can go on with"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "an accelerator is in use in this process"
    return ""
