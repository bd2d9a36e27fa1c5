"""What a party announces before a charter is drawn up: name, role, organisation, public keys.

The file travels by any way that there is, so whoever carries it could exchange it. Two people who
know each other compare its fingerprint by telephone; the charter shows the same one.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from dataclasses import dataclass

from crypto.errors import CryptoError
from crypto.hpke import SealingKey
from crypto.signing import VerifyKey, canonical, parse
from protocols.errors import SecureFglError
from protocols.wire.roles import Role, names_in
from protocols.wire.roster import Identity, Party
from secure_fgl.charters.broker import is_public_key
from secure_fgl.errors import UsageError
from secure_fgl.run.naming import misnamed

__all__ = [
    "LIMIT",
    "MALFORMED",
    "Facts",
    "Renewal",
    "check_party",
    "fingerprint",
    "misnamed_organisation",
    "nonce_of",
    "party_of",
]

LIMIT = 1 << 14  # bytes; ours has about 500
NONCE_BYTES = 16
_RENEWAL = "identity renewal"
_LONGEST = 100  # characters of an organisation's name
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\ufe00-\ufe0f"
    "\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
"""Printable by Unicode's classes and drawn as nothing, or as a blank."""
_TOGETHER = {"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"}
"""Scripts that one name is written in; of others, letters that look alike would hide a stranger."""


@dataclass(frozen=True)
class Renewal:
    """The last identity's word for the next one, of the same name, role and organisation.

    Attributes:
        last: the identity that signs.
        signature: under its key, over the next party, its organisation and the last identity.
    """

    last: Party
    signature: bytes

    @classmethod
    def of(cls, last: Identity, party: Party, organisation: str, carrier: str) -> Renewal:
        """Sign the next identity with the last one."""
        said = _renewed(last.party, party, organisation, carrier)
        return cls(last.party, last.signing.sign(_RENEWAL, said))

    def check(self, party: Party, organisation: str, carrier: str) -> None:
        """Raise CryptoError unless `last` signed this party as its next identity."""
        said = _renewed(self.last, party, organisation, carrier)
        self.last.verify.verify(_RENEWAL, self.signature, said)

    def document(self) -> dict[str, str]:
        """Return what is saved: name and role are the next one's."""
        found = self.last.document()
        return {"verify": found["verify"], "seal": found["seal"], "signature": self.signature.hex()}


@dataclass(frozen=True)
class Facts:
    """One party's announcement. Public.

    Attributes:
        party: name, role and public keys.
        organisation: who it is, in words.
        carrier: the public key (NKey) of its connection to the broker.
        renewal: the last identity's signature, where this one takes its place; else None.
    """

    party: Party
    organisation: str
    carrier: str
    renewal: Renewal | None = None

    @property
    def fingerprint(self) -> str:
        """What two people compare; see `fingerprint`."""
        return fingerprint(self.party, self.organisation, self.carrier)

    @property
    def last_fingerprint(self) -> str:
        """That of the identity which signed this one; empty for one that nobody signed."""
        last = self.renewal.last if self.renewal else None
        return fingerprint(last, self.organisation, self.carrier) if last else ""

    def encode(self) -> bytes:
        """Return the bytes that are saved."""
        more = {} if self.renewal is None else {"renews": self.renewal.document()}
        return canonical({
            **self.party.document(), "organisation": self.organisation, "carrier": self.carrier,
            **more,
        })  # fmt: skip

    @classmethod
    def decode(cls, data: bytes) -> Facts:
        """Read an announcement strictly.

        Raises:
            UsageError: not in the form in which they are saved, a name that nobody may have, or a
                renewal that the last identity did not sign.
        """
        try:
            document = parse(data, limit=LIMIT)
            if not isinstance(document, dict):
                raise ValueError
            organisation, renews = document.pop("organisation"), document.pop("renews", None)
            carrier = document.pop("carrier")
            found = cls(party_of(document), str(organisation), carrier, _renewal(document, renews))
            if found.encode() != data or not is_public_key(carrier):
                raise ValueError
            if found.renewal is not None:
                found.renewal.check(found.party, found.organisation, carrier)
        except (CryptoError, SecureFglError, *MALFORMED) as error:
            raise UsageError(
                "A party's facts cannot be read.",
                why="the file was cut, edited by hand, or is another one",
                fix="take the file NAME.facts.json as site new wrote it at the party",
            ) from error
        check_party(found.party.name, found.party.role)
        if wrong := misnamed_organisation(found.organisation):
            raise UsageError(f"The organisation of {found.party.name} {wrong}.")
        return found


