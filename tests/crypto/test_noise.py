"""Discrete noise: exact probabilities, an independent sampler, and broken variants as controls."""

from __future__ import annotations

import math
import random
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import accumulate

import numpy as np
import pytest
from scipy import stats

import crypto.noise
from crypto.errors import OutOfRange
from crypto.noise import (
    MAX_SCALE,
    MIN_SCALE,
    TAIL_BITS,
    DiscreteGaussian,
    DiscreteLaplace,
    sampler,
)
from crypto.samplers import Stream

KEY = bytes(range(32))
KINDS = [DiscreteGaussian, DiscreteLaplace]
LOW = 192  # bits that are drawn on a tie
GUARD = 1e-6  # no test of a correct sampler is expected to fall below


class Script(Stream):
    """A stream that says what it is told to."""

    __slots__ = ("left",)

    def __init__(self, *chunks: bytes) -> None:
        self.left = b"".join(chunks)

    def bytes(self, count: int) -> bytes:
        taken, self.left = self.left[:count], self.left[count:]
        assert len(taken) == count, "more was drawn than the test foresaw"
        return taken


def weight(kind: type, scale: float, x: int) -> float:
    return math.exp(-x * x / (2 * scale**2) if kind is DiscreteGaussian else -abs(x) / scale)


def exact_variance(kind: type, scale: float) -> float:
    if kind is DiscreteLaplace:
        return 2 * math.exp(1 / scale) / math.expm1(1 / scale) ** 2
    reach = range(-int(40 * scale) - 2, int(40 * scale) + 3)
    total = math.fsum(weight(kind, scale, x) for x in reach)
    return math.fsum(x * x * weight(kind, scale, x) for x in reach) / total


def edges(kind: type, scale: float, cells: int) -> np.ndarray:
    """Return cell borders at half-integers that hold roughly equal mass."""
    law = stats.norm(scale=scale) if kind is DiscreteGaussian else stats.laplace(scale=scale)
    inner = np.unique(np.floor(law.ppf(np.arange(1, cells) / cells)) + 0.5)
    return np.concatenate([[-np.inf], inner, [np.inf]])


def pvalue(drawn: np.ndarray, kind: type, scale: float, cells: int = 200) -> float:
    """Return the χ² p-value of draws against exact cell masses."""
    borders = edges(kind, scale, cells)
    reach = np.arange(-math.ceil(60 * scale), math.ceil(60 * scale) + 1)
    exponent = (
        -(reach**2.0) / (2 * scale**2) if kind is DiscreteGaussian else -np.abs(reach) / scale
    )
    mass = np.exp(exponent)
    expected = np.histogram(reach, borders, weights=mass / mass.sum())[0] * drawn.size
    kept = expected > 5
    assert kept.sum() >= 3
    found = np.histogram(drawn, borders)[0]
    if not kept.all():
        found, expected = (np.append(v[kept], v[~kept].sum()) for v in (found, expected))
        expected[-1] = max(expected[-1], 1e-9)
    return float(stats.chisquare(found, expected * drawn.size / expected.sum()).pvalue)


# --- an independent sampler: Canonne, Kamath and Steinke 2020, algorithms 1 to 3, with fractions


def coin_exp(gamma: Fraction, chance: random.Random) -> bool:
    """Bernoulli(exp(-γ)) for any γ >= 0 (there, algorithm 1)."""
    while gamma > 1:
        if not coin_exp(Fraction(1), chance):
            return False
        gamma -= 1
    k = 1
    while chance.randrange(gamma.denominator * k) < gamma.numerator:
        k += 1
    return k % 2 == 1


def their_laplace(t: int, chance: random.Random) -> int:
    """Discrete Laplace of integer scale t (there, algorithm 2)."""
    while True:
        digit = chance.randrange(t)
        if not coin_exp(Fraction(digit, t), chance):
            continue
        tens = 0
        while coin_exp(Fraction(1), chance):
            tens += 1
        value, negative = digit + t * tens, chance.randrange(2)
        if not (negative and value == 0):
            return -value if negative else value


def their_gaussian(sigma: Fraction, chance: random.Random) -> int:
    """Discrete Gaussian by rejection from discrete Laplace (there, algorithm 3)."""
    t = math.floor(sigma) + 1
    while True:
        value = their_laplace(t, chance)
        gap = (abs(value) - sigma**2 / t) ** 2 / (2 * sigma**2)
        if coin_exp(gap, chance):
            return value


