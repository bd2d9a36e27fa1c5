"""Weighted sums of encrypted vectors, one per receiver and exact: `bfv-weighted` (O1, O10)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from crypto.errors import InvalidCiphertext, InvalidKey, OutOfRange, SelfTestFailed
from crypto.homomorphic.bfv import BFV48, DEGREE, Parameters, SealBfv
from crypto.homomorphic.bfv_parts import PublicKey
from crypto.homomorphic.seal import WORD_BITS, reduce_once
from crypto.samplers import Stream, derive, entropy

# --- Integer weights that no receiver can read a single client from (O10) ---
#
# Row i says how much of each client enters client i's combination. Weights are integers with one
# public total W per row, so that combinations are exact (`crypto.homomorphic.weighted`). Receiver i
# knows its own vector and takes it off, so the rule is about what is left: with the others' shares
# b_j = a_ij / (1 - a_ii),
#
#     effective group   1 / sum b_j^2 >= minimum      at least `minimum` others, were they equal
#     cap               max b_j <= cap                no other makes up most of what is left
#
# A row with no others at all is allowed: its receiver learns nothing that it did not have.
#
# `flatten` brings real weights to the nearest integers and, where a row breaks the rule, to the
# nearest that keep it. The aggregator has its output and shows it to the witness; the noise of
# opened rows tells the key authority how alike two rows are, and clients may compare theirs. What
# the real weights were computed from is not hidden by them: of weights exp(tau S) over their sum,
# as FED-PUB takes them, whoever reads the integers has the cosines S roughly, and whoever opened
# the cosines has the integers, since `flatten` draws nothing.

MINIMUM: Final = 3
"""The smallest effective group of others (O10)."""

CAP: Final = Fraction(1, 2)
"""The largest share of one other among the others."""

TOTAL: Final = 128
"""W, the default total of a row: `crypto.homomorphic.weighted` is exact for every row of it."""

_MAX_TOTAL: Final = 1 << 12
_MAX_CLIENTS: Final = 1024
_TOLERANCE: Final = 1e-6
_HALVINGS: Final = 40

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class _Rule:
    """When a row's others, integers of shape (n,), may be combined."""

    minimum: int
    cap: Fraction

    def admits(self, others: Integers) -> bool:
        """Say whether weights of others keep group and cap; exact, in integers."""
        total, largest = int(others.sum()), int(others.max(initial=0))
        group = self.minimum * int(others @ others) <= total * total
        return group and largest * self.cap.denominator <= total * self.cap.numerator

    def even(self, total: int, count: int) -> Integers:
        """Return `total` spread over `count` as evenly as integers allow: kept if anything is."""
        base, rest = divmod(total, count)
        return np.array([base + (j < rest) for j in range(count)], dtype=np.int64)

    def possible(self, wanted: int, count: int, limit: int) -> int:
        """Return the total of others nearest to `wanted` that `count` clients can carry.

        0 always can; at equal distance the smaller one is taken.
        """
        near = sorted(range(limit + 1), key=lambda total: (abs(total - wanted), total))
        return next(total for total in near if self.admits(self.even(total, count)))


