"""Searching captured bytes for a payload: what a wiretap would do."""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.wire.envelope import MAGIC, WIDTH, Envelope

WINDOW = 8  # bytes: two float32 or four 16-bit integers in a row
LONG = 4  # windows in a row, where one holds zeros: four float64 or 64-bit integers
DISTINCT = 3  # a window of fewer distinct bytes (zeros, a repeated level) says nothing
VARIED = 7  # bytes other than zero in what is looked for: by chance a place holds it once in 2^56

_HASH_BITS = 24
_ODD = np.uint64(0x9E3779B97F4A7C15)


def _windows(data: bytes) -> list[NDArray[np.uint64]]:
    """Return the windows that stand behind one another, from each of the first eight bytes on."""
    return [np.frombuffer(data[s : s + max(len(data) - s, 0) // 8 * 8], "<u8") for s in range(8)]


def _keys(windows: NDArray[np.uint64], long: int) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Return what each place is looked for by, and whether it holds enough for that.

    It is the window, or, where that holds a zero byte, a hash of `long` windows: counters, lengths
    and widened numbers are mostly zeros, and two bytes beside six zeros are met by chance.
    """
    octets = windows.view(np.uint8).reshape(-1, WINDOW)
    full = np.count_nonzero(octets, axis=1)
    keys, varied = windows, full
    for ahead in range(1, long):
        keys = _hash(keys, 64 - 7) ^ (keys * _ODD + np.roll(windows, -ahead))
        varied = varied + np.roll(full, -ahead)
    followed = np.arange(len(windows)) + long <= len(windows)
    dense = full == WINDOW
    return np.where(dense, windows, keys), dense | (followed & (varied >= VARIED))


def _long(payload: bytes) -> int:
    return min(LONG, max(1, len(payload) // WINDOW))


@functools.lru_cache(maxsize=4096)  # the same payloads are looked for in several captures
def telling(payload: bytes) -> NDArray[np.uint64]:
    """Return the keys of the payload's places that are distinctive enough to be looked for."""
    told = []
    for windows in _windows(payload):
        keys, enough = _keys(windows, _long(payload))
        rows = np.sort(windows.view(np.uint8).reshape(-1, WINDOW), axis=1)
        distinct = (np.diff(rows.astype(int), axis=1) != 0).sum(axis=1) + 1 >= DISTINCT
        told.append(keys[enough & distinct])
    keys = np.unique(np.concatenate(told))
    keys.setflags(write=False)
    return keys


def found(payloads: list[bytes], captured: bytes) -> int:
    """Return how many telling places of the payloads occur anywhere in the captured bytes."""
    wanted: dict[int, list[NDArray[np.uint64]]] = {}
    for payload in {bytes(payload) for payload in payloads}:
        wanted.setdefault(_long(payload), []).append(telling(payload))
    return sum(_met(np.unique(np.concatenate(of)), long, captured) for long, of in wanted.items())


def _met(keys: NDArray[np.uint64], long: int, captured: bytes) -> int:
    # To compare all captured places would be to sort megabytes: most differ in a part of a hash.
    marked = np.zeros(1 << _HASH_BITS, bool)
    marked[_hash(keys, _HASH_BITS)] = True
    seen = np.concatenate([_keys(windows, long)[0] for windows in _windows(captured)])
    return int(np.isin(keys, seen[marked[_hash(seen, _HASH_BITS)]]).sum())


def _hash(keys: NDArray[np.uint64], bits: int) -> NDArray[np.uint64]:
    return (keys * _ODD) >> np.uint64(64 - bits)


def spellings(value: Any) -> list[bytes]:
    """Return the bytes that an array could leave as, in clear."""
    if isinstance(value, bytes):
        return [value]
    array = np.ravel(np.asarray(value))
    kinds = "<f4 <f8 >f4 >f8" if array.dtype.kind == "f" else "<u2 <u4 <u8 >u2 >u4 >u8"
    return [array.astype(kind).tobytes() for kind in kinds.split()]


def travelled(envelopes: Iterable[bytes]) -> bytes:
    """Return every byte of these, but what of headers is no fact: counters, and no digest.

    Everybody may know them, and as bytes they are what numbers of messages are as well: round 1 of
    exchange 2 is the list [1, 2], and where a digest does not apply there stand zeros.
    """
    start, kept = len(MAGIC) + 2, list[bytes]()
    for data in envelopes:
        header, raw, place = Envelope.decode(data).header, bytearray(data), start
        for name, width in WIDTH.items():
            digest = bytes.fromhex(getattr(header, name))
            assert raw[place : place + width // 2] == digest
            if not any(digest):
                raw[place : place + width // 2] = b"\xff" * (width // 2)
            place += width // 2
        counters = struct.pack(">III", header.round, header.exchange, header.attempt)
        assert raw[place : place + len(counters)] == counters
        raw[place : place + len(counters)] = b"\xff" * len(counters)
        kept.append(bytes(raw))
    return b"".join(kept)
