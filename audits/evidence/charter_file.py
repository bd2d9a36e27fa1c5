"""``charter.json``: what the parties of a run between organisations agreed on, for auditors.

A charter is drawn up and signed before the run (`secure_fgl.charters.charter`). Here
it is evidence: nothing of it is believed until the step ``approvals`` has held it against the run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from audits.evidence.run_files import fail
from crypto.errors import CryptoError
from crypto.signing import canonical, parse
from protocols.errors import EvidenceError

__all__ = ["APPROVAL", "REHEARSED", "CharterFile", "approved", "read_charter"]

REHEARSED = "Rehearsal of "
"""How every organisation's name begins where one person played all parties."""
APPROVAL = "charter"
"""The domain of a party's signature over a charter."""
_ADDED = ("signatures", "refusals")  # what parties say to it, and so no part of what they sign

CHARTER_LIMIT = 64 << 20  # bytes; a plan of a thousand clients is far below
_TEXTS = ("run", "nonce", "plan", "policy", "config")
_LONGEST = 120  # characters of an organisation's name in a report


@dataclass(frozen=True)
class CharterFile:
    """A charter as it lies there.

    Attributes:
        run, nonce: the run's name and what makes it new, in hex.
        parties: the roster's entries, plain data.
        plan, policy, config: what was agreed, as text.
        carriers: by party, the public key of its connection to the broker.
        organisations: by party, whose it is; empty where the charter names none.
        signatures: by party, over `signed`.
        refused: who refused it.
        signed: the digest that the parties signed.
    """

    run: str
    nonce: str
    parties: tuple[Any, ...]
    plan: str
    policy: str
    config: str
    carriers: Mapping[str, str]
    signatures: Mapping[str, bytes]
    signed: bytes
    organisations: Mapping[str, str] = field(default_factory=dict)
    refused: tuple[str, ...] = ()

    @property
    def rehearsed(self) -> bool:
        """Tell whether one of its organisations is called a rehearsal's."""
        return any(name.startswith(REHEARSED) for name in self.organisations.values())


def read_charter(data: bytes) -> CharterFile:
    """Read a charter strictly, whatever else a later program puts into one.

    What this program does not know is under the signatures like the rest.

    Raises:
        EvidenceError: at step ``approvals``: it is no charter in canonical JSON.
    """
    try:
        found = parse(data, limit=CHARTER_LIMIT)
        if not isinstance(found, dict):
            raise ValueError
        texts = {name: found[name] for name in _TEXTS}
        parties, signatures = found["parties"], _texts(found["signatures"])
        if not isinstance(parties, list) or not all(map(_is_text, texts.values())):
            raise ValueError
        return CharterFile(
            **texts,
            parties=tuple(parties),
            carriers=_names(found["carriers"]),
            organisations=_names(found.get("organisations", {})),
            signatures={name: bytes.fromhex(value) for name, value in signatures.items()},
            refused=tuple(sorted(_refusals(found.get("refusals", {})))),
            signed=approved(found),
        )
    except (CryptoError, KeyError, TypeError, ValueError):
        raise EvidenceError("approvals", "charter.json is not a charter") from None


def approved(document: Mapping[str, Any]) -> bytes:
    """Return what parties sign: SHA-256 over all of a charter but signatures and refusals."""
    drawn_up = {name: value for name, value in document.items() if name not in _ADDED}
    return hashlib.sha256(canonical(drawn_up)).digest()


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _texts(found: object) -> dict[str, str]:
    if not isinstance(found, dict) or not all(map(_is_text, found.values())):
        raise ValueError
    return found


def _refusals(found: object) -> list[str]:
    if not isinstance(found, dict):
        raise ValueError
    return list(found)


def _names(found: object) -> dict[str, str]:
    """Return names for a report: one short printable line each."""
    names = _texts(found)
    if any(not name.isprintable() or len(name) > _LONGEST for name in names.values()):
        fail("approvals", "charter.json holds a name that no report prints")
    return names
