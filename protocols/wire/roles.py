"""The roles by file of `protocols/roles`, and what those files say; see there."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable, Sequence
from enum import StrEnum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

__all__ = [
    "Role",
    "brought",
    "longest",
    "most",
    "names",
    "names_in",
    "planners",
    "session_of",
    "takers",
]

_FOLDER = Path(__file__).parents[1] / "roles"

if TYPE_CHECKING:

    class Role(StrEnum):
        """What a party does; the value is the name of its file in `protocols/roles`."""

        CLIENT = "client"
        AGGREGATOR = "aggregator"
        KEY_AUTHORITY = "key_authority"
        MATCHER = "matcher"
        RELAY = "relay"
        TAG_SERVER = "tag_server"
        WITNESS = "witness"
else:
    _FILES = sorted(
        (module.name for module in pkgutil.iter_modules([str(_FOLDER)])),
        key=lambda name: (name != "client", name != "aggregator", name),
    )
    Role = StrEnum("Role", {name.upper(): name for name in _FILES}, module=__name__)
    Role.__doc__ = "What a party does; the value is the name of its file in `protocols/roles`."

_EVERY_RUN = (Role.AGGREGATOR, Role.CLIENT)
"""The other roles serve these two, and their files may bring parts for them."""


@cache
def _file(role: Role) -> Any:
    """Return a role's module; it imports what imports this one, so it is loaded when asked for."""
    return import_module(f"protocols.roles.{role}")


def session_of(role: Role) -> type[Any]:
    """Return the class of a role's session."""
    found: type[Any] = _file(role).SESSION
    return found


def longest(role: Role) -> str:
    """Return the longest name of a party in a role, by which plans size headers; not of clients."""
    return max(names_in(role), key=len)


def names_in(role: Role) -> tuple[str, ...]:
    """Return all names that parties in a role can have; not of clients."""
    found: tuple[str, ...] = _file(role).NAMES
    return found


def most(role: Role) -> int:
    """Return how many parties can be in a role; not of clients."""
    return len(names_in(role))


def names(role: Role, items: Sequence[Any], policy: Any) -> tuple[str, ...]:
    """Return the names of the parties that a run needs in a role; not of clients.

    Args:
        role: any but the clients'.
        items: of the plan.
        policy: of the run.
    """
    if all(item.recipient != str(role) for item in items):
        return ()
    count = getattr(_file(role), "count", None)
    found = names_in(role)
    return found if count is None else found[: count(items, policy)]


def brought(role: Role) -> tuple[type[Any], ...]:
    """Return the parts that other roles' files bring for a role of every run, by file."""
    files = (_file(other) for other in Role if other not in _EVERY_RUN)
    return tuple(part for file in files if (part := getattr(file, role.name, None)) is not None)


def planners() -> Iterable[Any]:
    """Return what roles add to the plan for one kind of Ask, by file."""
    found = (getattr(_file(role), "plan", None) for role in Role if role not in _EVERY_RUN)
    return tuple(plan for plan in found if plan is not None)


@cache
def takers(part: Any, step: Any) -> tuple[Role, ...]:
    """Return the roles that take an envelope of this part of the plan and step."""
    return tuple(role for role in Role if (part, step) in session_of(role).takes)