@pytest.mark.parametrize("scale", [1, 9, 150])
@pytest.mark.parametrize("kind", KINDS)
def test_o15_agrees_with_an_independent_exact_sampler(kind, scale):
    chance = random.Random(20)
    theirs = np.array(
        [
            their_gaussian(Fraction(scale), chance)
            if kind is DiscreteGaussian
            else their_laplace(scale, chance)
            for _ in range(12_000)
        ]
    )
    ours = kind(float(scale)).sample(Stream(KEY), 120_000)
    borders = edges(kind, scale, 40)
    table = np.array([np.histogram(drawn, borders)[0] for drawn in (ours, theirs)])
    table = table[:, table.sum(axis=0) > 50]
    assert stats.chi2_contingency(table).pvalue > GUARD
    assert pvalue(theirs, kind, scale, 40) > GUARD, "the independent sampler itself is wrong"


@pytest.mark.parametrize("scale", [0.5, 0.93, 1.0, 4.0, 8.5, 64.0, 127.99, 128.0, 777.7, 5000.0])
@pytest.mark.parametrize("kind", KINDS)
def test_o15_chi_square_against_exact_probabilities(kind, scale):
    drawn = kind(scale).sample(Stream(KEY), 1_000_000)
    assert drawn.dtype == np.int64
    assert drawn.shape == (1_000_000,)
    assert pvalue(drawn, kind, scale) > GUARD


@pytest.mark.parametrize("scale", [3e4, 1e6, MAX_SCALE])
@pytest.mark.parametrize("kind", KINDS)
def test_o15_wide_noise_has_the_limiting_law_and_even_low_digits(kind, scale):
    drawn = kind(scale).sample(Stream(KEY), 400_000)
    law = stats.norm(scale=scale) if kind is DiscreteGaussian else stats.laplace(scale=scale)
    assert stats.kstest(drawn, law.cdf).pvalue > GUARD
    assert stats.chisquare(np.bincount(drawn % 512, minlength=512)).pvalue > GUARD


@pytest.mark.parametrize("scale", [0.5, 1.0, 8.0, 1000.0, 2.0**20])
@pytest.mark.parametrize("kind", KINDS)
def test_o15_variance_and_symmetry(kind, scale):
    drawn = kind(scale).sample(Stream(KEY), 1_000_000).astype(np.float64)
    variance = exact_variance(kind, min(scale, 1000.0)) * max(1.0, scale / 1000.0) ** 2
    spread = math.sqrt((np.mean(drawn**4) - np.mean(drawn**2) ** 2) / drawn.size)
    assert abs(np.mean(drawn**2) - variance) < 5 * spread
    assert abs(drawn.mean()) < 5 * math.sqrt(variance / drawn.size)
    below, above = int((drawn < 0).sum()), int((drawn > 0).sum())
    assert stats.binomtest(below, below + above).pvalue > GUARD