MALFORMED = (AttributeError, KeyError, TypeError, ValueError)
"""What plain data of another shape raise where they are taken apart."""


def _renewal(document: dict[str, str], renews: object) -> Renewal | None:
    if renews is None:
        return None
    if not isinstance(renews, dict) or set(renews) != {"verify", "seal", "signature"}:
        raise ValueError("not a renewal")
    keys = {name: renews[name] for name in ("verify", "seal")}
    return Renewal(party_of({**document, **keys}), bytes.fromhex(renews["signature"]))


def party_of(document: object) -> Party:
    """Return a party from its public facts; raises what plain data of another shape raise."""
    if not isinstance(document, dict) or set(document) != {"name", "role", "verify", "seal"}:
        raise ValueError("not the facts of a party")
    if not isinstance(document["name"], str):
        raise TypeError("a name is a text")
    verify = VerifyKey(bytes.fromhex(document["verify"]))
    seal = SealingKey.from_bytes(bytes.fromhex(document["seal"]))
    return Party(document["name"], Role(document["role"]), verify, seal)


def nonce_of(text: str) -> bytes:
    """Return the 16 bytes that make a run's name new; raises ValueError for more or fewer.

    With none, or few, runs of one plan would share a name, and no evidence of them be read.
    """
    nonce = bytes.fromhex(text)
    if len(nonce) != NONCE_BYTES:
        raise ValueError("a nonce has another length")
    return nonce


def _renewed(last: Party, party: Party, organisation: str, carrier: str) -> bytes:
    # The last one whole: of another sealing key beside its own its fingerprint would be another.
    return canonical([last.document(), party.document(), organisation, carrier])


def fingerprint(party: Party, organisation: str, carrier: str) -> str:
    """Return 32 hexadecimal digits in groups of four, over name, role, keys and organisation."""
    facts = canonical([party.document(), organisation, carrier])
    digits = hashlib.sha256(b"secure-fgl/facts\0" + facts).hexdigest()[:32]
    return " ".join(digits[i : i + 4] for i in range(0, len(digits), 4))


def check_party(name: str, role: Role) -> None:
    """Raise UsageError unless a party in this role can be called so.

    A client is called as one likes (`secure_fgl.run.naming`); the names of other roles are fixed,
    since plans are made before anybody announces anything.
    """
    if role is Role.CLIENT:
        if wrong := misnamed([name]):
            raise UsageError(f"A client cannot be called {name[:80]!r}.", why=wrong)
        return
    if name not in names_in(role):
        raise UsageError(
            f"A party in the role {role} cannot be called {name[:80]!r}.",
            why="only clients choose their names",
            fix=f"--name {' or '.join(names_in(role))}",
        )


def misnamed_organisation(text: object) -> str:
    """Return why an organisation cannot be called so; empty if it can.

    Names are of one script, so that no letter of another one that looks alike hides in them.
    """
    if not isinstance(text, str) or not 1 <= len(text) <= _LONGEST:
        return f"is to have a name of 1 to {_LONGEST} characters"
    plain = unicodedata.normalize("NFKC", text)
    unseen = _UNSEEN.search(text) or not text.isprintable()
    if plain != text or unseen or text != " ".join(text.split()):
        return "has a name with characters that are not seen, or look like others"
    scripts = {unicodedata.name(c, "?").split()[0] for c in text if c.isalpha()}
    if not scripts:
        return "has a name without a letter"
    if len(scripts) > 1 and not scripts <= _TOGETHER:
        return "has a name with letters of several scripts, which can look alike"
    return ""
