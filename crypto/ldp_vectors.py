"""Local randomisers of whole vectors: discrete Gaussian and Laplace noise on a grid, and SQKR."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from crypto.errors import OutOfRange
from crypto.ldp import Integers, Odds, RandomisedResponse, Randomiser, Reals, odds_within, several
from crypto.noise import DiscreteGaussian, DiscreteLaplace
from crypto.noise import sampler as shared
from crypto.samplers import Stream, derive

# --- Vectors on an integer grid whose norm is bounded in integers, whatever floating point did ---

Norm = Literal["l1", "l2"]


def on_grid(
    vector: NDArray[np.floating[Any]], clip: float, levels: int, norm: Norm = "l2"
) -> NDArray[np.int64]:
    """Return a vector clipped to a norm and truncated to the grid, int64 (d,).

    The integer norm is at most `levels`, checked in integers, so the sensitivity holds. A vector
    that is not finite counts as zero: an error would tell of it.

    Args:
        vector: (d,).
        clip: the norm that becomes `levels` steps.
        levels: below 2^31.
        norm: which one.
    """
    real = np.asarray(vector, dtype=np.float64)
    if not np.isfinite(real).all():
        return np.zeros(real.shape, dtype=np.int64)
    largest = float(np.abs(real).max(initial=0.0))
    if largest == 0.0:
        return np.zeros(real.shape, dtype=np.int64)
    order = 1 if norm == "l1" else 2
    length = largest * float(np.linalg.norm(real / largest, order))  # huge squares overflow
    kept = real / length * (min(length / clip, 1.0) * levels)
    found: NDArray[np.int64] = np.trunc(kept).astype(np.int64)
    while (power := _power(found, norm)) > levels**order:
        shorter = levels / float(power) ** (1.0 / order) * (1.0 - 1e-12)
        found = np.trunc(found * shorter).astype(np.int64)
    return found


def _power(found: NDArray[np.int64], norm: Norm) -> int:
    """Return the norm, or its square, exactly."""
    return int(np.abs(found).sum()) if norm == "l1" else int(found @ found)


# --- Vectors on the grid under discrete noise of one's own: what both distributions share ---

LEVELS = 1 << 16
"""The clip norm in grid steps. Truncation moves an entry by less than one of them."""


class NoisedVector(Randomiser):
    """A real vector, clipped and on the grid, plus noise; what is out of reach is cut off.

    Cutting off comes after the noise, so it costs no privacy; so rarely does it happen that the
    estimate's bias is far below a grid step.

    Args:
        length: d.
        bound: the clip norm.
        scale: of the noise, in grid steps.
        levels: the clip norm in grid steps.

    Raises:
        OutOfRange: an argument cannot be used.
    """

    law_of_noise: ClassVar[type[DiscreteGaussian | DiscreteLaplace]]
    norm: ClassVar[Norm]
    tails: ClassVar[float]  # scales from 0 to where noise is cut off

    def __init__(self, length: int, bound: float, scale: float, levels: int = LEVELS) -> None:
        if not (math.isfinite(bound) and bound > 0 and length >= 1 and 1 <= levels < 1 << 24):
            raise OutOfRange("A vector has entries, a finite clip above 0, and 1 to 2^24 levels.")
        self.length, self.bound, self.levels, self.scale = length, bound, levels, scale
        self._noise = shared(self.law_of_noise, scale)
        self.high = levels + math.ceil(self.tails * scale)
        self.low = -self.high

    @property
    def width(self) -> int:
        """Bits of one number on the wire: whole bytes, which long vectors are packed into fast."""
        return -(-super().width // 8) * 8

    @property
    def sensitivity(self) -> int:
        """The norm by which two values differ at most, in grid steps (replace-one)."""
        return 2 * self.levels

    def encode(self, value: Any, stream: Stream) -> Integers:
        """Return the noised levels, (d,)."""
        return self.of_levels(on_grid(value, self.bound, self.levels, self.norm), stream)

    def of_levels(self, levels: Integers, stream: Stream) -> Integers:
        """Return integers with noise, (d,)."""
        noise = self._noise.sample(stream, self.length)
        return np.asarray(np.clip(levels + noise, self.low, self.high))

    def decode(self, message: Integers) -> Reals:
        """Return the vector that a message estimates, (d,)."""
        return np.asarray(message * (self.bound / self.levels))

    def variance(self, clients: int) -> float:
        """Return d Var(noise) step² / n; truncation is not in it."""
        several(clients)
        return self.length * self.of_noise() * (self.bound / self.levels) ** 2 / clients

    def of_noise(self) -> float:
        """Return the variance of one entry's noise, in grid steps squared."""
        raise NotImplementedError


# --- Discrete Gaussian noise on a whole vector of one client, clipped in L2 ---
#
# Canonne, Kamath and Steinke, "The discrete Gaussian for differential privacy", NeurIPS 2020: two
# integer vectors at L2 distance Δ are Δ²/(2σ²)-concentrated (theorem 4, entry by entry, which adds
# up over entries), at every Rényi order. The norm is at most `levels` in integers, so Δ = 2 levels
# for any two values.


