"""Tags of items: ristretto255 (RFC 9496), the oblivious PRF of two servers (RFC 9497)."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, chain, repeat
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import padding
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256

from crypto.errors import InvalidKey, InvalidPoint, NotLoaded, OutOfRange
from crypto.samplers import Mute, entropy

# --- The group ristretto255 (RFC 9496) in libsodium, through `rbcl`, with every check that it
# needs ---
#
# `rbcl` (libsodium 1.0.18) takes the identity for a valid point, ignores the top bit of an
# encoding, and some of its functions do not look at libsodium's refusal of bytes that are no point.
# Nobody but this module imports it, and here a point is looked at before it is used.
#
# libsodium's multiplication, inversion and map to the group take the same time for all secrets.
# Python around them takes time by how many there are, and memory that held a scalar is not wiped.

try:
    import rbcl
except OSError as error:
    raise NotLoaded from error


# rbcl writes its copy of libsodium to a temporary file at every import and leaves it there. Once
# loaded it is not needed (where the system refuses to remove it, it stays).
with contextlib.suppress(OSError):
    Path(rbcl.rbcl._sodium._name).unlink(missing_ok=True)

POINT_BYTES: Final = 32
SCALAR_BYTES: Final = 32
UNIFORM_BYTES: Final = 64
"""Bytes from which a point or a scalar is made so that it is uniform."""

_IDENTITY: Final = bytes(POINT_BYTES)
_ZERO: Final = bytes(SCALAR_BYTES)
_ONE: Final = b"\1" + bytes(SCALAR_BYTES - 1)
_CHUNK: Final = 64  # points a worker takes at a time: some 4 ms, so a client's batch is several

Work = Callable[[slice], list[bytes]]
Spread = Callable[[Work, Iterable[slice]], Iterable[list[bytes]]]
"""How a batch is worked through: the builtin `map`, or that of a pool of threads.

libsodium runs beside Python's lock, so threads use all cores, and secrets stay in the process.
"""


def multiply(
    scalars: bytes | Sequence[bytes], points: Sequence[bytes], spread: Spread = map
) -> list[bytes]:
    """Return each point times its scalar, or times the one scalar that is given.

    Args:
        scalars: one of 32 bytes for all points, or as many as there are points.
        points: n encodings of 32 bytes.
        spread: see `Spread`.

    Raises:
        InvalidPoint: one is no canonical encoding, or the identity is one of them or comes out.
        OutOfRange: not one scalar for each point.
    """
    one = scalars if isinstance(scalars, bytes) else None
    if one is None and len(scalars) != len(points):
        raise OutOfRange("Each point is multiplied by a scalar of its own.")

    def work(part: slice) -> list[bytes]:
        factors = [one] * len(points[part]) if one is not None else scalars[part]
        for point in points[part]:
            _check_form(point)
        try:
            return list(map(rbcl.crypto_scalarmult_ristretto255, factors, points[part]))
        except (RuntimeError, ValueError, TypeError):
            raise InvalidPoint from None

    return _spread(work, len(points), spread)


def check(points: Sequence[bytes], spread: Spread = map) -> None:
    """Raise InvalidPoint if one of n encodings is not canonical, or is the identity's."""

    def work(part: slice) -> list[bytes]:
        for point in points[part]:
            _check(point)
        return []

    _spread(work, len(points), spread)


def _check_form(point: bytes) -> None:
    """Refuse what libsodium would take although it is no canonical encoding."""
    if len(point) != POINT_BYTES or point[-1] & 0x80:
        raise InvalidPoint


def _check(point: bytes) -> None:
    _check_form(point)
    if point == _IDENTITY:
        raise InvalidPoint
    if not rbcl.crypto_core_ristretto255_is_valid_point(point):
        raise InvalidPoint


def from_uniform(uniform: Sequence[bytes], spread: Spread = map) -> list[bytes]:
    """Map uniform strings of 64 bytes to uniform points (RFC 9496 section 4.3.4).

    Raises:
        InvalidPoint: a string came out as the identity, which nobody can make happen.
    """

    def work(part: slice) -> list[bytes]:
        points = list(map(rbcl.crypto_core_ristretto255_from_hash, uniform[part]))
        if _IDENTITY in points:
            raise InvalidPoint
        return points

    return _spread(work, len(uniform), spread)


def _spread(work: Work, count: int, spread: Spread) -> list[bytes]:
    parts = [slice(start, start + _CHUNK) for start in range(0, count, _CHUNK)]
    return list(chain.from_iterable(spread(work, parts)))


def reduced(uniform: bytes) -> bytes:
    """Return the scalar of 64 uniform bytes; uniform to 2^-259."""
    scalar: bytes = rbcl.crypto_core_ristretto255_scalar_reduce(uniform)
    return scalar


