"""Discrete noise on the integer grid, drawn exactly from keystream bits (O15, O19).

Both samplers are one rejection sampler over the magnitude x = 2^m q + r (Karney, "Sampling exactly
from the normal distribution", 2016, and Canonne, Kamath and Steinke, "The discrete Gaussian for
differential privacy", 2020, work in the same two digits):

1. q from a table of the cumulative weights f(2^m q)/f(0), 255 bits wide. The upper 63 bits decide;
   the lower 192 are drawn only on a tie.
2. r uniform on m bits.
3. Accept with probability f(2^m q + r)/f(2^m q) = exp(-γ). Floating point decides only when its
   error cannot matter, else 256 more bits are drawn and compared with a 100-digit decimal.
4. A sign; minus zero is rejected, so that zero is not counted twice.

What remains inexact is the table: its rounding and its cut tail. Both are bounded in `tail_bits`.
It is so wide because delta pays (1 + e^ε) times that distance, and ε may exceed 100 for a client
whose neighbours all collude.

No floating-point value is ever added to data or rounded into noise. The running time depends on
the drawn values: the samplers are not constant-time.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from decimal import Context, Decimal
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crypto.errors import OutOfRange
from crypto.samplers import Stream

__all__ = ["MAX_SCALE", "MIN_SCALE", "TAIL_BITS", "DiscreteGaussian", "DiscreteLaplace", "sampler"]

MIN_SCALE = 0.5
"""Smallest noise: the sum of discrete Gaussians is analysed from here on (arXiv 2102.06387)."""
MAX_SCALE = float(1 << 24)
"""Largest noise: γ is computed from integers that a double holds exactly."""
TAIL_BITS = 236
"""Every sampler of this module is at least that exact; see `tail_bits` of one of them."""

_BITS = 255  # width of the table: 63 bits beside the sign, 192 on a tie
_LOW = _BITS - 63
_COARSE = 64  # the smallest scale of q in steps of 2^m, once m > 0
_GUIDE = 16
_BLOCK = 1 << 15  # draws at a time, which stay in the cache
_EXTRA = 256  # bits that settle an acceptance
# Far above the error of γ and exp (< 2^-50) and what a coin leaves open (at most 2^-46).
_SLACK = 2.0**-36
_EXACT = Context(prec=100)  # about 332 bits


class _Table(NamedTuple):
    """Cumulative weights of q: the two halves, and for each 16-bit prefix the answer if unique."""

    cumulative: tuple[int, ...]  # floor(2^255 P(q <= k)), without the last, which is 2^255
    upper: NDArray[np.uint64]  # the first 63 bits of each
    guide: NDArray[np.int64]
    split: NDArray[np.bool_]  # a table entry lies inside the cell: look it up


def _table(weights: list[Decimal]) -> _Table:
    # Decimal's operators, unlike the methods of a context, round to the caller's precision.
    sums = list(accumulate(weights, _EXACT.add))
    unit = Decimal(1 << _BITS)
    cumulative = [int(_EXACT.divide(_EXACT.multiply(v, unit), sums[-1])) for v in sums[:-1]]
    upper = np.array([value >> _LOW for value in cumulative], dtype=np.uint64)
    shift = np.uint64(63 - _GUIDE)
    first = np.arange(1 << _GUIDE, dtype=np.uint64) << shift
    guide = np.searchsorted(upper, first, side="right")
    last = np.searchsorted(upper, first + ((np.uint64(1) << shift) - np.uint64(1)), side="right")
    # An entry on the cell's first value may tie, and so has to be looked up as well.
    entered = np.searchsorted(upper, first, side="left")
    table = _Table(tuple(cumulative), upper, guide.astype(np.int64), last > entered)
    for part in table[1:]:
        part.setflags(write=False)  # samplers are shared, see `sampler`
    return table


class _GridNoise(ABC):
    """The sampler that both distributions share; a subclass gives f by its weights and γ."""

    def __init__(self, scale: float) -> None:
        if not (math.isfinite(scale) and MIN_SCALE <= scale <= MAX_SCALE):
            raise OutOfRange(
                f"Noise on the grid has a scale between {MIN_SCALE} and {MAX_SCALE:.0f} steps; "
                "choose another step for the grid."
            )
        self._scale = Decimal(scale)  # exact
        self._bits = max(0, math.frexp(scale / _COARSE)[1] - 1)
        reach = self._reach(scale / (1 << self._bits))
        self._table = _table(self._weights(reach))
        self._length = reach
        # A cumulative weight is off by less than 2 units of 2^-255, so the table by 2 reach of them
        # in statistical distance; the tail adds half a unit. Conditioning on acceptance multiplies
        # by at most 2/A <= 4: minus zero is rejected in less than half of the draws, and where r
        # exists more than 0.98 are accepted. The settling of coins adds less than 2^-290.
        self._tail_bits = _BITS - math.ceil(math.log2(8 * reach + 4))

    @property
    def tail_bits(self) -> int:
        """b such that each draw is within statistical distance 2^-b of the exact distribution.

        By the union bound k draws are within k 2^-b, which belongs into delta (O19).
        """
        return self._tail_bits

    @property
    def largest(self) -> int:
        """No draw has a larger magnitude, in grid steps."""
        return (self._length << self._bits) - 1

    def sample(self, stream: Stream, count: int) -> NDArray[np.int64]:
        """Return `count` independent draws in grid steps, shape (count,).

        `stream` must come from `crypto.samplers.entropy` and serve nothing else (O15): whoever
        knows its key removes the noise. Raises OutOfRange for a negative count.
        """
        if count < 0:
            raise OutOfRange("A number of draws is not negative.")
        drawn, filled = np.empty(count, dtype=np.int64), 0
        while filled < count:
            part = self._round(stream, min(_BLOCK, count - filled))
            drawn[filled : filled + part.size] = part
            filled += part.size
        return drawn

    def _round(self, stream: Stream, count: int) -> NDArray[np.int64]:
        """Return the accepted ones among `count` proposals."""
        words = stream.words(count)
        magnitude = self._coarse(words >> np.uint64(1), stream)
        sign = (words & np.uint64(1)).astype(np.int64)
        keep = np.ones(count, dtype=np.bool_)
        if self._bits:
            fine = stream.words(count)
            rest = (fine & np.uint64((1 << self._bits) - 1)).astype(np.int64)
            keep = self._accept(magnitude, rest, fine >> np.uint64(self._bits), stream)
            magnitude = (magnitude << self._bits) + rest
        keep &= (magnitude != 0) | (sign == 0)
        return ((magnitude ^ -sign) + sign)[keep]

    def _coarse(self, upper: NDArray[np.uint64], stream: Stream) -> NDArray[np.int64]:
        """Return for each 63-bit number how many cumulative weights it reaches."""
        cell = (upper >> np.uint64(63 - _GUIDE)).astype(np.int64)
        found = self._table.guide[cell]
        unsure = np.flatnonzero(self._table.split[cell])
        asked = upper[unsure]
        found[unsure] = np.searchsorted(self._table.upper, asked, side="right")
        lower = np.searchsorted(self._table.upper, asked, side="left")
        for place in unsure[found[unsure] > lower]:  # ties: about one in 2^52 draws
            full = (int(upper[place]) << _LOW) | int.from_bytes(stream.bytes(_LOW // 8), "little")
            found[place] = sum(full >= value for value in self._table.cumulative)
        return found

    def _accept(
        self,
        coarse: NDArray[np.int64],
        rest: NDArray[np.int64],
        coin: NDArray[np.uint64],
        stream: Stream,
    ) -> NDArray[np.bool_]:
        """Return where a coin of 64 - m bits, read as a number in [0, 1), is below exp(-γ)."""
        unit = coin.astype(np.float64) * 2.0 ** (self._bits - 64)
        gamma = self._gamma(coarse, rest)
        keep = unit < 1.0 - gamma - _SLACK  # 1 - γ <= exp(-γ) spares most exponentials
        open_ = np.flatnonzero(~keep)
        gap = np.exp(-gamma[open_]) - unit[open_]
        keep[open_] = gap > 0
        for place in open_[np.abs(gap) <= _SLACK]:  # about one in 2^35 draws
            keep[place] = self._settle(
                int(coarse[place]), int(rest[place]), int(coin[place]), stream
            )
        return keep

    def _settle(self, coarse: int, rest: int, coin: int, stream: Stream) -> bool:
        """Extend the coin by 256 bits and compare it with 100 digits of exp(-γ)."""
        full = (coin << _EXTRA) | int.from_bytes(stream.bytes(_EXTRA // 8), "little")
        limit = _EXACT.exp(self._exact_gamma(coarse, rest).copy_negate())
        return full < int(_EXACT.multiply(limit, Decimal(1 << (64 - self._bits + _EXTRA))))

    @abstractmethod
    def _reach(self, scale: float) -> int:
        """Return how many q the table holds: the mass of the rest is below 2^-256."""

    @abstractmethod
    def _weights(self, reach: int) -> list[Decimal]:
        """Return f(2^m q)/f(0) for q < reach."""

    @abstractmethod
    def _gamma(self, coarse: NDArray[np.int64], rest: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return ln f(2^m q) - ln f(2^m q + r), within 2^-50."""

    @abstractmethod
    def _exact_gamma(self, coarse: int, rest: int) -> Decimal:
        """Return the same to 100 digits."""


