"""SQKR: k entries of a rotated vector, one bit each, told together by randomised response.

Chen, Kairouz and Özgür, "Breaking the communication-privacy-accuracy trilemma", NeurIPS 2020,
section 3 and algorithm 1 (subsampled and quantised Kashin's response). As there: spread the vector,
draw k of its N entries, round each to one of two values at random, and tell these k bits by
randomised response over 2^k symbols. It differs in how it spreads: by a public random rotation
(`crypto.ldp.rotation`), cut off at 3 standard deviations, in place of Kashin's representation; so a
client computes k entries and no transform.

Proof: which entries are told is drawn without looking at the vector. Given them, the symbol is that
of `RandomisedResponse` over 2^k categories, so for any two vectors the likelihoods differ by a
factor of a/b <= e^ε at most. Spreading, cutting off and rounding happen before, in floating point,
and bear no part of the proof.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from crypto.errors import OutOfRange
from crypto.ldp.mechanism import Integers, Randomiser, Reals, several
from crypto.ldp.odds import Odds, odds_within
from crypto.ldp.randomised_response import RandomisedResponse
from crypto.ldp.rotation import Rotation
from crypto.samplers import Stream

__all__ = ["MAX_BITS", "Sqkr"]

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
