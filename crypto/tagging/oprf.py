"""Tags that no single party can make: OPRF(ristretto255, SHA-512) of RFC 9497, its key split.

A client blinds inputs, two servers multiply by their shares of the key, one after the other, and
the client unblinds and hashes. The output is that of RFC 9497 under k = k1 k2 (O24), so its vectors
hold. Both servers see uniform points and learn nothing of the inputs; the client learns nothing of
the shares; with one share nobody can compute an output. There is no proof that a server used the
same key for all (mode OPRF, not VOPRF): whoever needs that compares outputs of a public input.

A server that lies, with other clients to ask the honest one for it, can give a client outputs under
any polynomial in the honest share without a constant term, so under no key that it knows. Sums of
shares do not have that: there it takes the honest part off its own answer (docs/adr/0018). The
second server must not see the points that went to the first.

Every input of a batch costs the same work, whatever it is, so a client that fills a batch up with
random inputs does not tell by its time how many are its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import repeat
from typing import Final

from crypto.errors import InvalidKey, OutOfRange
from crypto.handles import Mute
from crypto.tagging import ristretto
from crypto.tagging.ristretto import POINT_BYTES, SCALAR_BYTES, UNIFORM_BYTES, Spread

__all__ = [
    "OUTPUT_BYTES",
    "Blinded",
    "KeyShare",
    "blind",
    "expand_message_xmd",
    "joined",
    "pointwise",
]

OUTPUT_BYTES: Final = 64
_SUITE: Final = b"OPRFV1-\x00-ristretto255-SHA512"  # RFC 9497 section 3.1, mode OPRF
_HASH_BYTES: Final = 64  # of SHA-512
_BLOCK_BYTES: Final = 128
_TRIES: Final = 256
_INPUT_LIMIT: Final = 1 << 16


def expand_message_xmd(message: bytes, dst: bytes, length: int) -> bytes:
    """Return `length` bytes of a message, by SHA-512 (RFC 9380 section 5.3.1).

    Raises OutOfRange for a domain separation tag of more than 255 bytes or a length above 16,320.
    """
    blocks = -(-length // _HASH_BYTES)
    if not 1 <= blocks <= 255 or not 1 <= len(dst) <= 255:
        raise OutOfRange("SHA-512 expands to 16,320 bytes, under a tag of 1 to 255 bytes.")
    tag = dst + bytes([len(dst)])
    padded = bytes(_BLOCK_BYTES) + message + length.to_bytes(2, "big") + b"\0" + tag
    first = hashlib.sha512(padded).digest()
    block = hashlib.sha512(first + b"\1" + tag).digest()
    found = [block]
    for number in range(2, blocks + 1):
        mixed = bytes(a ^ b for a, b in zip(first, block, strict=True))
        block = hashlib.sha512(mixed + bytes([number]) + tag).digest()
        found.append(block)
    return b"".join(found)[:length]


def _to_points(inputs: Sequence[bytes], spread: Spread) -> list[bytes]:
    """Hash inputs to the group (ristretto255_XMD:SHA-512_R255MAP_RO_, RFC 9380 appendix B)."""
    tag = b"HashToGroup-" + _SUITE
    uniform = [expand_message_xmd(given, tag, UNIFORM_BYTES) for given in inputs]
    return ristretto.from_uniform(uniform, spread)


def pointwise(raw: bytes) -> list[bytes]:
    """Cut a string into encodings of 32 bytes; raises OutOfRange if it does not come out even."""
    if len(raw) % POINT_BYTES:
        raise OutOfRange("Points are 32 bytes each.")
    return [raw[at : at + POINT_BYTES] for at in range(0, len(raw), POINT_BYTES)]


class KeyShare(Mute):
    """One server's part of the key. Alone it makes no tag and tests no guess."""

    __slots__ = ("_scalar",)

    def __init__(self, scalar: bytes) -> None:
        """Take 32 bytes, canonical and not zero; use `generate` or `from_seed`."""
        if len(scalar) != SCALAR_BYTES or scalar != ristretto.reduced(scalar + bytes(32)):
            raise InvalidKey("A share of an OPRF key is a scalar of 32 bytes.")
        if scalar == bytes(SCALAR_BYTES):
            raise InvalidKey("A share of an OPRF key is not zero.")
        self._scalar = scalar

    @classmethod
    def generate(cls) -> KeyShare:
        """Draw a share from the operating system's entropy (O15)."""
        return cls(ristretto.random_scalars(1)[0])

    @classmethod
    def from_seed(cls, seed: bytes, info: bytes) -> KeyShare:
        """Derive a share from a secret 32-byte seed (DeriveKeyPair, RFC 9497 section 3.2.1)."""
        if len(seed) != SCALAR_BYTES or len(info) >= _INPUT_LIMIT:
            raise InvalidKey("A seed has exactly 32 bytes.")
        given = seed + len(info).to_bytes(2, "big") + info
        for count in range(_TRIES):
            tag = b"DeriveKeyPair" + _SUITE
            scalar = ristretto.reduced(expand_message_xmd(given + bytes([count]), tag, 64))
            if scalar != bytes(SCALAR_BYTES):
                return cls(scalar)
        raise InvalidKey("No key follows from this seed.")

    def split(self) -> tuple[KeyShare, KeyShare]:
        """Return two shares, each uniform, that one after the other give this key's outputs."""
        other = KeyShare.generate()
        (inverse,) = ristretto.inverses([other._scalar])
        return KeyShare(ristretto.multiply_scalars(self._scalar, inverse)), other

    def evaluate(self, points: Sequence[bytes], spread: Spread = map) -> list[bytes]:
        """Multiply a client's points by this share (BlindEvaluate, RFC 9497 section 3.3.1).

        Raises:
            InvalidPoint: one of them is the identity or no canonical encoding.
        """
        return ristretto.multiply(self._scalar, points, spread)


