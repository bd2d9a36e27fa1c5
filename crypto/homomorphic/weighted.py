"""Weighted sums of encrypted vectors, one per receiver and exact: `bfv-weighted` (O1, O10).

BFV (Fan and Vercauteren, eprint 2012/144) with t = 2^44 and two primes, as `bfv48-sealapi`. The
aggregator multiplies uploads by small public integers and adds; nothing is rescaled:

    ring = weighted()
    public, secret = ring.keygen()                                  # at the key authority
    upload = ring.encrypt(public, packed)                           # at each client
    rows = ring.combine(public, uploads, weights, seeds)            # at the aggregator
    opened = ring.decrypt(secret, rows[i])                          # at the key authority
    plain = ring.subtract(opened, ring.blind(seeds[i], opened.size))    # at receiver i

Values are packed with head-room for the total W of the weights (`Packing(bits, W, plain_bits)`),
because W times the largest value is the largest combination: two 15-bit values a coefficient at
W = 128.

Every row carries a blind of its own, uniform mod t on every coefficient, from a 32-byte seed that
its receiver alone may hold beside the aggregator and the witness. Without it the authority solves
K rows for K models. A row is determined by uploads, weights and seed, so that a witness recomputes
its bytes (O4).

Who sees what. The aggregator and the witness: ciphertexts, weights, seeds, no value. The authority:
uniform numbers mod t, and the noise of each row. The receiver: its own combination. What breaks it:
the authority together with the aggregator; an aggregator that has something else opened than a row,
unless witnesses sign (O4). That rows differ by little, or that receivers put rows together, is no
matter of encryption (`crypto.homomorphic.weights`, the report's rank test).

Noise. The authority holds the key and therefore reads the noise of every row, which is the same
combination of the uploads' noises: with the weights (which follow from cosines that it opened) K
rows are K equations for K noises. Two things keep values out of them:

* Encoding m as round(q m / t) leaves an error that depends on m. With the usual q it is as good as
  m's low half; q here is the largest prime of 60 bits with q = 1 mod t, so it is m / t, less than
  2^-7 for packed values.
* Each row carries a flood, uniform in [-2^13, 2^13) on every coefficient, from the seed of its
  blind: K more unknowns than equations. What the errors of a whole row add up to is below 1.

The noises still tell how similar two rows of weights are: a plan that keeps weights from the
authority cannot use this.

Exactness. A fresh ciphertext has noise of standard deviation 15.1, so a row has 15.1 sqrt(sum w^2)
beside its flood, and it opens exactly while both stay below q/2t, just under 2^15. `MAX_SQUARES`
keeps 12 standard deviations (2 exp(-72) per coefficient); every row with W = 128 is within it.

Arithmetic. Words are cut into halves of 30 bits, and halves are multiplied as doubles: every sum is
an integer below 2^42 and therefore exact in any order, so a matrix product does it, on any machine
with the same result. 2^60 - q folds what is above 2^60. A table with few others in a row is
multiplied entry by entry, once (k + 1) 12 < K for k others of K clients; that saves little, since
blind, flood and wire of each row dominate. `combine` of three ciphertexts takes as long with five
others a row as with all: 15.4 and 16.2 ms for K = 20, 45.3 and 46.1 for 50, 97.2 and 99.3 for 100.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from crypto.errors import InvalidCiphertext, InvalidKey, OutOfRange, SelfTestFailed
from crypto.homomorphic.bfv_parts import PublicKey
from crypto.homomorphic.bfv_sealapi import BFV48, DEGREE, Parameters, SealBfv
from crypto.homomorphic.seal_sums import reduce_once
from crypto.homomorphic.weights import Weights
from crypto.homomorphic.words60 import WORD_BITS
from crypto.samplers import Stream, derive, entropy

__all__ = ["MAX_SQUARES", "WEIGHTED", "WeightedBfv", "weighted"]

_STEP: Final = 65_487  # q div t: the largest for which q = _STEP 2^44 + 1 is a prime below 2^60
PRIME: Final = (_STEP << 44) + 1
WEIGHTED: Final = Parameters("bfv-weighted", (PRIME, BFV48.primes[1]), 44, "TC128")
"""The parameter set: 2^44 holds two slots of 22 bits."""

FLOOD: Final = 1 << 13
"""Each row's own noise is uniform in [-FLOOD, FLOOD) on every coefficient."""

MAX_SQUARES: Final = 135**2
"""The largest sum of squared weights of a row whose opening is exact."""

_HALF: Final = WORD_BITS // 2
_LOW: Final = np.uint64((1 << _HALF) - 1)
_GAP: Final = np.uint64((1 << WORD_BITS) - PRIME)
_SPARSE: Final = 12  # a row of zeros but for one in so many is cheaper entry by entry


