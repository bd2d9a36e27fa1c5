"""Finds the disclosures by folder, and what a folder says in five modules.

Every folder beside this file is a disclosure, except those whose names begin with an underscore:
they hold what several share. A folder may hold:

    guards.py       GUARDS    the guards that only this disclosure has
    messages.py     MESSAGES  messages of the layer itself that only it has

    disclosure.py   RULES     which chains protect it, and which forms they admit
                    PLAN      what it adds to a plan
                    PROTECT   what the gateway does to its messages
                    WORDS     what plans and reports say of it
                    VIEW      what the aggregator holds of answers, and what a Reply gives of them
                    CONTEXT   what plan, policy and roster must agree on for it

    aggregator.py   AGGREGATOR  the part of the aggregator's session, or that in `parties.py`
    parties.py      <ROLE>      the part of any other role's session: CLIENT, WITNESS, …
                    KEPT        classes that stand in a session's kept state

Guards and messages are apart because policies and the layer's own messages are made of them. What
a folder does not say is the default of the class of that name in `_base`.
"""

from __future__ import annotations

import hashlib
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from crypto.signing import canonical
from protocols.disclosures.names import Disclosure
from protocols.policy.guard import Guard

__all__ = ["code", "each", "facet", "guards"]

_HERE = "protocols.disclosures"
_DOMAIN = b"secure-fgl/disclosure\0"


_DISCLOSURE = frozenset({"rules", "plan", "protect", "words", "view", "context"})
_APART = frozenset({"guards", "messages"})


@cache
def facet(disclosure: Disclosure, name: str) -> Any | None:
    """Return what a disclosure's folder says under a name, in small letters; None: nothing."""
    folder, files = f"{_HERE}.{disclosure.lower()}", _files(name)
    found = (import_module(f"{folder}.{file}") for file in files if find_spec(f"{folder}.{file}"))
    return next(
        (getattr(file, name.upper()) for file in found if hasattr(file, name.upper())), None
    )


def _files(name: str) -> tuple[str, ...]:
    """Return the modules that may define a name of a disclosure."""
    if name in _APART:
        return (name,)
    if name in _DISCLOSURE:
        return ("disclosure",)
    return ("aggregator", "parties") if name == "aggregator" else ("parties",)


@cache
def each(name: str) -> tuple[Any, ...]:
    """Return what the folders say under a name, without repeats, by folder."""
    found = (facet(disclosure, name) for disclosure in Disclosure)
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
