"""Settings from the command line, and variables of the environment, in plain data."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import yaml

from protocols.strict import read_yaml
from secure_fgl.errors import UsageError

__all__ = ["asks_for_a_variable", "expanded", "override", "set_key", "target"]

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")


def asks_for_a_variable(document: Any) -> bool:
    """Say whether a text of plain data is one that :meth:`Config.parse` would replace.

    It looks at what was read: in a file, YAML may spell ``$`` as an escape.
    """
    return bool(expanded(document, lambda _: "") != document)


def set_key(document: dict[str, Any], setting: str) -> None:
    """Apply one ``key.sub=value``; raises UsageError for what is none."""
    key, equals, value = setting.partition("=")
    if not equals or not key:
        raise UsageError(f"--set takes KEY=VALUE, not {setting[:60]!r}.", fix="--set seed=2")
    *path, last = key.split(".")
    place = document
    for part in path:
        inner = place.setdefault(part, {})
        if not isinstance(inner, dict):
            raise UsageError(f"--set {key}: {part!r} holds a value, not keys.")
        place = inner
    try:
        place[last] = read_yaml(value)
    except yaml.YAMLError as error:
        raise UsageError(f"--set {key}: the value is not YAML.") from error


_TARGETS = ("mlflow", "tensorboard")


def target(text: str) -> str:
    """Return where metrics go, ``KIND:PLACE``, if it is one; raises ValueError."""
    kind, colon, place = text.partition(":")
    if kind not in _TARGETS or not colon or not place:
        raise ValueError("write tensorboard:FOLDER or mlflow:URI, such as mlflow:sqlite:///runs.db")
    return text


def override(place: dict[str, Any], **values: Any) -> None:
    """Replace the values that are given; None leaves what is there."""
    place.update({key: value for key, value in values.items() if value is not None})


def expanded(value: Any, found: Callable[[re.Match[str]], str] | None = None) -> Any:
    """Replace ``${SECURE_FGL_X}`` and ``${SECURE_FGL_X:-default}``, in texts only.

    A text that is one variable and nothing else becomes the number or truth value that the
    variable's text is in YAML, as if it stood in the file.
    """
    if isinstance(value, dict):
        return {key: expanded(inner, found) for key, inner in value.items()}
    if isinstance(value, list):
        return [expanded(inner, found) for inner in value]
    if isinstance(value, str):
        text = _VARIABLE.sub(found or _variable, value)
        return _scalar(text) if _VARIABLE.fullmatch(value) else text
    return value


def _scalar(text: str) -> Any:
    try:
        value = read_yaml(text)
    except yaml.YAMLError:
        return text
    return value if isinstance(value, int | float) else text


def _variable(match: re.Match[str]) -> str:
    name, default = match.group(1), match.group(2)
    if not name.startswith("SECURE_FGL_"):  # values end up in the run folder
        raise UsageError(
            f"The configuration uses ${{{name}}}; only variables SECURE_FGL_... are replaced."
        )
    found = os.environ.get(name) or default
    if found is None:
        raise UsageError(
            f"The configuration uses ${{{name}}}, which is not set.",
            fix=f"export {name}=..., or write ${{{name}:-default}}",
        )
    return found
