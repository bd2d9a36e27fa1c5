"""The header of an envelope: what its sender signs, and what stands in clear."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields

from crypto.errors import CryptoError
from crypto.signing.canonical import canonical, parse
from protocols.errors import BadEnvelope

HEADER_LIMIT = 4096  # bytes; a header of ours is below 1,400


NONE = "0" * 64  # stands where a digest does not apply


WIDTH = {
    "run": 32,
    "plan": 64,
    "policy": 64,
    "round": 8,
    "exchange": 8,
    "attempt": 8,
    "cohort": 64,
    "schema": 64,
    "key": 16,
    "given": 64,
    "body": 64,
    "head": 64,
    "nonce": 32,
    "pairs": 64,
}


COUNTERS = ("round", "exchange", "attempt")


@dataclass(frozen=True)
class Header:
    """What the sender signs.

    Attributes:
        run, plan, policy: digests that bind the envelope to one run.
        round, exchange, attempt: where in the run; `exchange` counts Asks and never repeats.
        cohort: digest of the exact cohort.
        item: the plan item.
        schema: digest of the item's field schema.
        sender, recipient: party names (recipient ``roster``: everyone).
        key: id of the key that protects the body.
        given: digest of what the sender was given (equal for all clients, else nothing is opened).
        body: SHA-256 of the body.
        head: head of the sender's ledger before this release.
        nonce: 16 random bytes, so that a digest of the envelope tells nothing about its content.
        pairs: digest of what the masks of a sum rest on: epoch, who agreed on keys, slot.
    """

    run: str
    plan: str
    policy: str
    round: int
    exchange: int
    attempt: int
    cohort: str
    item: str
    schema: str
    sender: str
    recipient: str
    key: str
    given: str
    body: str
    head: str
    nonce: str
    pairs: str = NONE

    def encode(self, *, without_body: bool = False) -> bytes:
        """Return canonical bytes; `without_body` gives the HPKE ``info`` of a sealed body."""
        whole: bytes | None = self.__dict__.get("_encoded")
        if whole is None:
            whole = self._encode({})
            object.__setattr__(self, "_encoded", whole)  # a header never changes
        if not without_body:
            return whole
        if whole[_BODY_FROM : _BODY_TO + 1] != self.body.encode() + b'"':  # it holds an escape
            return self._encode({"body": ""})
        return whole[:_BODY_FROM] + whole[_BODY_TO:]

    def of_body(self, digest: str) -> Header:
        """Return this header with another body's digest (hex)."""
        made, bare = object.__new__(Header), self.encode(without_body=True)
        whole = digest.encode().join((bare[:_BODY_FROM], bare[_BODY_FROM:]))
        made.__dict__.update(self.__dict__, body=digest, _encoded=whole)
        return made

    def _encode(self, instead: Mapping[str, str]) -> bytes:
        facts = self.__dict__
        record = {name: facts[name] for name in _FIELDS}
        for name in COUNTERS:
            record[name] = f"{facts[name]:08d}"
        record.update(instead)
        return canonical(record)

    @classmethod
    def decode(cls, data: bytes) -> Header:
        """Parse strictly: exactly these keys, fixed widths; raises BadEnvelope."""
        if (found := _usual(data)) is not None:
            return cls._of_texts(data, found)
        try:
            record = parse(data, limit=HEADER_LIMIT)
        except CryptoError as error:
            raise BadEnvelope("A header is not canonical.") from error
        if not isinstance(record, dict) or set(record) != set(_FIELDS):
            raise BadEnvelope("A header does not hold exactly the known fields.")
        for name, value in record.items():
            if not isinstance(value, str) or len(value) > _LONGEST:
                raise BadEnvelope("A header field is not a short text.")
            if name in WIDTH and (len(value) != WIDTH[name] or not value.isascii()):
                raise BadEnvelope("A header field has the wrong width.")
        counters = {}
        for name in COUNTERS:
            if not record[name].isdecimal():
                raise BadEnvelope("A header counter is not a number.")
            counters[name] = int(record[name])
        return cls(**{**record, **counters})

    @classmethod
    def _of_texts(cls, data: bytes, texts: Sequence[str]) -> Header:
        """Return the header of these fields, which hold nothing that JSON escapes."""
        made = object.__new__(cls)
        facts = made.__dict__
        facts.update(zip(_SORTED, texts, strict=True))
        for name in COUNTERS:
            facts[name] = int(facts[name])
        facts["_encoded"] = data
        return made

    def siblings(self) -> Callable[[str, str, str, str], bytes]:
        """Return what encodes headers that differ in sender, body, head and nonce only.

        The same bytes as `encode`, forty times as fast, for who looks at many headers of one sum.
        Sender, digests and nonce are taken to hold nothing that JSON escapes.

        Raises:
            BadEnvelope: another field holds a mark that stands for one of these here.
        """
        marks = {name: f"@{name}@" for name in _VARIED}
        text = self._encode(marks).decode().replace("%", "%%")
        for mark in marks.values():
            if text.count(mark) != 1:
                raise BadEnvelope("A header field holds what only its own place may hold.")
            text = text.replace(mark, "%s")

        def encoded(sender: str, body: str, head: str, nonce: str) -> bytes:
            return (text % (body, head, nonce, sender)).encode()

        return encoded


_FIELDS = tuple(field.name for field in fields(Header))


_SORTED = tuple(sorted(_FIELDS))  # as canonical JSON writes them


_VARIED = ("body", "head", "nonce", "sender")  # in canonical order


_BODY_FROM = len('{"attempt":"00000000","body":"')


_BODY_TO = _BODY_FROM + WIDTH["body"]


_NAMES = list(_SORTED)


_MARKS = ["{", *[":", ","] * (len(_SORTED) - 1), ":", "}"]  # of a header, cut at its quotes


_PLAIN = bytes(set(range(0x20, 0x7F)) - set(b"\\"))  # ASCII that stands for itself


_LENGTHS = [WIDTH.get(name) for name in _SORTED]


_LONGEST = 120  # characters of a field without a width


_NUMBERS = [_SORTED.index(name) for name in COUNTERS]


def _usual(data: bytes) -> list[str] | None:
    """Return the fields, sorted, of a header without escapes: what every party of ours sends.

    None for any other, which may be a header all the same.
    """
    if data.translate(None, _PLAIN):
        return None
    parts = data.decode().split('"')
    if parts[::2] != _MARKS or parts[1::4] != _NAMES:
        return None
    found = parts[3::4]
    for text, length in zip(found, _LENGTHS, strict=True):
        if len(text) != length and (length is not None or len(text) > _LONGEST):
            return None
    return found if all(found[place].isdecimal() for place in _NUMBERS) else None
