"""Plug-ins that somebody gives to a command on a finished run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["given_plugins"]


@contextmanager
def given_plugins(run: Path, given: Sequence[str]) -> Iterator[None]:
    """Let a run's plug-ins be found by name, where somebody gave their files.

    Args:
        run: the run folder; its plan says which files they must be.
        given: files, or names of installed ones. None of a run's own naming is taken.

    Raises:
        PlanDrift: what was given is not what the plan names, by name and digest.
        UsageError: a file cannot be used, or the folder holds no plan.
    """
    from secure_fgl.store.finished_run import Run

    if not given:
        yield
        return
    with Run(run).given(given):
        yield
