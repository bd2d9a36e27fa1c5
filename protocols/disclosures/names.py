"""What the receiver of a message is meant to learn: one name for each folder beside this file.

Each folder's `__init__` says the facts that hold whatever protects a message:

    MEANING   what the receiver learns, in a few words
    BACK      whether it may come back from a client
    GIVEN     whether it may go to a client: its place among those that may, the strictest first;
              None: it may not
"""

from __future__ import annotations

import pkgutil
from enum import StrEnum
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

__all__ = ["BACK", "GIVEN", "Disclosure"]


def _folders() -> list[str]:
    """Return the folders that are disclosures; those with an underscore are shared by several."""
    found = pkgutil.iter_modules([str(Path(__file__).parent)])
    return sorted(m.name.upper() for m in found if m.ispkg and not m.name.startswith("_"))


@cache
def _facts(name: str) -> Any:
    return import_module(f"protocols.disclosures.{name.lower()}")


class _Named(StrEnum):
    """A name that knows what its folder says."""

    @property
    def meaning(self) -> str:
        """What the receiver learns."""
        return str(_facts(self).MEANING)


if TYPE_CHECKING:

    class Disclosure(_Named):
        """What a message may disclose; the value is what stands in plans and policies."""

        SUM = "SUM"
        WEIGHTED_SUM = "WEIGHTED_SUM"
        NEIGHBOUR_SUM = "NEIGHBOUR_SUM"
        SIMILARITY = "SIMILARITY"
        MATCH = "MATCH"
        ROW_SUM = "ROW_SUM"
        MIXED = "MIXED"
        NOISED = "NOISED"
        SEALED = "SEALED"
        RELEASED = "RELEASED"
        PUBLIC = "PUBLIC"
else:
    Disclosure = _Named("Disclosure", {name: name for name in _folders()}, module=__name__)
    Disclosure.__doc__ = "What a message may disclose; the value stands in plans and policies."


def _given() -> tuple[Disclosure, ...]:
    places = {found: _facts(found).GIVEN for found in Disclosure}
    return tuple(sorted((d for d in Disclosure if places[d] is not None), key=places.__getitem__))


GIVEN = _given()
"""What may go to a client, the strictest first."""

BACK = tuple(found for found in Disclosure if _facts(found).BACK)
"""What may come back from a client."""
