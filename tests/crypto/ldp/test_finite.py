"""Randomisers with finitely many messages: exact epsilon by enumeration, law, mean, variance."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from itertools import chain, combinations
from typing import Any

import numpy as np
import pytest

from crypto.errors import NotCanonical, OutOfRange
from crypto.ldp import (
    MAX_EPSILON,
    DrawnCategory,
    FiniteRandomiser,
    Piecewise,
    RandomisedResponse,
    Several,
    UnaryEncoding,
    odds_within,
)
from crypto.ldp_vectors import Sqkr
from crypto.samplers import Stream
from tests.crypto.ldp.laws import below_exp, near, pvalue, worst_ratio

KEY = bytes(range(32))
GUARD = 1e-6
EPSILONS = [Fraction(1, 10), 0.5, 1, 4, 8, 16]
SETS = [s for size in range(3) for s in combinations(range(4), size)]


def finite(epsilon: Any) -> list[tuple[FiniteRandomiser, list[Any]]]:
    """Return every finite randomiser with all values of a small domain."""
    return [
        (RandomisedResponse(2, epsilon), [0, 1]),
        (RandomisedResponse(7, epsilon), list(range(7))),
        (UnaryEncoding(4, epsilon), [(c,) for c in range(4)]),
        (UnaryEncoding(4, epsilon, items=2), SETS),
        (Piecewise(1.0, epsilon, levels=6), list(range(-6, 7))),
        (Piecewise(1.0, epsilon, levels=1), [-1, 0, 1]),
        (DrawnCategory(3, epsilon), [(1, 0, 0), (0, 9, 1), (0, 2, 0), (1, 1, 1)]),
        (
            DrawnCategory(8, epsilon),
            [[1, *[0] * 7], [0, 9, 1, *[0] * 5], [0, 2, *[0] * 6], [1] * 8],
        ),
    ]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("which", range(8))
def test_every_pair_of_values_keeps_to_epsilon_exactly(which: int, epsilon: Any) -> None:
    mechanism, values = finite(epsilon)[which]
    worst = worst_ratio(mechanism, values)
    assert below_exp(worst, mechanism.epsilon)
    # and it is not just safe: nearly all of epsilon is used
    assert not below_exp(worst, mechanism.epsilon * Fraction(99, 100))


@pytest.mark.parametrize("epsilon", [1, 4, 8])
@pytest.mark.parametrize("which", range(8))
def test_control_halved_noise_breaks_the_claim(which: int, epsilon: int) -> None:
    """A randomiser that spends twice as much is not one of half of it."""
    mechanism, values = finite(2 * epsilon)[which]
    assert not below_exp(worst_ratio(mechanism, values), Fraction(epsilon))


def test_odds_are_below_the_exponential_and_as_close_as_the_grid() -> None:
    for epsilon in [Fraction(k, 7) for k in range(1, 7 * MAX_EPSILON + 1, 5)] + [0.1, MAX_EPSILON]:
        odds = odds_within(epsilon)
        assert below_exp(odds.ratio, Fraction(epsilon))
        assert not below_exp(odds.ratio + Fraction(1, 1 << 24), Fraction(epsilon))


@pytest.mark.parametrize("bad", [0, -1, 25, 2.0**-30])
def test_an_epsilon_that_cannot_be_drawn_is_refused(bad: float) -> None:
    with pytest.raises(OutOfRange, match="epsilon of one message"):
        odds_within(bad)


def draws(mechanism: FiniteRandomiser, value: Any, count: int) -> Counter[tuple[int, ...]]:
    stream, encode = Stream(KEY), mechanism.encode
    if isinstance(mechanism, Piecewise):
        encode = mechanism.of_level
    return Counter(tuple(encode(value, stream).tolist()) for _ in range(count))


COUNTS = [10_000, pytest.param(1_000_000, marks=pytest.mark.long)]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("epsilon", [0.5, 3])
@pytest.mark.parametrize("which", [*range(5), 6, 7])
def test_o15_messages_have_the_exact_law(which: int, epsilon: float, count: int) -> None:
    mechanism, values = finite(epsilon)[which]
    law = mechanism.law(values[1])
    assert pvalue(draws(mechanism, values[1], count), law) > GUARD
    wrong = finite(epsilon * 1.5)[which][0].law(values[1])
    if wrong.keys() == law.keys():  # control: the law of another epsilon is told apart
        assert pvalue(draws(mechanism, values[1], count), wrong) < GUARD


@pytest.mark.parametrize("epsilon", [1, pytest.param(4, marks=pytest.mark.long)])
def test_means_are_unbiased_and_variances_are_the_closed_form(epsilon: int) -> None:
    count, stream = 30_000, Stream(KEY)
    for mechanism, value, truth in (
        (RandomisedResponse(5, epsilon), 3, np.eye(5)[3]),
        (UnaryEncoding(6, epsilon), (2,), np.eye(6)[2]),
        (UnaryEncoding(6, epsilon, items=2), (2, 4), np.eye(6)[2] + np.eye(6)[4]),
        (Piecewise(3.0, epsilon), -3.0, np.array([-3.0])),
        (Piecewise(0.5, epsilon, centre=0.5), 1.0, np.array([1.0])),
        (DrawnCategory(4, epsilon), np.full(4, 3.0), np.full(4, 0.25)),
        (DrawnCategory(30, epsilon), np.ones(30), np.full(30, 1 / 30)),
    ):
        drawn = [mechanism.encode(value, stream) for _ in range(count)]
        found = np.array([mechanism.decode(one) for one in drawn])
        assert near(float(found.var(axis=0).sum()), mechanism.variance(1))
        assert np.sum((mechanism.mean(drawn) - truth) ** 2) < 12 * mechanism.variance(count)
        assert near(mechanism.variance(50), mechanism.variance(1) / 50, 1e-9)


def test_the_variance_of_a_bounded_number_is_exact() -> None:
    for epsilon in (0.5, 2, 6):
        mechanism = Piecewise(1.0, epsilon, levels=40)
        law = mechanism.law(40)
        estimate = {y: float(mechanism.decode(np.array(y))[0]) for y in law}
        mean = sum(float(chance) * estimate[y] for y, chance in law.items())
        second = sum(float(chance) * estimate[y] ** 2 for y, chance in law.items())
        assert near(mean, 1.0, 1e-9)
        assert near(second - mean**2, mechanism.variance(1), 1e-9)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e300, -1e300])
def test_no_value_is_refused(bad: float) -> None:
    """A refusal would tell of the value."""
    stream = Stream(KEY)
    assert abs(int(Piecewise(1.0, 1).encode(bad, stream)[0])) <= Piecewise(1.0, 1).high
    vector = np.full(9, bad)
    assert Sqkr(9, 1.0, 2, KEY).encode(vector, stream).size
    assert RandomisedResponse(3, 1).encode(99, stream)[0] in (0, 1, 2)
    assert UnaryEncoding(3, 1).encode([0, 1, 2, 77, -4], stream).size == 3
    assert DrawnCategory(3, 1).encode(np.full(3, bad), stream)[0] in (0, 1, 2)


def test_a_client_without_weights_draws_among_all() -> None:
    """What it then says is the same whatever else it holds."""
    mechanism, stream = DrawnCategory(4, 16), Stream(KEY)
    for weights in (np.zeros(4), np.full(4, -1.0), np.full(4, np.nan), np.ones(7)):
        told = [mechanism.drawn(weights, stream) for _ in range(4000)]
        assert np.all(np.abs(np.bincount(told, minlength=4) / 4000 - 0.25) < 0.05)
    one = [mechanism.drawn([0.0, 1e-300, 0.0, 0.0], stream) for _ in range(50)]
    assert set(one) == {1}


@pytest.mark.parametrize(("categories", "epsilon"), [(7, 1), (7, 4), (1682, 1), (1682, 8)])
def test_a_category_is_told_by_what_errs_less(categories: int, epsilon: int) -> None:
    ways = RandomisedResponse(categories, epsilon), UnaryEncoding(categories, epsilon)
    told = DrawnCategory(categories, epsilon).told
    assert told.variance(1) == min(way.variance(1) for way in ways)


def several(epsilon: Fraction) -> Several:
    half = epsilon / 2
    return Several([(3, DrawnCategory(3, half)), (1, Piecewise(1.0, half, levels=2))])


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(4)])
def test_several_values_of_a_message_spend_together(epsilon: Fraction) -> None:
    """The exact law is the product; with a whole epsilon for each (control) the claim breaks."""

    def ratio(made: Several) -> Fraction:
        found = Fraction(1)
        for (_, one), values in zip(made.parts, ([(1, 0, 0), (0, 0, 1)], [-2, 2]), strict=True):
            found *= worst_ratio(one, values)
        return found

    made = several(epsilon)
    assert made.epsilon == epsilon and below_exp(ratio(made), epsilon)
    assert not below_exp(ratio(several(2 * epsilon)), epsilon)


def test_several_values_come_back_as_they_were_cut() -> None:
    made, stream = several(Fraction(16)), Stream(KEY)
    value = np.array([0.0, 1.0, 0.0, -1.0])
    drawn = [made.encode(value, stream) for _ in range(3000)]
    assert np.allclose(made.mean(drawn), value, atol=0.02)
    data = made.pack(drawn[0])
    assert len(data) == made.size and made.unpack(data).tolist() == drawn[0].tolist()
    for bad in (b"", data + b"\0", bytes([255]) * made.size):
        with pytest.raises(NotCanonical):
            made.unpack(bad)
    with pytest.raises(OutOfRange):
        Several([])


def test_a_set_that_is_too_large_spends_no_more() -> None:
    """Of a larger set so many are drawn as the proof counts with."""
    mechanism, stream = UnaryEncoding(6, 8, items=1), Stream(KEY)
    told = np.mean([mechanism.encode(range(6), stream) for _ in range(4000)], axis=0)
    assert np.all(told < 0.5 / 6 + 0.03)  # each is kept by one in six, and then by one in two


@pytest.mark.parametrize("drawn", [20_000, pytest.param(1_000_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("epsilon", [1, 4, 8])
def test_sqkr_is_randomised_response_given_what_it_tells(epsilon: int, drawn: int) -> None:
    """For any places, any two vectors are as far apart as the symbols' law is."""
    mechanism = Sqkr(20, 1.0, epsilon, KEY, bits=3)
    assert below_exp(worst_ratio(mechanism.told, range(8)), Fraction(epsilon))
    stream, places = Stream(KEY), np.array([5, 0, 31], dtype=np.int64)
    counts: Counter[tuple[int, ...]] = Counter()
    for _ in range(drawn):
        message = mechanism.of_bits(places, np.array([1, 0, 1]), stream)
        assert (message >> 1).tolist() == places.tolist()
        counts[(int(((message & 1) << np.arange(3)).sum()),)] += 1
    assert pvalue(counts, mechanism.told.law(5)) > GUARD


