"""What the parts of one masked sum cost on this machine, in seconds of the processor."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from crypto.hpke import OpeningKey
from crypto.masks import MaskSum, masked
from crypto.sharing import combine, new_seed, split
from crypto.signing import SigningKey

MODULUS = 1 << 32
_VALUES, _STREAMS, _SMALL = 100_000, 16, 512


@dataclass(frozen=True)
class Costs:
    """Seconds, each the smallest of several tries.

    Attributes:
        sign, verify: one signature over a few hundred bytes.
        seal, open: one envelope of a few hundred bytes.
        byte: hashing and sealing one byte more.
        mask: one value of one key stream, added or subtracted.
        add: one value of one upload, added to the total.
        share: one share of those that rebuild a seed, with the threshold's square (see `combine`).
        session: an envelope's part that is no cryptography (plan, ledger, encoding), at either end.
    """

    sign: float
    verify: float
    seal: float
    open: float
    byte: float
    mask: float
    add: float
    share: float
    session: float

    def rebuild(self, threshold: int) -> float:
        """Return the seconds to rebuild one seed of so many shares."""
        return self.share * threshold**2


def measured(session: float, tries: int = 5) -> Costs:
    """Time every part with the functions that a run calls.

    Args:
        session: see `Costs`; from ``bench_envelope.py`` (make_own_us and open_own_us), as it takes
            whole sessions to measure.
        tries: how often each is timed.
    """
    key, opening = SigningKey.generate(), OpeningKey.generate()
    small, large = secrets.token_bytes(_SMALL), secrets.token_bytes(4 * _VALUES)
    # A signature that was found true is remembered: each one here is a new one.
    fresh = iter([(key.sign("bench", m), m) for m in map(secrets.token_bytes, [_SMALL] * 1000)])
    public = key.public
    sealed, long = opening.public.seal(b"", small), opening.public.seal(b"", large)
    vector = np.zeros(_VALUES, dtype=np.uint32)
    keys = [secrets.token_bytes(32) for _ in range(_STREAMS)]
    total, threshold = MaskSum(MODULUS, _VALUES), 55
    rows = split([new_seed()], threshold, 75)
    some = dict(enumerate(rows[:threshold]))

    def least(part: Callable[[], object]) -> float:
        part()
        found = []
        for _ in range(tries):
            start = time.process_time()
            part()
            found.append(time.process_time() - start)
        return min(found)

    def many(part: Callable[[], object], times: int = 50) -> float:
        return least(lambda: [part() for _ in range(times)]) / times

    opened = many(lambda: opening.open(b"", sealed))
    opening_long = least(lambda: opening.open(b"", long)) - opened
    hashed = least(lambda: hashlib.sha256(large).digest())
    return Costs(
        sign=many(lambda: key.sign("bench", small)),
        verify=many(lambda: public.verify("bench", *next(fresh))),
        seal=many(lambda: opening.public.seal(b"", small)),
        open=opened,
        byte=(max(opening_long, 0.0) + hashed) / len(large),
        mask=least(lambda: masked(vector, MODULUS, keys, [])) / _STREAMS / _VALUES,
        add=many(lambda: total.add(vector), 10) / _VALUES,
        share=many(lambda: combine(some, threshold), 5) / threshold**2,
        session=session,
    )