def random_scalars(count: int) -> list[bytes]:
    """Return `count` scalars from the operating system, uniform and not zero."""
    drawn = entropy(UNIFORM_BYTES * count) if count else b""
    scalars = [reduced(drawn[at : at + UNIFORM_BYTES]) for at in range(0, len(drawn), 64)]
    _refuse_zero(scalars)  # happens with probability 2^-252
    return scalars


def inverses(scalars: Sequence[bytes]) -> list[bytes]:
    """Return 1/s for each scalar, with one inversion for all (Montgomery's trick).

    Three multiplications each, all of libsodium, in place of an inversion of 40 microseconds.

    Raises:
        InvalidKey: one of them is zero.
    """
    if not scalars:
        return []
    _refuse_zero(scalars)
    times = rbcl.crypto_core_ristretto255_scalar_mul
    products = list(accumulate(scalars, times, initial=_ONE))  # of all before each
    rest: bytes = rbcl.crypto_core_ristretto255_scalar_invert(products.pop())
    found = []
    for scalar, before in zip(reversed(scalars), reversed(products), strict=True):
        found.append(times(rest, before))
        rest = times(rest, scalar)
    return found[::-1]


def multiply_scalars(one: bytes, other: bytes) -> bytes:
    """Return the product of two scalars; raises InvalidKey if one of them is zero."""
    _refuse_zero([one, other])
    product: bytes = rbcl.crypto_core_ristretto255_scalar_mul(one, other)
    return product


def _refuse_zero(scalars: Iterable[bytes]) -> None:
    for scalar in scalars:
        if len(scalar) != SCALAR_BYTES or hmac.compare_digest(scalar, _ZERO):
            raise InvalidKey("A scalar has 32 bytes and is not zero.")


# --- Tags that no single party can make: OPRF(ristretto255, SHA-512) of RFC 9497, its key split
# ---
#
# A client blinds inputs, two servers multiply by their shares of the key, one after the other, and
# the client unblinds and hashes. The output is that of RFC 9497 under k = k1 k2 (O24), so its
# vectors hold. Both servers see uniform points and learn nothing of the inputs; the client learns
# nothing of the shares; with one share nobody can compute an output. There is no proof that a
# server used the same key for all (mode OPRF, not VOPRF): whoever needs that compares outputs of a
# public input.
#
# A server that lies, with other clients to ask the honest one for it, can give a client outputs
# under any polynomial in the honest share without a constant term, so under no key that it knows.
# Sums of shares do not have that: there it takes the honest part off its own answer
# (docs/adr/0018). The second server must not see the points that went to the first.
#
# Every input of a batch costs the same work, whatever it is, so a client that fills a batch up with
# random inputs does not tell by its time how many are its own.

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
    return from_uniform(uniform, spread)


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
        if len(scalar) != SCALAR_BYTES or scalar != reduced(scalar + bytes(32)):
            raise InvalidKey("A share of an OPRF key is a scalar of 32 bytes.")
        if scalar == bytes(SCALAR_BYTES):
            raise InvalidKey("A share of an OPRF key is not zero.")
        self._scalar = scalar

    @classmethod
    def generate(cls) -> KeyShare:
        """Draw a share from the operating system's entropy (O15)."""
        return cls(random_scalars(1)[0])

    @classmethod
    def from_seed(cls, seed: bytes, info: bytes) -> KeyShare:
        """Derive a share from a secret 32-byte seed (DeriveKeyPair, RFC 9497 section 3.2.1)."""
        if len(seed) != SCALAR_BYTES or len(info) >= _INPUT_LIMIT:
            raise InvalidKey("A seed has exactly 32 bytes.")
        given = seed + len(info).to_bytes(2, "big") + info
        for count in range(_TRIES):
            tag = b"DeriveKeyPair" + _SUITE
            scalar = reduced(expand_message_xmd(given + bytes([count]), tag, 64))
            if scalar != bytes(SCALAR_BYTES):
                return cls(scalar)
        raise InvalidKey("No key follows from this seed.")

    def split(self) -> tuple[KeyShare, KeyShare]:
        """Return two shares, each uniform, that one after the other give this key's outputs."""
        other = KeyShare.generate()
        (inverse,) = inverses([other._scalar])
        return KeyShare(multiply_scalars(self._scalar, inverse)), other

    def evaluate(self, points: Sequence[bytes], spread: Spread = map) -> list[bytes]:
        """Multiply a client's points by this share (BlindEvaluate, RFC 9497 section 3.3.1).

        Raises:
            InvalidPoint: one of them is the identity or no canonical encoding.
        """
        return multiply(self._scalar, points, spread)


def joined(one: KeyShare, other: KeyShare) -> KeyShare:
    """Return the key of two shares: what nobody may hold. For tests and for audits of collusion."""
    return KeyShare(multiply_scalars(one._scalar, other._scalar))


