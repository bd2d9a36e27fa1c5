"""Finds the disclosures by folder, and what a folder holds by the names of its files.

Every folder beside this file is a disclosure, except those whose names begin with an underscore:
they hold what several share. A folder may hold, each under the name that stands behind it:

    guards.py     GUARDS    the guards that only this disclosure has
    rules.py      RULES     which chains protect it, and which forms they admit
    plan.py       PLAN      what it adds to a plan
    protect.py    PROTECT   what the gateway does to its messages
    messages.py   MESSAGES  messages of the layer itself that only it has
    words.py      WORDS     what plans and reports say of it
    view.py       VIEW      what the aggregator holds of answers, and what a Reply gives of them
    context.py    CONTEXT   what plan, policy and roster must agree on for it
    kept.py       KEPT      classes that stand in a session's kept state

    <role>.py     <ROLE>    the part of a role's session: aggregator.py, client.py, witness.py, …

What a folder does not say is the default of the class of that name in `_base`.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from crypto.signing.canonical import canonical
from protocols.disclosures.names import Disclosure
from protocols.policy.guard import Guard

__all__ = ["code", "each", "facet", "guards"]

_HERE = "protocols.disclosures"
_DOMAIN = b"secure-fgl/disclosure\0"


@cache
def facet(disclosure: Disclosure, file: str) -> Any | None:
    """Return what a disclosure's folder holds in one of its files; None if it has no such file."""
    module = f"{_HERE}.{disclosure.lower()}.{file}"
    return getattr(import_module(module), file.upper()) if find_spec(module) else None


@cache
def each(file: str) -> tuple[Any, ...]:
    """Return what the folders hold in a file of this name, without repeats, by folder."""
    found = (facet(disclosure, file) for disclosure in Disclosure)
    return tuple(dict.fromkeys(one for one in found if one is not None))


@cache
def code() -> dict[str, str]:
    """Return the digest (SHA-256, hex) of every folder's files, those of shared ones included.

    It stands in every plan, so that a folder that was changed or added is another plan.
    """
    here, found = Path(__file__).parent, {}
    for folder in sorted(path for path in here.iterdir() if (path / "__init__.py").is_file()):
        files = {
            file.relative_to(here).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
            for file in folder.rglob("*.py")
        }
        found[folder.name] = hashlib.sha256(_DOMAIN + canonical(files)).hexdigest()
    return found


@cache
def guards() -> tuple[type[Guard], ...]:
    """Return the guards of all disclosures."""
    return tuple(guard for found in Disclosure for guard in facet(found, "guards") or ())
