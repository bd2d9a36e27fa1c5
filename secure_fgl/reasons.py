"""What an error says to whoever runs the program here: what happened, why likely, what to do.

For people at this site, on their terminal or in their log. Of an error that is not ours only kind
and place are told, since its text may hold data.
"""

from __future__ import annotations

import linecache
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from protocols.errors import Refused

__all__ = [
    "AGAIN",
    "RAISED_IN",
    "diverged",
    "explain",
    "in_plugin",
    "plugin_lines",
    "raised_in",
    "shown",
]

AGAIN = "run again with --verbose for the traceback"
"""What to do about an error that is not ours."""


def explain(error: BaseException, *, again: str = AGAIN) -> list[str]:
    """Return what happened, why likely and what to do, in lines.

    Of an error that is not ours only its kind and place are told: its text may hold data.
    """
    from crypto.errors import CryptoError
    from protocols.errors import EvidenceError, Refused, SecureFglError
    from secure_fgl._floors import NotOurCode

    if isinstance(error, SecureFglError):
        lines = str(error).splitlines()
        if isinstance(error, EvidenceError):
            lines[0] = f"FAILED at {error.step}: {lines[0]}"
        if isinstance(error, Refused) and isinstance(error.__cause__, SecureFglError):
            told = str(error.__cause__).splitlines()
            if error.code == "internal":  # neither policy, plan nor data: a program failed
                return [f"Error: {error.sender} could not answer. {told[0]}", *told[1:]]
            lines += [f"The reason that {error.sender} recorded: {told[0]}", *told[1:]]
        elif isinstance(error, Refused) and error.__cause__ is not None:
            lines = _fault(error, error.__cause__)
        return [f"Error: {lines[0]}", *lines[1:]]
    if isinstance(error, CryptoError):
        what, why, todo = error.diagnostics()
        return [f"Error: {what}", f"Why: {why}", f"What to do: {todo}"]
    if isinstance(error, OSError) and error.strerror:
        place = f" ({error.filename})" if error.filename else ""
        return [f"Error: {error.strerror}{place}.", *([f"{again}."] if again else [])]
    if isinstance(error, NotOurCode):
        return f"Error: {error}".splitlines()  # paths and names of modules only
    if diverged(error):
        return [f"Error: {error}."]  # raised by our own line, in words that hold no value
    if where := in_plugin(error):
        return [f"Error: The code of a plug-in raised {type(error).__name__}.", *_mend(where)]
    place = _place(error)
    return [f"Internal error: {type(error).__name__}{place}" + (f"; {again}." if again else ".")]


def _fault(refused: Refused, cause: BaseException) -> list[str]:
    """Return the lines of a client's error that is not ours; its text only of generated data."""
    if diverged(cause):
        return [f"{refused.sender} could not answer: {cause}."]
    text = f": {cause}"[:300] if refused.generated else ""
    where = in_plugin(cause)
    happened = f"{refused.sender} could not answer: {type(cause).__name__}{_place(cause)}{text}."
    if where:
        return [happened, *_mend(where)]
    if isinstance(cause, ValueError | ArithmeticError):  # what our own checks raise
        why = (
            "the site's data or the settings do not fit what is learnt, or the program has a fault"
        )
    else:
        why = "a fault in the program, not in your data"
    fix = f"{AGAIN}, which may hold data; tell us its last lines, and the algorithm and model"
    return [happened, f"Why: {why}", f"What to do: {fix}"]


def _mend(where: Sequence[str]) -> list[str]:
    """Return cause and remedy of an error that passed these lines of plug-ins."""
    return [
        "Why: the code of a plug-in raised it:",
        *(f"  {line}" for line in where),
        "What to do: mend the plug-in; secure-fgl check FILE runs it on generated data",
    ]


RAISED_IN = "raised_in"
"""Attribute of an error that comes from another process: modules and lines that it passed there."""


def raised_in(error: BaseException) -> list[tuple[str, int]]:
    """Return the modules and lines that an error passed, the deepest last, in either process."""
    there: list[tuple[str, int]] | None = getattr(error, RAISED_IN, None)
    frames = traceback.walk_tb(error.__traceback__)
    return there or [(str(f.f_globals.get("__name__", "")), line) for f, line in frames]


def plugin_lines(error: BaseException) -> list[tuple[str, int]]:
    """Return modules and lines of plug-ins that an error passed, the deepest last."""
    from secure_fgl._floors import PLUGINS

    return [place for place in raised_in(error) if place[0].partition(".")[0] == PLUGINS]


def in_plugin(error: BaseException) -> list[str]:
    """Return the lines of plug-ins' own files that an error passed, the deepest last."""
    return shown(plugin_lines(error))


def shown(places: Sequence[tuple[str, int]]) -> list[str]:
    """Return file, number and text of lines of modules that are loaded here."""
    found = []
    for module, line in places:
        file = getattr(sys.modules.get(module), "__file__", "") or ""
        code = linecache.getline(file, line).strip()
        found.append(f"{Path(file).name}, line {line}: {code}")
    return found


def diverged(error: BaseException) -> bool:
    """Tell whether training said that its numbers are no longer finite: a matter of settings."""
    if not isinstance(error, FloatingPointError):
        return False
    places = raised_in(error)
    return bool(places) and f"{places[-1][0]}.".startswith("algorithms.tasks.")


def _place(error: BaseException) -> str:
    """Name the deepest line of our own code that an error passed."""
    floors = ("secure_fgl", "audits", "algorithms", "protocols", "crypto")
    found = ""
    for module, line in raised_in(error):
        if module.partition(".")[0] in floors:
            found = f" in {module}, line {line}"
    return found