class DiscreteGaussian(_GridNoise):
    """P(x) ∝ exp(-x²/2σ²) on the integers (Canonne, Kamath and Steinke 2020, definition 1).

    Args:
        sigma: σ in grid steps, between MIN_SCALE and MAX_SCALE. The variance is below σ²,
            from σ = 1 on by less than one part in 10^6.

    Raises:
        OutOfRange: σ outside its range or not finite.
    """

    def __init__(self, sigma: float) -> None:
        super().__init__(sigma)
        self._double = 1.0 / (2.0 * sigma * sigma)
        self.sigma = sigma

    def _reach(self, scale: float) -> int:
        # exp(-19²/2) < 2^-260; all that follows is less than (1 + scale/19) times as much, and the
        # whole is at least the larger of 1 and the scale.
        return math.ceil(19.0 * scale) + 1

    def _weights(self, reach: int) -> list[Decimal]:
        return [
            _EXACT.exp(self._exact_gamma(0, q << self._bits).copy_negate()) for q in range(reach)
        ]

    def _gamma(self, coarse: NDArray[np.int64], rest: NDArray[np.int64]) -> NDArray[np.float64]:
        # Below 2^53: r < 2^18 and 2^(m+1) q + r < 2^29.
        product = rest * ((coarse << (self._bits + 1)) + rest)
        return product.astype(np.float64) * self._double

    def _exact_gamma(self, coarse: int, rest: int) -> Decimal:
        product = rest * ((coarse << (self._bits + 1)) + rest)
        squared = _EXACT.multiply(self._scale, self._scale)
        return _EXACT.divide(Decimal(product), _EXACT.multiply(Decimal(2), squared))


