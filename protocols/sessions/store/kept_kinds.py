"""Which classes may stand in a session's kept state, each by its name; see `codec`.

Those of one disclosure are named in its folder, as `KEPT`.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from typing import Any

from protocols.disclosures._base.view import Answers, ClearView, Kept
from protocols.disclosures.names import Disclosure
from protocols.disclosures.registry import each
from protocols.evidence.ledger import Spoken
from protocols.keys.groups import Group, Slot
from protocols.keys.setup import KeyPhase, Setup
from protocols.plan.steps import Service, Step
from protocols.rounds import Reply, Sealed
from protocols.sessions.asking import Held
from protocols.sessions.part import Collection, Delivery, State
from protocols.wire.envelope import Where
from protocols.wire.gateway import Gateway
from protocols.wire.inbox import Inbox
from protocols.wire.roles import Role

__all__ = ["enums", "objects"]

_LAYERS_OWN = (
    *(Answers, ClearView, Collection, Gateway, Group, Held, Inbox, Kept, Delivery, Reply, Sealed),
    *(Setup, Slot, Spoken, Where),
    *(Disclosure, KeyPhase, Role, Service, State, Step),
)


@cache
def _by_name() -> dict[str, type[Any]]:
    """Return all classes by name; raises TypeError if two have one name."""
    found: dict[str, type[Any]] = {}
    for kind in (*_LAYERS_OWN, *(one for kinds in each("kept") for one in kinds)):
        if found.setdefault(kind.__name__, kind) is not kind:
            raise TypeError(f"Two classes of kept state are called {kind.__name__}.")
    return found


@cache
def enums() -> dict[str, type[Enum]]:
    """Return the enumerations of kept state by name."""
    return {name: kind for name, kind in _by_name().items() if issubclass(kind, Enum)}


@cache
def objects() -> dict[str, type[Any]]:
    """Return the other classes of kept state by name."""
    return {name: kind for name, kind in _by_name().items() if name not in enums()}
