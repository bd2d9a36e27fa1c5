"""Names and seeds of a run, which follow from its configuration: folder, clients, learning."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from protocols.wire.roles import Role
from protocols.wire.roster import EVERYONE

__all__ = ["LONGEST", "client_names", "learning_seed", "misnamed", "run_path"]

LONGEST = 60
"""Characters of a client's name, as of every party's (`protocols.wire.roster`)."""

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9_-]{{0,{LONGEST - 1}}}")
_ROLES = "|".join(str(role).replace("_", "[_-]") for role in Role if role is not Role.CLIENT)
_OTHERS = re.compile(rf"({_ROLES})([_-]?[0-9]+)?", re.IGNORECASE)
_TAKEN = {EVERYONE, "authority", "server", "vocabulary"}


def run_path(algorithm: str, data: str) -> Path:
    """Return ``runs/<algorithm>-<data>-<UTC time>``."""
    now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    return Path("runs") / f"{algorithm}-{data.replace('/', '-')}-{now}"  # pyg/Planetoid/PubMed


def client_names(count: int) -> tuple[str, ...]:
    """Return names of equal length: ``client-1`` … or ``client-01`` …"""
    width = len(str(count))
    return tuple(f"client-{i:0{width}d}" for i in range(1, count + 1))


def misnamed(names: Sequence[str]) -> str:
    """Return why clients cannot be called so; empty if they can.

    A name is that of a folder, of files and of a site of the engine, and people compare names by
    eye. So it is of ASCII letters, digits, - and _ alone, without dots (``a`` and ``a.graph`` would
    write one file), no two differ in capitals or in - and _ alone, and none is another role's.
    """
    seen: dict[str, str] = {}
    for place, name in enumerate(names, 1):
        if not _NAME.fullmatch(name):
            return (
                f"name {place} is not 1 to {LONGEST} of the letters a to z and A to Z, digits, - "
                "and _, the first one a letter or digit"
            )
        alike = name.lower().replace("_", "-")
        if alike in _TAKEN or _OTHERS.fullmatch(name):
            return f"{name!r} is what other parties, or folders, are called; choose another"
        if alike in seen:
            same = "stands twice" if seen[alike] == name else f"looks like {seen[alike]!r}"
            return f"{name!r} {same}; every client has a name of its own"
        seen[alike] = name
    return ""


def learning_seed(seed: int, *labels: str) -> int:
    """Derive a seed of learning randomness; never used for a secret."""
    content = "/".join(("secure-fgl", str(seed), *labels)).encode()
    return int.from_bytes(hashlib.sha256(content).digest()[:6], "big")
