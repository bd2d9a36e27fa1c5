"""``roster.json``: who took part in a run, under which name and how; read strictly."""

from __future__ import annotations

import json
from dataclasses import dataclass

from audits.evidence.run_files import fail, read_json
from crypto.errors import CryptoError
from crypto.hpke import SealingKey
from crypto.signing import VerifyKey
from protocols.errors import BadEnvelope, EvidenceError
from protocols.wire.roles import Role
from protocols.wire.roster import Party, Roster

__all__ = ["RosterFile", "read_roster"]

ROSTER_LIMIT = 64 << 20  # bytes; a party takes 2.6 kB (two public keys in hex)
TRANSPORTS = ("memory", "broker")
_ROSTER_KEYS = {"run", "nonce", "transport", "parties"}
_PARTY_KEYS = {"name", "role", "verify", "seal"}


@dataclass(frozen=True)
class RosterFile:
    """What ``roster.json`` says: the run's name, how it was made, and who took part."""

    run: str
    nonce: bytes
    transport: str
    roster: Roster

    @property
    def simulated(self) -> bool:
        """Tell whether all roles ran inside one process (O26)."""
        return self.transport == "memory"


def read_roster(data: bytes) -> RosterFile:
    """Parse ``roster.json``; raises EvidenceError at step ``files``."""
    document = read_json(data, limit=ROSTER_LIMIT, what="roster.json")
    if not isinstance(document, dict) or set(document) != _ROSTER_KEYS:
        fail("files", "roster.json does not hold exactly run, nonce, transport and parties")
    run, nonce = _hex(document["run"]), _hex(document["nonce"])
    if len(run) != 16:
        fail("files", "roster.json names no run")
    if document["transport"] not in TRANSPORTS:
        fail("files", "roster.json names a transport that this version does not know")
    if not isinstance(document["parties"], list) or not document["parties"]:
        fail("files", "roster.json lists no parties")
    try:
        roster = Roster([_party(entry) for entry in document["parties"]])
    except BadEnvelope:
        raise EvidenceError("files", "roster.json lists parties that no roster may hold") from None
    if roster.document() != document["parties"]:
        fail("files", "roster.json is not sorted by name, or repeats a name")
    if (json.dumps(document, indent=2, sort_keys=True) + "\n").encode() != data:
        fail("files", "roster.json is not in the form in which rosters are saved")
    return RosterFile(run.hex(), nonce, document["transport"], roster)


def _hex(text: object) -> bytes:
    if not isinstance(text, str):
        fail("files", "roster.json holds something else than hex where a key or name belongs")
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        raw = b""
    if not raw or raw.hex() != text:  # one spelling only: lower case, no spaces
        fail("files", "roster.json holds something else than hex where a key or name belongs")
    return raw


def _party(entry: object) -> Party:
    if not isinstance(entry, dict) or set(entry) != _PARTY_KEYS:
        fail("files", "a party of roster.json does not hold exactly name, role and two keys")
    name, role = entry["name"], entry["role"]
    if not isinstance(name, str):
        fail("files", "a party of roster.json has no name")
    if role not in list(Role):
        fail("files", "a party of roster.json is in no known role")
    try:
        verify, seal = VerifyKey(_hex(entry["verify"])), SealingKey.from_bytes(_hex(entry["seal"]))
    except CryptoError:
        raise EvidenceError("files", "a party of roster.json has an unusable key") from None
    return Party(name, Role(role), verify, seal)