@dataclass(frozen=True, eq=False)
class Weights:
    """A checked table of integer weights; row i is what client i receives.

    Attributes:
        table: shape (K, K), not negative, every row with sum `total`.
        total: W, a power of two.
        minimum: the effective group that every row's others keep.
        cap: the largest share of one other among the others.
        flattened: the rows that had to be changed beyond rounding, for ledger and report.
    """

    table: Integers = field(repr=False)
    total: int
    minimum: int = MINIMUM
    cap: Fraction = CAP
    flattened: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Raise OutOfRange for any row that breaks the rule: nothing unchecked is combined."""
        _check_total(self.total)
        table = np.asarray(self.table)
        if table.ndim != 2 or table.shape[0] != table.shape[1] or table.dtype.kind not in "iu":
            raise OutOfRange("A square table of integer weights is expected.")
        if (table < 0).any() or (table > self.total).any():
            raise OutOfRange("A weight lies between 0 and the total of its row.")
        if (table.sum(axis=1) != self.total).any():
            raise OutOfRange("Every row of weights has the public total.")
        rule = _rule(self.minimum, self.cap)
        if not all(rule.admits(np.delete(row, i)) for i, row in enumerate(table.astype(np.int64))):
            raise OutOfRange("A row of weights rests on too few others; flatten it first.")
        table = table.astype(np.int64)  # a copy
        table.flags.writeable = False
        object.__setattr__(self, "table", table)

    @property
    def clients(self) -> int:
        """K."""
        return len(self.table)


def flatten(
    weights: NDArray[np.floating[Any]],
    minimum: int = MINIMUM,
    *,
    total: int = TOTAL,
    cap: Fraction = CAP,
    top: int | None = None,
) -> Weights:
    """Return the admissible integer weights nearest to real ones of shape (K, K).

    A row is rounded by largest remainders. Where that breaks the rule, the receiver's own weight
    stays (unless its others' total cannot be carried by integers that keep the rule; then it moves
    as little as that needs), and the others move to the nearest admissible weights: along the path
    of the exact projection in the reals, and from there until no move of one unit between two
    others brings them nearer. What is admissible is only rounded; a second call changes nothing,
    unless a tie stood at `top`.

    Args:
        weights: rows not negative with sum 1 (to 1e-6); the receiver's own share on the diagonal.
        minimum: the effective group of others, at least 1.
        total: W, a power of two up to 4096.
        cap: the largest share of one other among the others, above 0 and at most 1.
        top: keep only that many others per row, the largest, before anything else; more than
            `minimum`. What weighs as much as the last of them stays too, so that a row whose others
            weigh alike is not cut. None keeps all.

    Raises:
        OutOfRange: rows that are no distributions, a `top` that leaves no choice, or fewer clients
            than a receiver and `minimum` others.
    """
    rule = _rule(minimum, cap)
    _check_total(total)
    shares = _distributions(weights)
    count = len(shares)
    if top is not None and top <= minimum:
        raise OutOfRange("More others than the minimum group must stay, or all weights are forced.")
    if count - 1 < minimum:
        raise OutOfRange("There are fewer others than the smallest effective group; add clients.")
    table = np.zeros((count, count), dtype=np.int64)
    flattened = []
    for i, row in enumerate(shares):
        others = _support(row, i, top)
        # In one order for all receivers: rows that are alike become the same integers, unless
        # `top` cuts or the rule changes them, and do not tell two receivers who compare them one
        # client's share.
        places = np.sort(np.append(others, i))
        table[i, places] = _rounded(row[places] / row[places].sum(), total)
        if not rule.admits(table[i, others]):
            flattened.append(i)
            carried = int(table[i, others].sum())
            table[i, np.append(others, i)] = _nearest(row[others], carried, total, rule)
    return Weights(table, total, minimum, cap, tuple(flattened))


def _rule(minimum: int, cap: Fraction) -> _Rule:
    if minimum < 1 or not 0 < cap <= 1:
        raise OutOfRange("A group has at least one member and a cap lies above 0 and at most at 1.")
    return _Rule(minimum, Fraction(cap))


def _check_total(total: int) -> None:
    if not 2 <= total <= _MAX_TOTAL or total & (total - 1):
        raise OutOfRange("The total of a row is a power of two up to 4096.")


def _distributions(weights: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    shares = np.asarray(weights, dtype=np.float64)
    if shares.ndim != 2 or shares.shape[0] != shares.shape[1] or len(shares) > _MAX_CLIENTS:
        raise OutOfRange("A square table of weights, one row per receiver, is expected.")
    if not np.isfinite(shares).all() or (shares < 0).any():
        raise OutOfRange("Weights are finite and not negative.")
    if (np.abs(shares.sum(axis=1) - 1) > _TOLERANCE).any():
        raise OutOfRange("Every row of weights has sum 1.")
    return shares


def _support(row: NDArray[np.float64], own: int, top: int | None) -> NDArray[np.intp]:
    """Return the others that may enter a row, ascending: the `top` largest and ties, or all."""
    others = np.delete(np.arange(row.size), own)
    if top is None or top >= others.size:
        return others
    # A tie broken by index would cut rows that are alike at different clients, and leave two
    # receivers one client's share.
    kept: NDArray[np.intp] = others[row[others] >= np.sort(row[others])[-top]]
    return kept


def _rounded(shares: NDArray[np.float64], total: int) -> Integers:
    """Return integers with sum `total` nearest to total x shares; ties go to the lower index."""
    exact = shares * total
    whole = np.floor(exact).astype(np.int64)
    largest = np.argsort(whole - exact, kind="stable")
    missing = total - int(whole.sum())
    # A sum of floats just above 1 leaves one unit too many: the smallest remainder gives it back.
    chosen, step = (largest[:missing], 1) if missing >= 0 else (largest[missing:], -1)
    whole[chosen] += step
    return whole


def _nearest(others: NDArray[np.float64], wanted: int, total: int, rule: _Rule) -> Integers:
    """Return a whole row, others first and the receiver last, whose others keep the rule."""
    carried = rule.possible(wanted, others.size, total)
    if not carried:
        return np.append(np.zeros(others.size, dtype=np.int64), total)
    target = carried * others / others.sum()
    best = rule.even(carried, others.size)  # keeps the rule, and is the far end of the path
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        tried = _clipped(middle * target, carried, rule.cap)
        if rule.admits(tried):
            low, best = middle, tried
        else:
            high = middle
    return np.append(_settled(best, target, rule), total - carried)


def _clipped(scaled: NDArray[np.float64], total: int, cap: Fraction) -> Integers:
    """Return integers with sum `total` nearest to `scaled` plus one shift, within 0 … cap total."""
    top = float(total * cap)
    low, high = -float(scaled.max()), float(total)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (
            (middle, high) if np.clip(scaled + middle, 0, top).sum() < total else (low, middle)
        )
    clipped = np.clip(scaled + high, 0, top)
    return _rounded(clipped / clipped.sum(), total)


def _settled(start: Integers, target: NDArray[np.float64], rule: _Rule) -> Integers:
    """Move single units while that brings admissible weights nearer; the best move each time."""
    weights = start.copy()
    while True:
        beyond = weights - target
        # One unit from j to k changes the squared distance by 2 (beyond_k - beyond_j + 1).
        gain = beyond[:, np.newaxis] - beyond[np.newaxis, :] - 1
        gain[weights == 0, :] = -1
        np.fill_diagonal(gain, -1)
        for place in np.argsort(-gain, axis=None, kind="stable"):
            giver, taker = divmod(int(place), weights.size)
            if gain[giver, taker] <= _TOLERANCE:
                return weights
            moved = weights.copy()
            moved[giver] -= 1
            moved[taker] += 1
            if rule.admits(moved):
                weights = moved
                break


# --- Weighted sums of encrypted vectors, one per receiver and exact: `bfv-weighted` (O1, O10) ---
#
# BFV (Fan and Vercauteren, eprint 2012/144) with t = 2^44 and two primes, as `bfv48-sealapi`. The
# aggregator multiplies uploads by small public integers and adds; nothing is rescaled:
#
#     ring = weighted()
#     public, secret = ring.keygen()                                  # at the key authority
#     upload = ring.encrypt(public, packed)                           # at each client
#     rows = ring.combine(public, uploads, weights, seeds)            # at the aggregator
#     opened = ring.decrypt(secret, rows[i])                          # at the key authority
#     plain = ring.subtract(opened, ring.blind(seeds[i], opened.size))    # at receiver i
#
# Values are packed with head-room for the total W of the weights (`Packing(bits, W, plain_bits)`),
# because W times the largest value is the largest combination: two 15-bit values a coefficient at
# W = 128.
#
# Every row carries a blind of its own, uniform mod t on every coefficient, from a 32-byte seed that
# its receiver alone may hold beside the aggregator and the witness. Without it the authority solves
# K rows for K models. A row is determined by uploads, weights and seed, so that a witness
# recomputes its bytes (O4).
#
# Who sees what. The aggregator and the witness: ciphertexts, weights, seeds, no value. The
# authority: uniform numbers mod t, and the noise of each row. The receiver: its own combination.
# What breaks it: the authority together with the aggregator; an aggregator that has something else
# opened than a row, unless witnesses sign (O4). That rows differ by little, or that receivers put
# rows together, is no matter of encryption (`crypto.homomorphic.weighted`, the report's rank test).
#
# Noise. The authority holds the key and therefore reads the noise of every row, which is the same
# combination of the uploads' noises: with the weights (which follow from cosines that it opened) K
# rows are K equations for K noises. Two things keep values out of them:
#
# * Encoding m as round(q m / t) leaves an error that depends on m. With the usual q it is as good
#   as m's low half; q here is the largest prime of 60 bits with q = 1 mod t, so it is m / t, less
#   than 2^-7 for packed values.
# * Each row carries a flood, uniform in [-2^13, 2^13) on every coefficient, from the seed of its
#   blind: K more unknowns than equations. What the errors of a whole row add up to is below 1.
#
# The noises still tell how similar two rows of weights are: a plan that keeps weights from the
# authority cannot use this.
#
# Exactness. A fresh ciphertext has noise of standard deviation 15.1, so a row has 15.1 sqrt(sum
# w^2) beside its flood, and it opens exactly while both stay below q/2t, just under 2^15.
# `MAX_SQUARES` keeps 12 standard deviations (2 exp(-72) per coefficient); every row with W = 128 is
# within it.
#
# Arithmetic. Words are cut into halves of 30 bits, and halves are multiplied as doubles: every sum
# is an integer below 2^42 and therefore exact in any order, so a matrix product does it, on any
# machine with the same result. 2^60 - q folds what is above 2^60. A table with few others in a row
# is multiplied entry by entry, once (k + 1) 12 < K for k others of K clients; that saves little,
# since blind, flood and wire of each row dominate. `combine` of three ciphertexts takes as long
# with five others a row as with all: 15.4 and 16.2 ms for K = 20, 45.3 and 46.1 for 50, 97.2 and
# 99.3 for 100.

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
