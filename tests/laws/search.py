"""Searching captured bytes for a payload: what a wiretap would do."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from protocols.wire.envelope import MAGIC, Envelope
from protocols.wire.header import WIDTH

WINDOW = 8  # bytes: two float32 or four 16-bit integers in a row
DISTINCT = 3  # a window of fewer distinct bytes (zeros, a repeated level) says nothing

_HASH_BITS = 24
_ODD = np.uint64(0x9E3779B97F4A7C15)


def _windows(data: bytes) -> NDArray[np.uint64]:
    if len(data) < WINDOW:
        return np.zeros(0, np.uint64)
    shifts = [np.frombuffer(data[s : s + (len(data) - s) // 8 * 8], "<u8") for s in range(WINDOW)]
    return np.concatenate(shifts)


def telling(payload: bytes) -> NDArray[np.uint64]:
    """Return the payload's windows that are distinctive enough to be looked for."""
    windows = np.unique(_windows(payload))
    rows = np.sort(windows.view(np.uint8).reshape(-1, WINDOW), axis=1)
    telling: NDArray[np.uint64] = windows[
        (np.diff(rows.astype(int), axis=1) != 0).sum(axis=1) + 1 >= DISTINCT
    ]
    return telling


def found(payloads: list[bytes], captured: bytes) -> int:
    """Return how many telling windows of the payloads occur anywhere in the captured bytes."""
    wanted = [telling(payload) for payload in {bytes(payload) for payload in payloads}]
    windows = np.unique(np.concatenate(wanted)) if wanted else np.zeros(0, np.uint64)
    # To compare all captured windows would be to sort megabytes: most differ in a part of a hash.
    marked = np.zeros(1 << _HASH_BITS, bool)
    marked[_hash(windows)] = True
    seen = _windows(captured)
    return int(np.isin(windows, seen[marked[_hash(seen)]]).sum())


def _hash(windows: NDArray[np.uint64]) -> NDArray[np.uint64]:
    return (windows * _ODD) >> np.uint64(64 - _HASH_BITS)


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
