"""Local randomisers of categories and scalars: a client's own draws hide its value."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from decimal import Context, Decimal
from fractions import Fraction
from itertools import product
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crypto.errors import NotCanonical, OutOfRange
from crypto.samplers import MAX_MODULUS, Stream

# --- Rational odds below e^ε, and coins that have exactly these odds ---

MAX_EPSILON = 24
"""Largest epsilon of one message. Beyond it a message says its value; the odds fit 60 bits."""
_BITS = 24  # of the denominator: the odds are at most one part in 2^24 below e^ε
_EXACT = Context(prec=60)


class Odds(NamedTuple):
    """The likelihood ratio `high` / `low` >= 1 of the two probabilities of a randomiser."""

    high: int
    low: int

    @property
    def ratio(self) -> Fraction:
        """The ratio, exactly."""
        return Fraction(self.high, self.low)


def odds_within(epsilon: Fraction | float | int) -> Odds:
    """Return the largest odds with denominator 2^24 that are at most e^ε.

    `epsilon` is read as the exact number that it is. Decimal's exp is rounded correctly, so one
    unit in the 59th digit less, rounded down, is below e^ε.

    Raises:
        OutOfRange: ε is not above 2^-20 and at most `MAX_EPSILON`.
    """
    exact = Fraction(epsilon)
    if not Fraction(1, 1 << 20) < exact <= MAX_EPSILON:
        raise OutOfRange(
            f"The epsilon of one message lies above 2^-20 and at most at {MAX_EPSILON}; choose one "
            "in between, or fewer messages."
        )
    below = _EXACT.divide(Decimal(exact.numerator), Decimal(exact.denominator))
    below = _EXACT.multiply(below, Decimal(1) - Decimal(10) ** -58)
    power = _EXACT.multiply(_EXACT.exp(below), Decimal(1) - Decimal(10) ** -58)
    high = int(_EXACT.multiply(power, Decimal(1 << _BITS)))
    return Odds(max(high, 1 << _BITS), 1 << _BITS)


def falls(stream: Stream, low: int, total: int, count: int) -> NDArray[np.bool_]:
    """Return `count` coins, each true with probability low/total exactly."""
    return np.asarray(stream.uniform(total, count) < np.uint64(low))


# --- What every local randomiser offers, and its messages as bytes ---

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]


class Randomiser(ABC):
    """A mechanism at one client: a value in, whole numbers out.

    A value outside of the domain is brought into it and never refused: a refusal would tell of it.

    Attributes:
        name: in policies.
        length: numbers of one message.
        low, high: the smallest and the largest of them.
    """

    name: ClassVar[str]
    length: int
    low: int
    high: int

    @abstractmethod
    def encode(self, value: Any, stream: Stream) -> Integers:
        """Return one message, (length,).

        `stream` must come from `crypto.samplers.entropy` and serve nothing else (O15).
        """

    @abstractmethod
    def decode(self, message: Integers) -> Reals:
        """Return what one message estimates, without bias: its value plus noise."""

    @abstractmethod
    def variance(self, clients: int) -> float:
        """Return the expected squared error of a mean, all entries together, at the worst values.

        Raises OutOfRange below one client.
        """

    def mean(self, messages: Sequence[Integers]) -> Reals:
        """Return the estimate of the mean of so many clients' values."""
        several(len(messages))
        total = self.decode(messages[0]).copy()
        for message in messages[1:]:
            total += self.decode(message)
        return np.asarray(total / len(messages))

    @property
    def width(self) -> int:
        """Bits of one number on the wire."""
        return max(1, (self.high - self.low).bit_length())

    @property
    def size(self) -> int:
        """Bytes of one message, the same for every value."""
        return -(-self.length * self.width // 8)

    def pack(self, message: Integers) -> bytes:
        """Return one message as `size` bytes: each number less `low`, lowest bit first."""
        lifted = (message - self.low).astype("<u8")
        if self.width % 8 == 0:
            return lifted.view(np.uint8).reshape(-1, 8)[:, : self.width // 8].tobytes()
        shifts = np.arange(self.width, dtype=np.uint64)
        bits = ((lifted[:, None] >> shifts) & np.uint64(1)).astype(np.uint8)
        return np.packbits(bits.ravel(), bitorder="little").tobytes()

    def unpack(self, data: bytes) -> Integers:
        """Return the message that `pack` wrote; raises NotCanonical for any other bytes."""
        if len(data) != self.size:
            raise NotCanonical("A randomised message does not have its planned size.")
        if self.width % 8 == 0:
            wide = np.zeros((self.length, 8), dtype=np.uint8)
            wide[:, : self.width // 8] = np.frombuffer(data, np.uint8).reshape(self.length, -1)
            return self._lowered(wide.view("<u8").ravel())
        bits = np.unpackbits(np.frombuffer(data, dtype=np.uint8), bitorder="little")
        used = self.length * self.width
        if bits[used:].any():
            raise NotCanonical("A randomised message holds bits behind its end.")
        rows = bits[:used].reshape(self.length, self.width).astype(np.int64)
        return self._lowered(rows @ (np.int64(1) << np.arange(self.width, dtype=np.int64)))

    def _lowered(self, lifted: NDArray[Any]) -> Integers:
        """Return numbers from what was packed; raises NotCanonical for one that none can be."""
        if lifted.size and int(lifted.max()) > self.high - self.low:
            raise NotCanonical("A randomised message holds a number that none can have.")
        return np.asarray(lifted.astype(np.int64) + self.low)


class FiniteRandomiser(Randomiser):
    """A randomiser with finitely many messages, all of rational probability: pure epsilon.

    Attributes:
        epsilon: what one message is asked to keep to, for any two values (replace-one), exactly.
    """

    epsilon: Fraction

    @abstractmethod
    def law(self, value: Any) -> dict[tuple[int, ...], Fraction]:
        """Return the exact probability of every message; for small domains."""


def several(clients: int) -> None:
    """Raise OutOfRange unless there is a client to take the mean of."""
    if clients < 1:
        raise OutOfRange("A mean is of one client at least.")


# --- k-ary randomised response: one of k categories, told truly with odds e^ε ---
#
# Warner, "Randomized response", JASA 1965; for k categories Kairouz, Bonawitz and Ramage, "Discrete
# distribution estimation under local privacy", ICML 2016, section 2. Proof, for integers a/b <=
# e^ε: the message y has probability a/Z where y is the value and b/Z elsewhere, Z = a + (k-1)b, so
# for any two values the likelihoods differ by a factor of a/b at most. A draw is uniform on 0 …
# Z-1: the first a numbers tell the truth, and each following block of b is one other category.


class RandomisedResponse(FiniteRandomiser):
    """One category of k; a value outside of 0 … k-1 counts as the nearest.

    Args:
        categories: k, at least 2.
        epsilon: of one message.

    Raises:
        OutOfRange: k or ε cannot be drawn.
    """

    name = "randomised_response"

    def __init__(self, categories: int, epsilon: Fraction | float | int) -> None:
        self.epsilon = Fraction(epsilon)
        self._odds = odds_within(self.epsilon)
        self.categories = categories
        self._total = self._odds.high + (categories - 1) * self._odds.low
        if categories < 2 or self._total > MAX_MODULUS:
            raise OutOfRange("Randomised response has between 2 and about 2^35 categories.")
        self.length, self.low, self.high = 1, 0, categories - 1

    def encode(self, value: Any, stream: Stream) -> Integers:
        """Return the category that is told, (1,)."""
        true = min(max(int(value), 0), self.categories - 1)
        drawn = int(stream.uniform(self._total, 1)[0])
        if drawn < self._odds.high:
            return np.array([true], dtype=np.int64)
        other = (drawn - self._odds.high) // self._odds.low
        return np.array([other + (other >= true)], dtype=np.int64)

    def decode(self, message: Integers) -> Reals:
        """Return an estimate of the one-hot vector, (k,): (1[y = j] - q) / (p - q)."""
        told = np.zeros(self.categories)
        told[int(message[0])] = 1.0
        return np.asarray(
            (told * self._total - self._odds.low) / (self._odds.high - self._odds.low)
        )

    def variance(self, clients: int) -> float:
        """Return ∑_j Var, the same for every value: (1 - ∑_j P_j²) / (p - q)² / n.

        One-hot y has covariance diag(P) - P P'; P is p once and q at the k - 1 others.
        """
        several(clients)
        p, q = self._odds.high / self._total, self._odds.low / self._total
        spread = 1.0 - p * p - (self.categories - 1) * q * q
        return spread / (p - q) ** 2 / clients

    def law(self, value: Any) -> dict[tuple[int, ...], Fraction]:
        """Return the exact probability of each category."""
        high, low = (Fraction(part, self._total) for part in self._odds)
        return {(y,): high if y == int(value) else low for y in range(self.categories)}


# --- Optimised unary encoding: a bit for each of k categories, for one category or a set of items
# ---
#
# Wang, Blocki, Li and Jha, "Locally differentially private protocols for frequency estimation",
# USENIX Security 2017, section 4.3 (OUE): a bit that is set stays so with probability p = 1/2, one
# that is not becomes set with q = b/(a+b). Proof: two sets of at most m items differ in at most m
# bits that only the first has and m that only the second has. A pair of such bits changes the
# likelihood by p(1-q)/(q(1-p)) = a/b at most, so any two sets by (a/b)^m; a/b <= e^(ε/m).


class UnaryEncoding(FiniteRandomiser):
    """A subset of k categories with at most m members; of a larger one m are drawn.

    Args:
        categories: k.
        epsilon: of one message.
        items: m; 1 for a single category.

    Raises:
        OutOfRange: k, m or ε cannot be drawn.
    """

    name = "unary"

    def __init__(self, categories: int, epsilon: Fraction | float | int, items: int = 1) -> None:
        if not 1 <= items <= categories:
            raise OutOfRange("Unary encoding holds between one item and all of them.")
        self.epsilon, self.categories, self.items = Fraction(epsilon), categories, items
        self._odds = odds_within(self.epsilon / items)
        self._total = self._odds.high + self._odds.low
        self.length, self.low, self.high = categories, 0, 1

    def encode(self, value: Any, stream: Stream) -> Integers:
        """Return the bits, (k,).

        Args:
            value: the category numbers of the set; numbers outside of 0 … k-1 are left out.
            stream: see `Randomiser`.
        """
        held = np.unique(np.asarray(value, dtype=np.int64).ravel())
        held = held[(held >= 0) & (held < self.categories)]
        if held.size > self.items:
            held = held[np.argsort(stream.words(held.size), kind="stable")[: self.items]]
        bits = falls(stream, self._odds.low, self._total, self.categories)
        bits[held] = falls(stream, 1, 2, held.size)
        return bits.astype(np.int64)

    def decode(self, message: Integers) -> Reals:
        """Return an estimate of the indicator of each category, (k,): (y - q) / (1/2 - q)."""
        q = self._odds.low / self._total
        return np.asarray((message - q) / (0.5 - q))

    def variance(self, clients: int) -> float:
        """Return ∑_j Var at a full set: (m/4 + (k-m) q(1-q)) / (1/2 - q)² / n."""
        several(clients)
        q = self._odds.low / self._total
        spread = self.items / 4.0 + (self.categories - self.items) * q * (1.0 - q)
        return spread / (0.5 - q) ** 2 / clients

    def law(self, value: Any) -> dict[tuple[int, ...], Fraction]:
        """Return the exact probability of every vector of bits, for a set that is not too large."""
        held, half = {int(one) for one in value}, Fraction(1, 2)
        q = Fraction(self._odds.low, self._total)
        found = {}
        for bits in product((0, 1), repeat=self.categories):
            chance = Fraction(1)
            for place, bit in enumerate(bits):
                chance *= half if place in held else q if bit else 1 - q
            found[bits] = chance
        return found


# --- One category that a client draws of its own, by its weights, and tells by the better
# mechanism ---
#
# For a histogram or a set of items: the client draws one of k places in proportion to its weights
# and tells it by `RandomisedResponse` or by `UnaryEncoding`, whichever errs less for this k and ε
# (about: the former up to k = 3 e^ε + 2, Wang et al., USENIX Security 2017, section 5). The mean
# estimates the mean of the clients' shares. Proof: a message's law is a mixture, over the drawn
# place, of laws of which any two differ by a factor of a/b <= e^ε at most, and so do any two
# mixtures of them. How a place is drawn bears no part of the proof, so weights may be of floating
# point.

_UNIT = 1 << 53


class DrawnCategory(FiniteRandomiser):
    """Weights of k categories, of which one is drawn and told.

    Weights below zero count as zero. A client without any, or with one that is not finite, draws
    among all categories alike: it says what is known without data.

    Args:
        categories: k, at least 2.
        epsilon: of one message.

    Raises:
        OutOfRange: k or ε cannot be drawn.
    """

    name = "category"

    def __init__(self, categories: int, epsilon: Fraction | float | int) -> None:
        self.epsilon, self.categories = Fraction(epsilon), categories
        ways: tuple[RandomisedResponse | UnaryEncoding, ...] = (
            RandomisedResponse(categories, epsilon),
            UnaryEncoding(categories, epsilon),
        )
        self.told = min(ways, key=lambda way: way.variance(1))
        self.length, self.low, self.high = self.told.length, self.told.low, self.told.high

    def drawn(self, value: Any, stream: Stream) -> int:
        """Return the place that is drawn by weights, (k,)."""
        weights = np.maximum(np.asarray(value, dtype=np.float64).ravel(), 0.0)
        if weights.size != self.categories or not np.isfinite(weights).all() or not weights.any():
            weights = np.ones(self.categories)
        ends = np.cumsum(weights / weights.max())
        at = int(stream.uniform(_UNIT, 1)[0]) / _UNIT * ends[-1]
        return min(int(np.searchsorted(ends, at, side="right")), int(np.flatnonzero(weights)[-1]))

    def encode(self, value: Any, stream: Stream) -> Integers:
        """Return the message for weights, (k,)."""
        return self.told.encode(self.drawn(value, stream), stream)

    def decode(self, message: Integers) -> Reals:
        """Return an estimate of the shares, (k,)."""
        return self.told.decode(message)

    def variance(self, clients: int) -> float:
        """Return that of the mechanism and of the draw, (1 - ∑ w²)/n at even shares w = 1/k."""
        return self.told.variance(clients) + (1.0 - 1.0 / self.categories) / clients

    def law(self, value: Sequence[Fraction | int]) -> dict[tuple[int, ...], Fraction]:
        """Return the exact probability of every message, for shares that are drawn exactly."""
        total, found = Fraction(sum(value)), dict[tuple[int, ...], Fraction]()
        for place, weight in enumerate(value):
            one = place if isinstance(self.told, RandomisedResponse) else (place,)
            for message, chance in self.told.law(one).items():
                found[message] = found.get(message, Fraction(0)) + chance * weight / total
        return found


# --- Several values of one client in one message, each told by itself ---
#
# Their draws are independent, so the likelihood of the message is the product of theirs, and
# epsilon of the message the sum of their epsilons.


class Several(Randomiser):
    """A vector cut into pieces, one for each mechanism; its message is theirs, one after the other.

    Args:
        parts: per piece how many numbers it has, and its mechanism, whose estimate is as long.

    Raises:
        OutOfRange: there is no part.
    """

    name = "several"

    def __init__(self, parts: Sequence[tuple[int, FiniteRandomiser]]) -> None:
        if not parts:
            raise OutOfRange("A message tells one value at least.")
        self.parts = tuple(parts)
        self.length = sum(made.length for _, made in parts)
        self.low, self.high = min(m.low for _, m in parts), max(m.high for _, m in parts)
        self.epsilon = sum((made.epsilon for _, made in parts), Fraction(0))

    def encode(self, value: Any, stream: Stream) -> Integers:
        """Return the messages of all pieces, (length,)."""
        found, start = [], 0
        for entries, made in self.parts:
            found.append(made.encode(value[start : start + entries], stream))
            start += entries
        return np.concatenate(found)

    def decode(self, message: Integers) -> Reals:
        """Return the pieces that a message estimates, one after the other."""
        return np.concatenate([m.decode(one) for m, one in self._cut(message, "length")])

    def variance(self, clients: int) -> float:
        """Return the sum over the pieces."""
        several(clients)
        return sum(made.variance(clients) for _, made in self.parts)

    @property
    def size(self) -> int:
        """Bytes of one message."""
        return sum(made.size for _, made in self.parts)

    def pack(self, message: Integers) -> bytes:
        """Return the bytes of all pieces."""
        return b"".join(made.pack(one) for made, one in self._cut(message, "length"))

    def unpack(self, data: bytes) -> Integers:
        """Return the message that `pack` wrote; raises NotCanonical for any other bytes."""
        if len(data) != self.size:
            raise NotCanonical("A randomised message does not have its planned size.")
        return np.concatenate([made.unpack(one) for made, one in self._cut(data, "size")])

    def _cut(self, whole: Any, by: str) -> list[tuple[FiniteRandomiser, Any]]:
        """Return each mechanism with its piece of a message or of its bytes."""
        found, start = [], 0
        for _, made in self.parts:
            end = start + int(getattr(made, by))
            found.append((made, whole[start:end]))
            start = end
        return found


# --- Bounded scalars by the piecewise mechanism, on a grid ---
#
# Wang et al., "Collecting and analyzing multidimensional data with local differential privacy",
# ICDE 2019, algorithm 2. Discretised: a value is brought to an integer x in -L … L. The message y
# is an integer in -C … C, C = L + h. The 2h + 1 integers around x have probability a/Z each, all
# others b/Z, with a/b <= e^ε and Z = a(2h+1) + b(2C+1 - (2h+1)). Proof: Z does not depend on x, so
# for any two values the likelihoods of y differ by a factor of a/b at most.
#
# The integers of -C … C add up to 0, so E[y] = x (a-b)(2h+1)/Z exactly: y Z/((a-b)(2h+1)) has no
# bias. h = L e^(-ε/2), rounded, is the paper's width ((C-1)/(C+1) in its units); any h is private.


class Piecewise(FiniteRandomiser):
    """One real number within centre ± bound; beyond it is clipped, what is none is the centre.

    Args:
        bound: above 0.
        epsilon: of one message.
        levels: L, grid steps from 0 to the bound.
        centre: the middle of the range, public.

    Raises:
        OutOfRange: an argument cannot be used.
    """

    name = "piecewise"

    def __init__(
        self,
        bound: float,
        epsilon: Fraction | float | int,
        levels: int = 1 << 12,
        centre: float = 0.0,
    ) -> None:
        if not (math.isfinite(bound) and bound > 0 and 1 <= levels <= 1 << 20):
            raise OutOfRange("A bounded number has a finite bound above 0, and 1 to 2^20 levels.")
        self.epsilon, self.bound, self.levels = Fraction(epsilon), bound, levels
        self.centre = centre
        self._odds = odds_within(self.epsilon)
        self._half = round(levels * math.exp(-float(self.epsilon) / 2.0))
        self._reach = levels + self._half
        self._window = 2 * self._half + 1
        rest = 2 * self._reach + 1 - self._window
        self._near = self._odds.high * self._window
        self._total = self._near + self._odds.low * rest
        self.length, self.low, self.high = 1, -self._reach, self._reach

    def on_grid(self, value: Any, stream: Stream) -> int:
        """Return the integer x of a value, rounded up or down at random, without bias."""
        given = float(np.ravel(value)[0]) - self.centre
        if not math.isfinite(given):
            return 0
        scaled = min(max(given / self.bound, -1.0), 1.0) * self.levels
        low = math.floor(scaled)
        return low + int(int(stream.uniform(1 << 53, 1)[0]) < int((scaled - low) * 2.0**53))

    def encode(self, value: Any, stream: Stream) -> Integers:
        """Return the message, (1,), for a real number."""
        return self.of_level(self.on_grid(value, stream), stream)

    def of_level(self, level: int, stream: Stream) -> Integers:
        """Return the message for an integer x of the grid."""
        drawn, start = int(stream.uniform(self._total, 1)[0]), level - self._half
        if drawn < self._near:
            return np.array([start + drawn // self._odds.high], dtype=np.int64)
        other = (drawn - self._near) // self._odds.low - self._reach  # of those outside the window
        return np.array([other + self._window * (other >= start)], dtype=np.int64)

    @property
    def _gain(self) -> float:
        """What the message's mean is, in units of x."""
        return (self._odds.high - self._odds.low) * self._window / self._total

    def decode(self, message: Integers) -> Reals:
        """Return an estimate of the value, (1,)."""
        return np.asarray(self.centre + message / self._gain * (self.bound / self.levels))

    def variance(self, clients: int) -> float:
        """Return the variance at ±bound, where it is largest, over n.

        E[y²] = ((a-b) W(x) + b A)/Z with A = ∑ y² over -C … C and W over the window around x;
        W = (2h+1)x² + h(h+1)(2h+1)/3.
        """
        several(clients)
        half, reach, level = self._half, self._reach, self.levels
        around = self._window * level**2 + half * (half + 1) * self._window // 3
        everywhere = reach * (reach + 1) * (2 * reach + 1) // 3
        gap = self._odds.high - self._odds.low
        second = Fraction(gap * around + self._odds.low * everywhere, self._total)
        gain = Fraction(gap * self._window, self._total)
        step = self.bound / self.levels
        return float(second / gain**2 - level**2) * step * step / clients

    def law(self, value: Any) -> dict[tuple[int, ...], Fraction]:
        """Return the exact probability of every message, for an integer x of the grid."""
        high, low = (Fraction(part, self._total) for part in self._odds)
        return {
            (y,): high if abs(y - int(value)) <= self._half else low
            for y in range(-self._reach, self._reach + 1)
        }
