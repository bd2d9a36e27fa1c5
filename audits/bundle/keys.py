"""``keys/trust.json``: the public keys that may sign in this run, with role and validity.

Every key is valid for one run: parties make theirs anew for each, and an auditor's is named for
the run it signs about. The file says whose key is whose; that it is theirs, only ``--trust`` can
show.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from audits.evidence.run_files import check_version, fail
from crypto.errors import CryptoError
from crypto.signing.canonical import canonical, parse
from crypto.signing.signatures import VerifyKey
from protocols.errors import EvidenceError
from protocols.versions import BUNDLE
from protocols.wire.roles import Role
from protocols.wire.roster import Roster

__all__ = ["AUDITOR", "Keys", "Known", "keys_text", "read_keys"]

AUDITOR = "auditor"
KEYS_LIMIT = 16 << 20  # bytes; a key takes about 200
_ROLES = {AUDITOR, *map(str, Role)}
_MEMBERS = {"key", "name", "role", "run"}


@dataclass(frozen=True)
class Known:
    """One key: whose, in which role, and the run for which it is valid."""

    name: str
    role: str
    key: VerifyKey
    run: str

    def document(self) -> dict[str, str]:
        """Return plain data (key in hex)."""
        return {"key": self.key.raw.hex(), "name": self.name, "role": self.role, "run": self.run}


@dataclass(frozen=True)
class Keys:
    """All keys of a run, sorted by name."""

    run: str
    known: tuple[Known, ...]

    def by_id(self) -> dict[str, VerifyKey]:
        """Return short name -> key."""
        return {known.key.key_id: known.key for known in self.known}

    def owner(self, key: VerifyKey) -> Known:
        """Return whose key this is; raises KeyError for a stranger's."""
        return {known.key: known for known in self.known}[key]

    @property
    def parties(self) -> Mapping[str, tuple[str, str]]:
        """Name -> (role, key in hex) of everyone but auditors."""
        return {k.name: (k.role, k.key.raw.hex()) for k in self.known if k.role != AUDITOR}


def keys_text(run: str, roster: Roster, auditor: VerifyKey | None) -> bytes:
    """Return ``keys/trust.json``, in canonical JSON.

    Args:
        run: the run's name.
        roster: its parties.
        auditor: who signs statements; None if nobody does.

    Raises:
        EvidenceError: at step ``attestations``: the auditor's key is a party's own, or a party is
            called "auditor".
    """
    known = [Known(p["name"], p["role"], _key(p["verify"]), run) for p in roster.document()]
    if auditor is not None:
        known.append(Known(AUDITOR, AUDITOR, auditor, run))
    _distinct(known)
    listed = [k.document() for k in sorted(known, key=lambda k: k.name)]
    return canonical({"keys": listed, "run": run, "version": BUNDLE.version})


def read_keys(data: bytes) -> Keys:
    """Parse ``keys/trust.json``; raises EvidenceError at step ``attestations``."""
    try:
        found = parse(data, limit=KEYS_LIMIT)
    except CryptoError:
        raise EvidenceError("attestations", "keys/trust.json is not canonical JSON") from None
    # The bundle's version once more: statements are signed over this file, not over the manifest.
    step, what = "attestations", "keys/trust.json"
    check_version(found, BUNDLE, step=step, what=what, member="version")
    if not isinstance(found, dict) or set(found) != {"keys", "run", "version"}:
        fail("attestations", "keys/trust.json does not hold exactly keys, run and version")
    run, listed = found["run"], found["keys"]
    if not isinstance(run, str) or not isinstance(listed, list):
        fail("attestations", "keys/trust.json names no run, or holds no list of keys")
    known = [_known(entry) for entry in listed]
    _distinct(known)
    if [k.name for k in known] != sorted(k.name for k in known):
        fail("attestations", "keys/trust.json is not sorted by name")
    if any(k.run != run for k in known):
        fail("attestations", "keys/trust.json lists a key that was valid for another run")
    return Keys(run, tuple(known))


def _known(entry: object) -> Known:
    if not isinstance(entry, dict) or set(entry) != _MEMBERS:
        fail("attestations", "a key of keys/trust.json does not hold exactly key, name, role, run")
    if not all(isinstance(value, str) for value in entry.values()) or entry["role"] not in _ROLES:
        fail("attestations", "a key of keys/trust.json is in no known role")
    return Known(entry["name"], entry["role"], _key(entry["key"]), entry["run"])


def _key(text: str) -> VerifyKey:
    try:
        key = VerifyKey(bytes.fromhex(text))
    except (CryptoError, ValueError):
        raise EvidenceError("attestations", "keys/trust.json lists an unusable key") from None
    if key.raw.hex() != text:
        fail("attestations", "keys/trust.json spells a key in another way than lower-case hex")
    return key


def _distinct(known: list[Known]) -> None:
    if len({k.key for k in known}) != len(known) or len({k.name for k in known}) != len(known):
        fail("attestations", "two of those who may sign have one key, or one name")
