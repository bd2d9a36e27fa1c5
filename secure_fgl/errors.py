"""Errors of the face, each with the exit code the command line gives it.

Exit codes: 0 clean, 1 internal, 2 usage, policy or configuration, 3 findings, 4 inconclusive under
``--strict``, 5 evidence broken, 6 plan drift, 7 budget or claim, 130 Ctrl-C.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

from protocols.errors import SecureFglError

OK, INTERNAL, USAGE, FINDINGS, INCONCLUSIVE, BROKEN, DRIFT, BUDGET, INTERRUPTED = (
    0, 1, 2, 3, 4, 5, 6, 7, 130,
)  # fmt: skip


class UsageError(SecureFglError):
    """A configuration, file or argument that cannot be used."""


def path_of(given: object) -> Path:
    """Return a path as one; raises UsageError for what names no file."""
    if isinstance(given, str | os.PathLike):
        return Path(given)
    raise UsageError(f"A {type(given).__name__} is no path.", fix="give a text or a pathlib.Path")


def check_platform() -> None:
    """Raise UsageError on a system without file locks, which keep two processes off one ledger."""
    if importlib.util.find_spec("fcntl") is None:
        raise UsageError(
            "Secure-FGL does not run on this system.",
            why="it needs file locks (fcntl), which Windows has not",
            fix="use Linux, or on Windows the Subsystem for Linux (WSL 2)",
        )


_TOLD = "What to do: "


def next_step(error: Exception) -> str:
    """Return what an error's note says that one should do next; empty if none does."""
    notes: list[str] = getattr(error, "__notes__", [])
    return next((note.removeprefix(_TOLD) for note in notes if note.startswith(_TOLD)), "")


def usage(error: Exception) -> UsageError:
    """Return an error of a reader or registry as one of usage, a sentence and what to do next."""
    text = str(error)
    stop = "" if text.endswith((".", "?", "!")) else "."
    return UsageError(f"{text[:1].upper()}{text[1:]}{stop}", fix=next_step(error))


class PlanDrift(SecureFglError):
    """The run would do something that the approved plan does not hold."""

    def __init__(self, differences: list[str]) -> None:
        self.differences = differences
        points = "1 point" if len(differences) == 1 else f"{len(differences)} points"
        shown = "; ".join(differences[:3])
        more = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
        super().__init__(
            f"The run differs from the approved plan in {points}: {shown}{more}.",
            why="algorithm, model, data, policy or number of clients or rounds changed",
            fix="run what was approved, or have the new plan approved; all points: "
            "secure-fgl plan CONFIG --against PLAN",
        )