@pytest.mark.parametrize("epsilon", [1, 4, 8])
def test_sqkr_estimates_the_mean_within_its_variance(epsilon: int) -> None:
    rng, stream, count = np.random.default_rng(3), Stream(KEY), 8_000
    vector = rng.normal(size=40)
    vector /= np.linalg.norm(vector)
    mechanism = Sqkr(40, 1.0, epsilon, KEY)
    drawn = [mechanism.encode(vector, stream) for _ in range(count)]
    errors = [float(np.sum((mechanism.decode(one) - vector) ** 2)) for one in drawn]
    assert near(float(np.mean(errors)), mechanism.variance(1))
    assert np.sum((mechanism.mean(drawn) - vector) ** 2) < 3 * mechanism.variance(count)
    places = np.concatenate([one >> 1 for one in drawn])
    assert Counter((int(p),) for p in places).keys() == {(p,) for p in range(64)}


def test_a_long_vector_costs_few_bytes() -> None:
    mechanism = Sqkr(184_391, 1.0, 8, KEY)
    message = mechanism.encode(np.ones(184_391), Stream(KEY))
    assert mechanism.size == len(mechanism.pack(message)) == 19


@pytest.mark.parametrize("which", range(8))
def test_messages_are_packed_to_one_size_and_back(which: int) -> None:
    mechanism, values = finite(1)[which]
    for value in values:
        message = (
            mechanism.of_level(value, Stream(KEY))
            if isinstance(mechanism, Piecewise)
            else mechanism.encode(value, Stream(KEY))
        )
        data = mechanism.pack(message)
        assert len(data) == mechanism.size
        assert mechanism.unpack(data).tolist() == message.tolist()
    full = bytes([255] * mechanism.size)
    for bad in (b"", bytes(mechanism.size + 1), full):
        possible = bad == full and mechanism.size * 8 == mechanism.length * mechanism.width
        if possible and mechanism.high - mechanism.low + 1 == 1 << mechanism.width:
            continue
        with pytest.raises(NotCanonical):
            mechanism.unpack(bad)


def test_bad_parameters_are_refused() -> None:
    for make in (
        lambda: RandomisedResponse(1, 1), lambda: UnaryEncoding(3, 1, items=4),
        lambda: UnaryEncoding(3, 1, items=0), lambda: Piecewise(0.0, 1),
        lambda: Piecewise(float("inf"), 1), lambda: Sqkr(3, 0.0, 1, KEY),
        lambda: Sqkr(3, 1.0, 1, KEY, bits=40), lambda: Sqkr(0, 1.0, 1, KEY),
    ):  # fmt: skip
        with pytest.raises(OutOfRange):
            make()
    assert list(chain(SETS))  # the domain of sets is not empty