def joined(one: KeyShare, other: KeyShare) -> KeyShare:
    """Return the key of two shares: what nobody may hold. For tests and for audits of collusion."""
    return KeyShare(ristretto.multiply_scalars(one._scalar, other._scalar))


class Blinded(Mute):
    """A client's batch on its way: the inputs, their blinds, and the points that leave."""

    __slots__ = ("_blinds", "_inputs", "points")

    def __init__(self, inputs: Sequence[bytes], blinds: Sequence[bytes], spread: Spread) -> None:
        """Blind every input; use `blind`, which draws blinds that are used once."""
        if any(len(given) >= _INPUT_LIMIT for given in inputs):
            raise OutOfRange("An input has fewer than 65,536 bytes.")
        self._inputs, self._blinds = list(inputs), list(blinds)
        self.points = ristretto.multiply(self._blinds, _to_points(self._inputs, spread), spread)

    def finalize(self, evaluated: Sequence[bytes], spread: Spread = map) -> list[bytes]:
        """Return the output of every input, 64 bytes each (Finalize, RFC 9497 section 3.3.1).

        Args:
            evaluated: `points` times all shares of the key, in the same order.
            spread: see `crypto.tagging.ristretto.Spread`.

        Raises:
            InvalidPoint: one of them is the identity, or no canonical encoding.
            OutOfRange: they are more, or fewer, than the batch has.
        """
        if len(evaluated) != len(self.points):
            raise OutOfRange("A server answers every point of a batch.")
        found = ristretto.multiply(ristretto.inverses(self._blinds), evaluated, spread)
        return list(map(_output, self._inputs, found, repeat(b"Finalize")))


def _output(given: bytes, point: bytes, label: bytes) -> bytes:
    parts = (len(given).to_bytes(2, "big"), given, len(point).to_bytes(2, "big"), point, label)
    return hashlib.sha512(b"".join(parts)).digest()


def blind(inputs: Sequence[bytes], spread: Spread = map) -> Blinded:
    """Blind a batch of inputs, each with a fresh uniform scalar (Blind, RFC 9497 section 3.3.1).

    Args:
        inputs: below 65,536 bytes each; their order is the order of the points.
        spread: see `crypto.tagging.ristretto.Spread`.
    """
    return Blinded(inputs, ristretto.random_scalars(len(inputs)), spread)