class WeightedBfv(SealBfv):
    """BFV that combines whole tables; other verbs are those of `crypto.homomorphic.he.Scheme`."""

    def __init__(self) -> None:
        """Build the SEAL context; raises SelfTestFailed if SEAL does not accept the parameters."""
        super().__init__(WEIGHTED)

    def lifted(self, rows: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return round(q m / t) for each m: with q = 1 mod t, q div t times m, or one more."""
        return rows * np.uint64(_STEP) + (rows >> np.uint64(43))

    def combine(
        self,
        key: PublicKey,
        uploads: Sequence[bytes],
        weights: Weights,
        seeds: Sequence[bytes],
        rows: Sequence[int] | None = None,
    ) -> list[bytes]:
        """Return the blinded combinations of these rows of the table, in wire form.

        The bytes are determined by the arguments: a witness recomputes them.

        Args:
            key: the key under which all uploads were encrypted.
            uploads: one per client, of equal length, in the order of the table.
            weights: the checked table, K by K.
            seeds: one per row that is combined, 32 secret bytes, each used once and no two alike.
            rows: which of the table are combined; None: all.

        Raises:
            OutOfRange: another number of uploads or seeds, a seed or row that comes twice, a row
                that is not there, or one that would not open exactly.
            InvalidCiphertext: an upload that is none, or of another length.
            InvalidKey: a key of another scheme, or another length of seed.
        """
        key.use(self.name)
        chosen = range(weights.clients) if rows is None else rows
        _check(uploads, weights, seeds, chosen)
        length = self._ciphertexts(uploads[0])
        if any(len(upload) != len(uploads[0]) for upload in uploads):
            raise InvalidCiphertext
        factors = _factors(weights.table[list(chosen)])
        blinds = [self.blind(seed, length * DEGREE).reshape(length, 1, DEGREE) for seed in seeds]
        floods = [_flood(seed, length).reshape(length, DEGREE) for seed in seeds]
        out: list[list[bytes]] = [[] for _ in seeds]
        width = self.ciphertext_bytes
        for place in range(length):
            # One ciphertext of every client at a time: what is multiplied stays in the cache.
            span = slice(place * width, (place + 1) * width)
            words = np.concatenate([self.parse(upload[span], 1) for upload in uploads])
            sums = _combined(factors, words)
            for row, blind, flood, pieces in zip(sums, blinds, floods, out, strict=True):
                row[:DEGREE] += flood[place]  # below 2 q
                reduce_once(row[:DEGREE], PRIME)
                pieces.append(self.to_wire(self.shifted(row[np.newaxis], blind[place])))
        return [b"".join(out.pop(0)) for _ in seeds]  # each is freed as soon as it is joined


@cache
def weighted() -> WeightedBfv:
    """Return the scheme, probed once per process; raises SelfTestFailed if it does not work."""
    try:
        ring = WeightedBfv()
        public, secret = ring.keygen()
        stream = Stream(entropy(32))
        weights = Weights(np.full((4, 4), 2, dtype=np.int64), 8)
        rows = [stream.uniform(ring.plain_modulus, DEGREE) for _ in range(4)]
        seeds = [stream.bytes(32) for _ in rows]
        uploads = [ring.encrypt(public, row) for row in rows]
        opened = ring.decrypt(secret, ring.combine(public, uploads, weights, seeds)[0])
        found = ring.subtract(opened, ring.blind(seeds[0], DEGREE))
        secret.destroy()
    except SelfTestFailed:
        raise
    except Exception:  # whatever a binding raises here, the scheme does not work
        raise SelfTestFailed(f"{WEIGHTED.name} did not survive a round trip.") from None
    expected = sum(rows) * np.uint64(2) % np.uint64(ring.plain_modulus)
    if not np.array_equal(found, expected):
        raise SelfTestFailed(f"{WEIGHTED.name} did not combine exactly.")
    return ring


def _flood(seed: bytes, ciphertexts: int) -> NDArray[np.uint64]:
    """Return a row's own noise mod q, uniform in [-FLOOD, FLOOD), for all coefficients of c0."""
    drawn = Stream(derive(seed, "flood")).uniform(2 * FLOOD, ciphertexts * DEGREE)
    words: NDArray[np.uint64] = drawn + np.uint64(PRIME - FLOOD)
    reduce_once(words, PRIME)
    return words


def _check(
    uploads: Sequence[bytes], weights: Weights, seeds: Sequence[bytes], rows: Sequence[int]
) -> None:
    """Refuse what does not belong to the table; raises OutOfRange or InvalidKey."""
    if len(uploads) != weights.clients or len(seeds) != len(rows):
        raise OutOfRange("One upload per client and one seed per row of weights are expected.")
    if not rows or len(set(rows)) != len(rows) or not set(rows) <= set(range(weights.clients)):
        raise OutOfRange("A row of weights is combined twice, or is not there.")
    if any(len(seed) != 32 for seed in seeds):
        raise InvalidKey("A blind needs a seed of exactly 32 bytes.")
    if len(set(seeds)) != len(seeds):
        raise OutOfRange("Two rows under one blind give away their difference.")
    if int((weights.table**2).sum(axis=1).max()) > MAX_SQUARES:
        raise OutOfRange("A row of weights is too heavy to open exactly; choose a smaller total.")


def _factors(table: NDArray[np.int64]) -> Any:
    """Return the table for a product with words: by entries where most of it is zero."""
    exact = table.astype(np.float64)
    if np.count_nonzero(exact) * _SPARSE >= exact.size:
        return exact
    from scipy.sparse import csr_array

    return csr_array(exact)


def _combined(factors: Any, words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return factors @ words mod q, shape (receivers, words): exact in doubles."""
    low: NDArray[np.uint64] = (factors @ (words & _LOW).astype(np.float64)).astype(np.uint64)
    high: NDArray[np.uint64] = (factors @ (words >> np.uint64(_HALF)).astype(np.float64)).astype(
        np.uint64
    )
    low += (high & _LOW) << np.uint64(_HALF)
    low += (high >> np.uint64(_HALF)) * _GAP  # 2^60 is _GAP mod q; the whole is below 2q
    reduce_once(low, PRIME)
    return low