class Blinded(Mute):
    """A client's batch on its way: the inputs, their blinds, and the points that leave."""

    __slots__ = ("_blinds", "_inputs", "points")

    def __init__(self, inputs: Sequence[bytes], blinds: Sequence[bytes], spread: Spread) -> None:
        """Blind every input; use `blind`, which draws blinds that are used once."""
        if any(len(given) >= _INPUT_LIMIT for given in inputs):
            raise OutOfRange("An input has fewer than 65,536 bytes.")
        self._inputs, self._blinds = list(inputs), list(blinds)
        self.points = multiply(self._blinds, _to_points(self._inputs, spread), spread)

    def finalize(self, evaluated: Sequence[bytes], spread: Spread = map) -> list[bytes]:
        """Return the output of every input, 64 bytes each (Finalize, RFC 9497 section 3.3.1).

        Args:
            evaluated: `points` times all shares of the key, in the same order.
            spread: see `crypto.oprf.Spread`.

        Raises:
            InvalidPoint: one of them is the identity, or no canonical encoding.
            OutOfRange: they are more, or fewer, than the batch has.
        """
        if len(evaluated) != len(self.points):
            raise OutOfRange("A server answers every point of a batch.")
        found = multiply(inverses(self._blinds), evaluated, spread)
        return list(map(_output, self._inputs, found, repeat(b"Finalize")))


def _output(given: bytes, point: bytes, label: bytes) -> bytes:
    parts = (len(given).to_bytes(2, "big"), given, len(point).to_bytes(2, "big"), point, label)
    return hashlib.sha512(b"".join(parts)).digest()


def blind(inputs: Sequence[bytes], spread: Spread = map) -> Blinded:
    """Blind a batch of inputs, each with a fresh uniform scalar (Blind, RFC 9497 section 3.3.1).

    Args:
        inputs: below 65,536 bytes each; their order is the order of the points.
        spread: see `crypto.oprf.Spread`.
    """
    return Blinded(inputs, random_scalars(len(inputs)), spread)


# --- Tags of items by one key that every client holds, and the field's tags that anyone can turn
# back ---
#
# `keyed_tags` is for a consortium that trusts one key: any client, together with whoever compares
# tags, opens all of them. `unsafe_signature_tags` is what published code does under the name of
# encryption, and `unsafe_public_tags` what its text describes; they exist as controls: with the
# public key alone every tag of a known catalogue is found again.

KEY_BYTES: Final = 32


def keyed_tags(key: bytes, inputs: Sequence[bytes]) -> list[bytes]:
    """Return HMAC-SHA256 of every input, 32 bytes each (RFC 2104).

    Args:
        key: 32 secret bytes, the same at every client and unknown to whoever compares tags.
        inputs: of any length.

    Raises:
        InvalidKey: the key has another length.
    """
    if len(key) != KEY_BYTES:
        raise InvalidKey(f"A key of tags has exactly {KEY_BYTES} bytes.")
    return [hmac.digest(key, given, "sha256") for given in inputs]


def unsafe_public_tags(key: bytes, inputs: Sequence[bytes]) -> list[bytes]:
    """UNSAFE: return every input encrypted deterministically, as 32 bytes each.

    X25519 with coins that are a hash of key and input (encrypt-with-hash: Bellare, Boldyreva and
    O'Neill, CRYPTO 2007), the point and the shared secret hashed. So equal inputs match, and
    whoever has the public key makes the tag of every guess.

    Args:
        key: a public key, 32 bytes (RFC 7748).
        inputs: of any length.

    Raises:
        InvalidKey: the key has another length, or shares no secret with anybody.
    """
    found = []
    try:
        public = X25519PublicKey.from_public_bytes(key)
        for given in inputs:
            coins = hashlib.sha256(b"secure-fgl/unsafe-tag\0" + key + given).digest()
            secret = X25519PrivateKey.from_private_bytes(coins)
            point, shared = secret.public_key().public_bytes_raw(), secret.exchange(public)
            found.append(hashlib.sha256(point + shared).digest())
    except ValueError as error:
        raise InvalidKey("This is no public key of X25519.") from error
    return found


def unsafe_signature_tags(key: RSAPrivateKey, inputs: Sequence[bytes]) -> list[bytes]:
    """UNSAFE: return the RSA PKCS #1 v1.5 signature of every input, of the key's length.

    Deterministic, so equal inputs match; and verifiable, so whoever has the public key tests every
    guess (FedPerGNN's public code, 2022).
    """
    made: dict[bytes, bytes] = {}
    for given in inputs:
        if given not in made:
            made[given] = key.sign(given, padding.PKCS1v15(), SHA256())
    return [made[given] for given in inputs]
