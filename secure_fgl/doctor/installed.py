"""What is installed: our own version, the packages that we need, and those of each extra."""

from __future__ import annotations

import re
from importlib import metadata

from audits.evidence.steps import NotChecked
from secure_fgl.errors import UsageError

__all__ = ["extra", "extras", "requirements"]

_REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)(\[[^]]*\])?\s*([^;]*)(?:;\s*(.*))?")
_EXTRA = re.compile(r"extra\s*==\s*[\"']([A-Za-z0-9_-]+)[\"']")
_BOUND = re.compile(r"(>=|<=|==|<|>)\s*([0-9][0-9a-zA-Z.]*)")
_INSTALL = "install Secure-FGL again, into a virtual environment of its own"
_OURS = "secure-fgl"
_TESTS = "test"  # the extra of whoever changes the code


def _listed(wanted: str) -> list[tuple[str, str]]:
    """Return name and bounds of the packages of one extra; of the empty one those always needed."""
    try:
        lines = metadata.requires(_OURS) or []
    except metadata.PackageNotFoundError:
        raise NotChecked("Secure-FGL runs from a checkout that is not installed") from None
    found = [match for line in lines if (match := _REQUIREMENT.fullmatch(line.strip()))]
    of = [_EXTRA.search(match[4] or "") for match in found]
    names = [mark[1] if mark else "" for mark in of]
    return [
        (match[1], match[3].strip())
        for match, name in zip(found, names, strict=True)
        if name == wanted and match[1] != _OURS
    ]


def extras() -> list[str]:
    """Return the names of our extras, but for that of tests; none in a bare checkout."""
    try:
        found = metadata.metadata(_OURS).get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return []
    return sorted(name for name in found if name != _TESTS)


def requirements() -> str:
    """Every package that is always needed is there, in a version that will do."""
    missing, told = _look(_listed(""))
    if missing:
        raise UsageError(f"Not installed, or too old: {', '.join(missing)}.", fix=_INSTALL)
    return ", ".join(told)


def extra(name: str) -> str:
    """The packages of an extra are there; raises NotChecked where all are missing."""
    listed = _listed(name)
    missing, told = _look(listed)
    if len(missing) == len(listed):
        raise NotChecked(f"not installed; if you need it: pip install '{_OURS}[{name}]'")
    if missing:
        raise UsageError(
            f"Not installed, or too old: {', '.join(missing)}.",
            fix=f"pip install '{_OURS}[{name}]'",
        )
    return ", ".join(told)


def _look(listed: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    missing, told = list[str](), list[str]()
    for name, bounds in listed:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(f"{name} {bounds}".strip())
            continue
        fits = all(_fits(version, *bound) for bound in _BOUND.findall(bounds))
        (told if fits else missing).append(f"{name} {version}")
    return missing, told


def _fits(version: str, sign: str, bound: str) -> bool:
    """Compare the numbers of two versions; what follows them (``rc1``) is not looked at."""
    one, other = _numbers(version), _numbers(bound)
    width = max(len(one), len(other))
    one, other = (numbers + (0,) * (width - len(numbers)) for numbers in (one, other))
    return {
        ">=": one >= other,
        "<=": one <= other,
        "==": one == other,
        "<": one < other,
        ">": one > other,
    }[sign]


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else (0,)
