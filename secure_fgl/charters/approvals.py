"""What each party said to a charter: signed, refused, or nothing yet.

A signature cannot be taken back: whoever holds a copy with it and without a later refusal has a
charter that all signed. So a party that refused keeps a note of it (`joining.refuse`), and neither
signs, keeps nor starts that charter any more, whatever copy it is handed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from audits.evidence.charter_file import APPROVAL
from crypto.errors import CryptoError
from crypto.signing.canonical import canonical
from crypto.signing.signatures import SigningKey, VerifyKey
from protocols.errors import EvidenceError
from protocols.wire.roster import Roster
from secure_fgl.errors import UsageError

__all__ = ["LONGEST_REASON", "Approval", "Refusal", "Word", "approvals", "signature"]

LONGEST_REASON = 500
_REFUSAL = "charter refusal"


@dataclass(frozen=True)
class Refusal:
    """One party's signed no, with its reason in words, made or read.

    Raises:
        UsageError: the reason is empty, too long, or of more than one line: all others print it.
    """

    reason: str
    signature: bytes

    def __post_init__(self) -> None:
        """See what the class says."""
        said: object = self.reason
        if (
            not isinstance(said, str)
            or not 1 <= len(said) <= LONGEST_REASON
            or not said.isprintable()
        ):
            raise UsageError(
                "This is no reason that a refusal can hold.",
                why=f"it takes 1 to {LONGEST_REASON} printable characters on one line",
                fix="--reason 'why, in a sentence; all parties will read it'",
            )

    @classmethod
    def of(cls, key: SigningKey, charter: bytes, reason: str) -> Refusal:
        """Refuse a charter, by what is signed of it; raises UsageError for what is no reason."""
        return cls(reason, key.sign(_REFUSAL, _said(charter, reason)))

    def check(self, key: VerifyKey, charter: bytes) -> None:
        """Raise CryptoError unless this key refused that charter for that reason."""
        key.verify(_REFUSAL, self.signature, _said(charter, self.reason))


def _said(charter: bytes, reason: str) -> bytes:
    return canonical([charter.hex(), reason])


def signature(key: SigningKey, charter: bytes) -> bytes:
    """Return a party's signature over a charter, by what is signed of it."""
    return key.sign(APPROVAL, charter)


class Word(StrEnum):
    """What a party said."""

    SIGNED = "signed"
    REFUSED = "refused"
    NOTHING = "nothing yet"


@dataclass(frozen=True)
class Approval:
    """Attributes: word, and the reason of a refusal."""

    word: Word
    reason: str = ""


def approvals(
    roster: Roster,
    signed: bytes,
    signatures: Mapping[str, bytes],
    refusals: Mapping[str, Refusal],
) -> dict[str, Approval]:
    """Return what every party said, each signature verified; a refusal counts more.

    Args:
        roster: of the charter.
        signed: what parties sign of it.
        signatures: by party name.
        refusals: by party name.

    Raises:
        EvidenceError: at step ``charter``: a stranger signed, or a signature is another one's or
            of another charter.
    """
    names = {party["name"] for party in roster.document()}
    if {*signatures, *refusals} - names:
        raise EvidenceError("charter", "a stranger signed it")
    found = {}
    for name in sorted(names):
        key, refusal = roster.party(name).verify, refusals.get(name)
        found[name] = Approval(Word.SIGNED if name in signatures else Word.NOTHING)
        try:
            if name in signatures:
                key.verify(APPROVAL, signatures[name], signed)
            if refusal is not None:
                refusal.check(key, signed)
                found[name] = Approval(Word.REFUSED, refusal.reason)
        except CryptoError as error:
            raise EvidenceError("charter", f"{name} signed another charter") from error
    return found