class GaussianVector(NoisedVector):
    """See the head of this file; `scale` is σ."""

    name = "discrete_gaussian"
    law_of_noise, norm, tails = DiscreteGaussian, "l2", 10.0

    @property
    def rho(self) -> float:
        """Concentration of one message: its Rényi divergence at order α is at most α ρ."""
        return self.sensitivity**2 / (2.0 * self.scale**2)

    def of_noise(self) -> float:
        """Return σ² as summed over the integers; from σ = 1 on it is σ² to one part in 10^6."""
        reach = range(1, math.ceil(12.0 * self.scale) + 2)
        if self.scale >= 8.0:
            return self.scale**2
        weights = [math.exp(-(x * x) / (2.0 * self.scale**2)) for x in reach]
        squares = math.fsum(x * x * w for x, w in zip(reach, weights, strict=True))
        return 2.0 * squares / (1.0 + 2.0 * math.fsum(weights))


# --- Discrete Laplace noise on a whole vector of one client, clipped in L1: pure epsilon ---
#
# Ghosh, Roughgarden and Sundararajan, "Universally utility-maximizing privacy mechanisms", STOC
# 2009, for one entry; for a vector the ratio of likelihoods of x and x' is
# exp((‖y - x'‖₁ - ‖y - x‖₁)/t) <= exp(‖x - x'‖₁/t). The L1 norm is at most `levels` in integers, so
# Δ = 2 levels for any two values, and ε = 2 levels / t.


def scale_within(epsilon: Fraction | float | int, levels: int) -> float:
    """Return the smallest double t with 2 levels / t <= ε, compared as fractions.

    Raises:
        OutOfRange: ε is not a finite number above 0.
    """
    if not (math.isfinite(epsilon) and epsilon > 0):
        raise OutOfRange("An epsilon is a finite number above 0.")
    exact = Fraction(2 * levels) / Fraction(epsilon)
    scale = float(exact)
    return scale if Fraction(scale) >= exact else math.nextafter(scale, math.inf)


class LaplaceVector(NoisedVector):
    """See the head of this file; `scale` is t."""

    name = "discrete_laplace"
    law_of_noise, norm, tails = DiscreteLaplace, "l1", 40.0

    @classmethod
    def within(
        cls, length: int, bound: float, epsilon: Fraction | float | int, levels: int = LEVELS
    ) -> LaplaceVector:
        """Return the mechanism with just enough noise for ε; raises OutOfRange if none is."""
        return cls(length, bound, scale_within(epsilon, levels), levels)

    @property
    def epsilon(self) -> Fraction:
        """Epsilon of one message, for any two values, exactly."""
        return Fraction(self.sensitivity) / Fraction(self.scale)

    def of_noise(self) -> float:
        """Return 2 e^(1/t)/(e^(1/t) - 1)²."""
        return 2.0 * math.exp(1.0 / self.scale) / math.expm1(1.0 / self.scale) ** 2


# --- A public random rotation that spreads a vector evenly: Walsh-Hadamard behind random signs ---
#
# Ailon and Chazelle, "The fast Johnson-Lindenstrauss transform", SIAM J. Comput. 2009: an entry of
# H D x / √N has mean square ‖x‖²/N over the signs D and sub-Gaussian tails.

_LARGEST = 1 << 26


class Rotation:
    """x, (d,), to H D x / √N, (N,), where N is the next power of two.

    Args:
        length: d.
        seed: public; all clients of a mean use the same.

    Raises:
        OutOfRange: no entries, or more than 2^26.
    """

    def __init__(self, length: int, seed: bytes) -> None:
        if not 1 <= length <= _LARGEST:
            raise OutOfRange("A rotation takes between 1 and 2^26 entries.")
        self.length, self.width = length, 1 << (length - 1).bit_length()
        drawn = Stream(derive(seed, "ldp rotation")).uniform(2, length)
        self._signs = 1.0 - 2.0 * drawn.astype(np.float64)
        self._places = np.arange(length, dtype=np.uint64)

    def entries(self, vector: Reals, places: NDArray[np.int64]) -> Reals:
        """Return some entries of the rotated vector, (k,), without the others."""
        turned = vector * self._signs
        found = np.empty(places.size)
        for at, place in enumerate(places):
            odd = np.bitwise_count(self._places & np.uint64(place)) & np.uint8(1)
            found[at] = turned.sum() - 2.0 * turned[odd.view(np.bool_)].sum()
        return np.asarray(found / np.sqrt(self.width))

    def back(self, turned: Reals) -> Reals:
        """Return the vector, (d,), of a rotated one, (N,)."""
        found, half = turned.copy(), 1
        while half < self.width:
            pairs = found.reshape(-1, 2, half)
            found = np.stack([pairs[:, 0] + pairs[:, 1], pairs[:, 0] - pairs[:, 1]], axis=1).ravel()
            half *= 2
        return np.asarray(found[: self.length] * self._signs / np.sqrt(self.width))