class DiscreteLaplace(_GridNoise):
    """P(x) ∝ exp(-|x|/t) on the integers: the difference of two geometric variables.

    Ghosh, Roughgarden and Sundararajan, "Universally utility-maximizing privacy mechanisms", 2009.

    Args:
        scale: t in grid steps, between MIN_SCALE and MAX_SCALE. The variance is
            2 e^(1/t) / (e^(1/t) - 1)², close to 2 t².

    Raises:
        OutOfRange: t outside its range or not finite.
    """

    def __init__(self, scale: float) -> None:
        super().__init__(scale)
        self._inverse = 1.0 / scale
        self.scale = scale

    def _reach(self, scale: float) -> int:
        return math.ceil(178.0 * scale) + 1  # e^-178 < 2^-256

    def _weights(self, reach: int) -> list[Decimal]:
        ratio = _EXACT.exp(self._exact_gamma(0, 1 << self._bits).copy_negate())
        weights = [Decimal(1)]
        while len(weights) < reach:
            weights.append(_EXACT.multiply(weights[-1], ratio))
        return weights

    def _gamma(self, coarse: NDArray[np.int64], rest: NDArray[np.int64]) -> NDArray[np.float64]:
        return rest.astype(np.float64) * self._inverse

    def _exact_gamma(self, coarse: int, rest: int) -> Decimal:
        return _EXACT.divide(Decimal(rest), self._scale)


@lru_cache(maxsize=8)
def sampler(
    kind: type[DiscreteGaussian | DiscreteLaplace], scale: float
) -> DiscreteGaussian | DiscreteLaplace:
    """Return ``kind(scale)``, made once: its table takes a hundred times as long as 30,000 draws.

    A sampler holds nothing but the distribution; what it draws comes from the stream it is given.
    Of a scale that depends on data take a sampler of its own, as these stay in memory.

    Raises:
        OutOfRange: as `kind` does.
    """
    return kind(scale)
