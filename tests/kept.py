"""Small runs of tests keep no state where nobody looks at it: a third of a run goes into it.

`kept` says where a test does. Runs of the command line in processes of their own always keep it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_looked_at = [False]


@contextmanager
def kept() -> Iterator[None]:
    """Let runs keep their state as their configuration says."""
    before, _looked_at[0] = _looked_at[0], True
    try:
        yield
    finally:
        _looked_at[0] = before


def leave_out(patched: pytest.MonkeyPatch) -> None:
    """Let runs of this process keep no state outside `kept`."""
    simulation: Any = sys.modules.get("secure_fgl.run.simulation")
    if simulation is None:  # no test of this session has runs
        return
    set_up = simulation.set_up

    def unkept(making: Any, states: Any = None) -> Any:
        return set_up(making, states if _looked_at[0] else None)

    patched.setattr(simulation, "set_up", unkept)
