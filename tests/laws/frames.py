"""Frames that a hostile peer could send: valid ones altered, and ones built to be believed.

Every frame follows from a seed, the loader's name, its kind and its number, so that whatever a
process died of can be made again by the process that holds the same valid frames.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Final

import zstandard

MUTATED, STRUCTURED = "mutated", "structured"
KINDS: Final = (MUTATED, STRUCTURED)

# SEAL 4.3 (crypto.homomorphic.seal has the layout): magic, header size, version; then mode,
# reserved, size. A test holds these bytes against what the installed SEAL writes.
SEAL_HEAD: Final = b"\x5e\xa1\x10\x04\x03"
_TAIL: Final = struct.Struct("<BHQ")
_COUNT: Final = struct.Struct("<Q")
_CIPHERTEXT: Final = struct.Struct("<B3QdQ")
_PLAINTEXT: Final = struct.Struct("<Qd")
_HEADER_BYTES: Final = 16
_WIDTH: Final = 8

_SIZES: Final = (
    0,
    1,
    2,
    3,
    15,
    16,
    17,
    4096,
    8192,
    *(1 << n for n in (16, 20, 31, 32, 40, 62, 63)),
)
_CLAIMS: Final = (*_SIZES, (1 << 63) - 1, (1 << 64) - 16, (1 << 64) - 1)
_SCALES: Final = (0.0, 1.0, -1.0, 2.0**20, 1e300, float("inf"), float("nan"))
_EDGES: Final = (0, 1, (1 << 60) - 16383 - 1, (1 << 60) - 16383, (1 << 60) - 1, (1 << 64) - 1)
_BOMB: Final = bytes(1 << 22)


@dataclass(frozen=True)
class Loader:
    """One way by which bytes of a peer reach native code.

    Attributes:
        name: of the loader, and who meets it.
        modules: of `crypto`, whose native calls it reaches.
        feed: hands it one frame; may raise errors of our own and nothing else.
        frames: valid ones, all of which it takes.
        hostile: frames built for this loader alone.
        head: how many bytes stand before the part that native code reads.
        share: of all frames, in parts; what is dear gets few.
        foreign: what is something else: secret keys, keys and ciphertexts of other schemes.
        parms: SEAL's names of the parameters that it would know, 32 bytes each.
    """

    name: str
    modules: tuple[str, ...]
    feed: Callable[[bytes], object]
    frames: Sequence[bytes]
    hostile: Sequence[bytes] = ()
    head: int = 0
    share: int = 1
    foreign: Sequence[bytes] = ()
    parms: Sequence[bytes] = ()


def frame(loader: Loader, kind: str, seed: int, number: int) -> bytes:
    """Return one frame for a loader."""
    chance = Random(f"{seed}/{loader.name}/{kind}/{number}")
    return _mutated(chance, loader) if kind == MUTATED else _structured(chance, loader, number)


# --- valid frames, altered ----------------------------------------------------------------------


def _mutated(chance: Random, loader: Loader) -> bytes:
    data = bytearray(chance.choice(loader.frames))
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        alter = chance.choices((_flip, _run, _splice, _cut, _extend), (8, 4, 4, 2, 2))[0]
        data = alter(chance, data, loader)
    return bytes(data)


def _flip(chance: Random, data: bytearray, _: Loader) -> bytearray:
    for _ in range(chance.choice((1, 1, 2, 8, 64)) if data else 0):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return data


def _run(chance: Random, data: bytearray, _: Loader) -> bytearray:
    start, length = chance.randrange(len(data) + 1), chance.choice((1, 8, 64, 1024, 1 << 15))
    value = chance.choice((b"\0", b"\xff", b"\x80", bytes([chance.randrange(256)])))
    length = min(length, len(data) - start)
    data[start : start + length] = value * length
    return data


def _splice(chance: Random, data: bytearray, loader: Loader) -> bytearray:
    """Put a piece of a valid frame somewhere else, without a change of length."""
    source = chance.choice(loader.frames)
    length = chance.randrange(1 + min(len(data), len(source)))
    start, place = (
        chance.randrange(1 + len(source) - length),
        chance.randrange(1 + len(data) - length),
    )
    data[place : place + length] = source[start : start + length]
    return data


def _cut(chance: Random, data: bytearray, _: Loader) -> bytearray:
    keep = chance.choice(
        (chance.randrange(len(data) + 1), max(0, len(data) - chance.randrange(17)))
    )
    return data[:keep] if chance.random() < 0.8 else data[len(data) - keep :]


def _extend(chance: Random, data: bytearray, _: Loader) -> bytearray:
    more = chance.choice(
        (chance.randbytes(chance.randrange(1, 40)), bytes(data[:256]), bytes(data))
    )
    return data + more if chance.random() < 0.8 else bytearray(more) + data


# --- frames that claim something ----------------------------------------------------------------


def _structured(chance: Random, loader: Loader, number: int) -> bytes:
    if number < len(loader.hostile):
        return loader.hostile[number]  # each of them once in any case
    make = chance.choices((_nested, _words, _posed, _hostile), (5, 3, 2, 2))[0]
    return make(chance, loader)


def _nested(chance: Random, loader: Loader) -> bytes:
    """An object of SEAL's, bare or where the loader expects words."""
    return _framed(chance, loader, seal_object(chance, loader.parms))


