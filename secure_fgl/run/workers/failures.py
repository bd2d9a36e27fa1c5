"""An error of a worker, told to the process that started it: the same type, text and place.

As plain values, so that nothing which arrives can be more than that. What is told stays on this
machine: of an error that is not ours the text may hold data, as it may where everything runs in one
process, and it is shown in the same cases (``--verbose``).
"""

from __future__ import annotations

import builtins
import sys
import traceback
from typing import Any

__all__ = ["again", "raised_in", "told"]

_PLACE = "raised_in"


def raised_in(error: BaseException) -> list[tuple[str, int]]:
    """Return the modules and lines that an error passed, the deepest last, in whichever process."""
    found: list[tuple[str, int]] = getattr(error, _PLACE, [])
    frames = traceback.walk_tb(error.__traceback__)
    return found or [(str(f.f_globals.get("__name__", "")), line) for f, line in frames]


def told(error: BaseException) -> dict[str, Any]:
    """Return an error as plain values."""
    arguments: tuple[Any, ...] = error.args
    if isinstance(error, OSError):
        arguments = (error.errno, error.strerror, error.filename)
    text = "".join(traceback.format_exception(error))
    return {
        "arguments": tuple(map(_plain, arguments)),
        "facts": {str(k): _plain(v) for k, v in vars(error).items() if k != "__notes__"},
        "kind": (type(error).__module__, type(error).__qualname__),
        "notes": tuple(map(str, getattr(error, "__notes__", ()))),
        "place": tuple(raised_in(error)),
        "trace": text,
    }


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return value
    if isinstance(value, tuple | list):
        return type(value)(map(_plain, value)) if type(value) in (tuple, list) else str(value)
    return str(value)


def again(found: dict[str, Any]) -> BaseException:
    """Return the error that `told` wrote down."""
    kind = _kind(*found["kind"])
    error = kind.__new__(kind, *found["arguments"])
    if not isinstance(error, OSError):
        error.args = tuple(found["arguments"])
    vars(error).update(found["facts"])
    setattr(error, _PLACE, [(str(module), int(line)) for module, line in found["place"]])
    for note in found["notes"]:
        error.add_note(note)
    error.add_note(f"In the worker:\n{found['trace']}")
    return error


def _kind(module: str, name: str) -> type[BaseException]:
    """Return the class of an error: one of ours, of Python or of a package that is loaded."""
    place: Any = sys.modules.get(module, builtins)  # errors of ours are loaded with every session
    for part in name.split("."):
        place = getattr(place, part, None)
    if isinstance(place, type) and issubclass(place, BaseException):
        return place
    return type(name.rpartition(".")[2], (Exception,), {})