def test_o15_chi_square_sees_rounded_floats_and_a_double_zero():
    rng = np.random.default_rng(5)
    assert pvalue(np.rint(rng.normal(scale=1.0, size=200_000)), DiscreteGaussian, 1.0) < 1e-9
    assert pvalue(np.rint(rng.laplace(scale=1.0, size=200_000)), DiscreteLaplace, 1.0) < 1e-9

    class KeepsMinusZero(DiscreteGaussian):
        def _round(self, stream, count):
            words = stream.words(count)
            sign = (words & np.uint64(1)).astype(np.int64)
            return (self._coarse(words >> np.uint64(1), stream) ^ -sign) + sign

    drawn = KeepsMinusZero(8.0).sample(Stream(KEY), 400_000)
    assert pvalue(drawn, DiscreteGaussian, 8.0) < 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_o15_the_lower_digit_is_weighed(kind):
    """Inside a coarse step the lower half is likelier; without step 3 it is not."""

    class AcceptsAll(kind):
        def _accept(self, coarse, rest, coin, stream):
            return np.ones(coarse.size, dtype=np.bool_)

    scale, cell = 2.0**20, 2**14
    law = stats.norm(scale=scale) if kind is DiscreteGaussian else stats.laplace(scale=scale)
    starts = np.arange(0, 200 * 64) * cell
    share = 2 * float(np.sum(law.cdf(starts + cell / 2) - law.cdf(starts)))
    found = []
    for noise in (kind(scale), AcceptsAll(scale)):
        assert noise._bits == 14
        low = int(np.sum(np.abs(noise.sample(Stream(KEY), 6_000_000)) % cell < cell // 2))
        found.append(abs(low / 6e6 - share) / math.sqrt(0.25 / 6e6))
    assert found[0] < 4.5
    assert found[1] > 6.0


@pytest.mark.parametrize("scale", [0.5, 5.0, 100.0])
@pytest.mark.parametrize("kind", KINDS)
def test_o19_table_lookup_is_exact_on_ties_and_beside_them(kind, scale):
    noise = kind(scale)
    borders = noise._table.cumulative
    assert list(borders) == sorted(borders)
    chance = random.Random(4)
    picked = chance.sample(borders, min(len(borders), 60))
    asked = [value + step for value in picked for step in (-1, 0, 1, -(1 << LOW), 1 << LOW)]
    asked += [0, (1 << 255) - 1, *(chance.randrange(1 << 255) for _ in range(300))]
    asked += [(cell << 239) - step for cell in range(1, 1 << 16, 997) for step in (0, 1)]
    asked = [value for value in asked if 0 <= value < 1 << 255]
    for value in asked:
        upper = np.array([value >> LOW], dtype=np.uint64)
        low = (value & ((1 << LOW) - 1)).to_bytes(LOW // 8, "little")
        tied = (value >> LOW) in (noise._table.upper)
        stream = Script(low if tied else b"")
        found = int(noise._coarse(upper, stream)[0])
        assert found == sum(value >= border for border in borders)
        assert not stream.left, "a tie was settled without its low bits"


def test_o19_a_tie_on_the_first_value_of_a_guide_cell_is_seen():
    noise = DiscreteGaussian(1.0)
    noise._table = crypto.noise._table([Decimal(1), Decimal(1)])
    assert noise._table.cumulative == (1 << 254,)
    for upper, low, expected in [((1 << 62) - 1, b"", 0), (1 << 62, bytes(LOW // 8), 1)]:
        stream = Script(low)
        assert noise._coarse(np.array([upper], dtype=np.uint64), stream).tolist() == [expected]
        assert not stream.left


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("scale", "bits"), [(300, 2), (1 << 20, 14)])
def test_o19_acceptance_is_exact_where_floats_cannot_decide(kind, scale, bits):
    noise = kind(float(scale))
    assert noise._bits == bits
    # γ from 4e-13, where 1 - γ and exp(-γ) are one number to a double, to 0.02
    for coarse, rest in [(0, 1), (0, 3), (7, 2), (80, 3), (1000, 1)]:
        with localcontext() as context:  # of the test alone: the sampler brings its own
            context.prec = 150
            wide = Decimal(scale)
            gamma = Decimal(rest * (rest + (coarse << (bits + 1)))) / (2 * wide * wide)
            gamma = gamma if kind is DiscreteGaussian else rest / wide
            limit = int((-gamma).exp() * 2 ** (64 - bits + 256))
        top, low = limit >> 256, limit & ((1 << 256) - 1)
        for coin, extra in [
            (top, low - 2**10),
            (top, low + 2**10),
            (top - 1, (1 << 256) - 1),
            (top + 1, 0),
        ]:
            stream = Script(extra.to_bytes(32, "little"))
            kept = noise._accept(
                np.array([coarse]), np.array([rest]), np.array([coin], dtype=np.uint64), stream
            )
            assert bool(kept[0]) == ((coin << 256) + extra < limit)
            assert not stream.left


@pytest.mark.parametrize("kind", KINDS)
def test_o19_acceptance_far_from_the_limit_draws_nothing_and_is_right(kind):
    noise = kind(300.0)
    chance = np.random.default_rng(3)
    coarse, rest = chance.integers(0, 400, 4000), chance.integers(0, 4, 4000)
    share = np.append(chance.random(2000), 0.9 + 0.1 * chance.random(2000))
    coin = (share * 2.0**62).astype(np.uint64)
    kept = noise._accept(coarse, rest, coin, Script())
    x, start = (coarse << 2) + rest, coarse << 2
    ratio = np.exp(
        (start**2 - x**2) / (2 * 300.0**2) if kind is DiscreteGaussian else (start - x) / 300.0
    )
    assert np.array_equal(kept, share < ratio)
    assert 0.5 < kept.mean() < 1.0


@pytest.mark.parametrize(("kind", "scale"), [(k, s) for k in KINDS for s in (0.5, 6.0, 150.0)])
def test_o19_tail_bits_bound_the_distance_of_the_whole_sampler(kind, scale):
    """Rebuild the sampler's true output law in 160 digits and compare it with the exact one."""
    noise = kind(scale)
    with localcontext() as context:
        context.prec = 160
        wide, step = Decimal(scale), 1 << noise._bits
        borders = [0, *noise._table.cumulative, 1 << 255]
        reach = range(2 * step * (len(borders) - 1))
        if kind is DiscreteGaussian:
            f = [(-(x * x) / (2 * wide * wide)).exp() for x in reach]
        else:
            f = list(accumulate(reach[1:], lambda v, _: v * (-1 / wide).exp(), initial=Decimal(1)))
        law = [
            (borders[q + 1] - borders[q]) * f[q * step + r] / f[q * step]
            for q in range(len(borders) - 1)
            for r in range(step)
        ]
        law[0] /= 2
        exact = [f[0] / 2, *f[1:]]
        total = sum(law)
        whole = sum(exact)
        law += [Decimal(0)] * len(law)
        distance = sum(abs(a / total - b / whole) for a, b in zip(law, exact, strict=True)) / 2
        assert distance < Decimal(2) ** -noise.tail_bits
        assert distance > Decimal(2) ** -(noise.tail_bits + 40), "the bound says nothing"


@pytest.mark.parametrize("kind", KINDS)
def test_o19_tail_bits_hold_for_every_scale(kind):
    scales = [*np.geomspace(MIN_SCALE, 127.999, 12), 128.0, 255.999, 1e6, MAX_SCALE]
    assert min(kind(float(scale)).tail_bits for scale in scales) >= TAIL_BITS


@pytest.mark.parametrize("kind", KINDS)
def test_o19_no_draw_exceeds_the_largest(kind):
    for scale in (MIN_SCALE, 20.0, 1e5, MAX_SCALE):
        noise = kind(scale)
        assert noise.largest < 2**32
        last = (1 << 64) - 1
        words = last.to_bytes(8, "little")  # the last table row, minus
        low = b"\xff" * (LOW // 8)
        fine = ((1 << noise._bits) - 1).to_bytes(8, "little")  # all of r, coin 0
        tied = last >> 1 == int(noise._table.upper[-1])
        chunks = [words, low if tied else b"", fine if noise._bits else b""]
        assert noise._round(Script(*chunks), 1).tolist() == [-noise.largest]


@pytest.mark.parametrize("kind", KINDS)
def test_o15_the_stream_alone_decides(kind):
    first, again, other = (kind(700.0).sample(Stream(key), 40_000) for key in (KEY, KEY, KEY[::-1]))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert abs(np.corrcoef(first, other)[0, 1]) < 0.03
    assert Counter(np.diff(first) == 0)[True] < 100


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scale", [0.0, -1.0, 0.499, MAX_SCALE * 1.001, math.nan, math.inf])
def test_scales_outside_the_range_are_refused(kind, scale):
    with pytest.raises(OutOfRange, match="scale between"):
        kind(scale)


@pytest.mark.parametrize("kind", KINDS)
def test_counts(kind):
    noise = kind(10.0)
    assert noise.sample(Stream(KEY), 0).shape == (0,)
    assert noise.sample(Stream(KEY), 1).shape == (1,)
    with pytest.raises(OutOfRange):
        noise.sample(Stream(KEY), -1)


@pytest.mark.parametrize("scale", [5.0, 300.0])
def test_o15_a_shared_sampler_draws_what_one_of_its_own_does_and_keeps_nothing(scale):
    for kind in KINDS:
        shared = sampler(kind, scale)
        assert type(shared) is kind and sampler(kind, scale) is shared
        for key in (KEY, KEY[::-1], KEY):
            assert np.array_equal(
                shared.sample(Stream(key), 40_000), kind(scale).sample(Stream(key), 40_000)
            )
        for part in shared._table[1:]:
            with pytest.raises(ValueError, match="read-only"):
                part[0] = 0
    assert sampler(DiscreteGaussian, scale) is not sampler(DiscreteLaplace, scale)
    with pytest.raises(OutOfRange, match="scale between"):
        sampler(DiscreteGaussian, math.inf)