def _words(chance: Random, loader: Loader) -> bytes:
    """A valid frame with part of its words at the edges: zero, q - 1, q, all ones."""
    data = bytearray(chance.choice(loader.frames))
    sandbox = len(data) - loader.head
    part = chance.choice((1, 2, 3, 4, 8, 4096))
    length = max(1, sandbox // part)
    start = loader.head + length * chance.randrange(part)
    value = chance.choice(_EDGES)
    tile = chance.choice(
        (value.to_bytes(8, "little"), (value << 60 & (1 << 120) - 1 | value).to_bytes(15, "little"))
    )
    length = max(0, min(length, len(data) - start))
    data[start : start + length] = (tile * (length // len(tile) + 1))[:length]
    return bytes(data)


def _posed(chance: Random, loader: Loader) -> bytes:
    """Something else than what is expected: a secret, another scheme's key, another loader's."""
    return _framed(chance, loader, chance.choice(loader.foreign or loader.frames))


def _hostile(chance: Random, loader: Loader) -> bytes:
    """One of the loader's own hostile frames, altered a little."""
    if not loader.hostile:
        return _nested(chance, loader)
    return bytes(_flip(chance, bytearray(chance.choice(loader.hostile)), loader))


def _framed(chance: Random, loader: Loader, body: bytes) -> bytes:
    valid = chance.choice(loader.frames)
    head, way = valid[: loader.head], chance.randrange(4)
    if way == 0:
        return body
    if way == 1:
        return head + body
    if way == 2:  # in the expected length
        return (head + body).ljust(len(valid), b"\0")[: len(valid)]
    return (head + body)[: len(valid)] + valid[len(head + body) :]


def seal_object(chance: Random, parms: Sequence[bytes]) -> bytes:
    """Return an object in SEAL's framing, about half of whose claims are untrue."""
    strange = (bytes(32), b"\xff" * 32, chance.randbytes(32))
    known = chance.choice((*(parms or strange) * 4, *strange))
    body = known + _fields(chance) + _array(chance)
    return _header(chance, *_compressed(chance, body))


def _fields(chance: Random) -> bytes:
    if chance.random() < 0.3:
        words, scale = chance.choice((4096, 8192, chance.choice(_CLAIMS))), chance.choice(_SCALES)
        return _PLAINTEXT.pack(words, scale)
    ntt = chance.choice((0, 0, 1, 1, 2, 255))
    size = chance.choice((2, 2, 3, chance.choice(_CLAIMS)))
    degree = chance.choice((4096, 4096, chance.choice(_CLAIMS)))
    primes = chance.choice((1, 1, 2, chance.choice(_CLAIMS)))
    scale, correction = chance.choice(_SCALES), chance.choice((0, 1, 7, (1 << 64) - 1))
    return _CIPHERTEXT.pack(ntt, size, degree, primes, scale, correction)


def _array(chance: Random) -> bytes:
    count = chance.choice((0, 1, 16, 4096, 8192))
    content = chance.choice((bytes(_WIDTH * count), chance.randbytes(_WIDTH * min(count, 16))))
    claim = chance.choice((len(content) // _WIDTH, count, chance.choice(_CLAIMS)))
    mode = chance.choice((0, 0, 1, 2, 3, 255))
    body = _COUNT.pack(claim) + content
    return _header(chance, mode, body)


def _compressed(chance: Random, body: bytes) -> tuple[int, bytes]:
    mode = chance.choice((0, 1, 2, 2))
    if chance.random() < 0.02:
        body += _BOMB
    if mode == 1:
        return mode, zlib.compress(body, 1)
    return mode, zstandard.ZstdCompressor(level=1).compress(body) if mode == 2 else body


def _header(chance: Random, mode: int, body: bytes) -> bytes:
    claim = chance.choice((_HEADER_BYTES + len(body),) * len(_CLAIMS) + _CLAIMS)
    start = SEAL_HEAD if chance.random() < 0.9 else chance.randbytes(len(SEAL_HEAD))
    return start + _TAIL.pack(mode, 0, claim) + body