# --- SQKR: k entries of a rotated vector, one bit each, told together by randomised response ---
#
# Chen, Kairouz and Özgür, "Breaking the communication-privacy-accuracy trilemma", NeurIPS 2020,
# section 3 and algorithm 1 (subsampled and quantised Kashin's response). As there: spread the
# vector, draw k of its N entries, round each to one of two values at random, and tell these k bits
# by randomised response over 2^k symbols. It differs in how it spreads: by a public random rotation
# (`crypto.ldp_vectors`), cut off at 3 standard deviations, in place of Kashin's representation; so
# a client computes k entries and no transform.
#
# Proof: which entries are told is drawn without looking at the vector. Given them, the symbol is
# that of `RandomisedResponse` over 2^k categories, so for any two vectors the likelihoods differ by
# a factor of a/b <= e^ε at most. Spreading, cutting off and rounding happen before, in floating
# point, and bear no part of the proof.

MAX_BITS = 16
"""Most entries that one message tells."""
_CUT = 3.0  # standard deviations of a rotated entry; 0.3 % of them lie beyond
_UNIT = 1 << 53


def _kept(odds: Odds, bits: int) -> float:
    """Return by which factor randomised response over 2^k symbols shrinks a sign's mean."""
    return (odds.high - odds.low) / (odds.high + ((1 << bits) - 1) * odds.low)


class Sqkr(Randomiser):
    """A real vector within an L2 ball; a longer one is shortened, one that is none counts as 0.

    A message holds, for each of k entries, twice its place plus its bit.

    Args:
        length: d.
        bound: the radius.
        epsilon: of one message.
        seed: public, at least 16 bytes, of the rotation.
        bits: k; None takes the best for this ε.

    Raises:
        OutOfRange: an argument cannot be used.
    """

    name = "sqkr"

    def __init__(
        self,
        length: int,
        bound: float,
        epsilon: Fraction | float | int,
        seed: bytes,
        bits: int | None = None,
    ) -> None:
        if not (math.isfinite(bound) and bound > 0):
            raise OutOfRange("A vector has a finite clip above 0.")
        self.epsilon, self.bound, self.entries = Fraction(epsilon), bound, length
        odds, counts = odds_within(self.epsilon), range(1, MAX_BITS + 1)
        best = max(counts, key=lambda k: k * _kept(odds, k) ** 2)
        self.length = best if bits is None else bits
        if self.length not in counts:
            raise OutOfRange(f"A message tells between 1 and {MAX_BITS} entries.")
        self.told = RandomisedResponse(1 << self.length, self.epsilon)
        self._kept = _kept(odds, self.length)
        self.rotation = Rotation(length, seed)
        self._cut = _CUT * bound / math.sqrt(self.rotation.width)
        self.low, self.high = 0, 2 * self.rotation.width - 1

    def encode(self, value: Any, stream: Stream) -> Integers:
        """Return twice the place of each drawn entry plus its bit, (k,)."""
        vector = np.asarray(value, dtype=np.float64).ravel()
        if not np.isfinite(vector).all():
            vector = np.zeros(self.entries)
        largest = float(np.abs(vector).max(initial=0.0))
        norm = largest * float(np.linalg.norm(vector / largest)) if largest > 0 else 0.0
        shorter = self.bound / norm if norm > self.bound else 1.0
        places = stream.uniform(self.rotation.width, self.length).astype(np.int64)
        share = self.rotation.entries(vector * shorter, places) / self._cut
        limit = (np.clip(share, -1.0, 1.0) + 1.0) * (_UNIT / 2)
        bits = stream.uniform(_UNIT, self.length).astype(np.int64) < limit.astype(np.int64)
        return self.of_bits(places, bits.astype(np.int64), stream)

    def of_bits(self, places: Integers, bits: Integers, stream: Stream) -> Integers:
        """Return the message that tells these bits of these entries."""
        powers = np.arange(self.length, dtype=np.int64)
        symbol = int(self.told.encode(int((bits << powers).sum()), stream)[0])
        return np.asarray(2 * places + ((np.int64(symbol) >> powers) & 1))

    def decode(self, message: Integers) -> Reals:
        """Return the vector that one message estimates, (d,)."""
        return self.mean([message])

    def mean(self, messages: Sequence[Integers]) -> Reals:
        """Return the estimate of the mean, (d,); one transform, however many messages."""
        several(len(messages))
        turned = np.zeros(self.rotation.width)
        for message in messages:
            np.add.at(turned, message >> 1, 2.0 * (message & 1) - 1.0)
        scale = self.rotation.width * self._cut / (self.length * self._kept * len(messages))
        return self.rotation.back(turned * scale)

    def variance(self, clients: int) -> float:
        """Return the squared error at the worst vector that the rotation spreads well, over n.

        With κ = (a-b)/Z and c the cut in standard deviations: d c² bound²/(k κ²) from the drawn
        signs, and ‖x‖² ((1 - 1/k)/κ - 1) from pairs of them, as a lie changes all bits at once.
        """
        several(clients)
        signs = self.entries * _CUT**2 / (self.length * self._kept**2)
        pairs = (1.0 - 1.0 / self.length) / self._kept - 1.0
        return (signs + max(0.0, pairs)) * self.bound**2 / clients
