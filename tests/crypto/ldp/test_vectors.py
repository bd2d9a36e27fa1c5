"""Vectors under noise of one's own: norm in integers, law, exact epsilon, variance."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from crypto.errors import OutOfRange
from crypto.ldp_vectors import GaussianVector, LaplaceVector, on_grid, scale_within
from crypto.noise import DiscreteGaussian, DiscreteLaplace
from crypto.samplers import Stream
from tests.crypto.ldp.laws import near
from tests.crypto.test_noise import GUARD, exact_variance, pvalue

KEY = bytes(range(32))


@pytest.mark.parametrize("norm", ["l1", "l2"])
def test_o17_no_input_is_longer_than_the_clip_in_integers(norm: str) -> None:
    rng = np.random.default_rng(1)
    order = 1 if norm == "l1" else 2
    inputs = [rng.standard_normal(30) * 10.0 ** rng.uniform(-8, 300) for _ in range(200)]
    inputs += [np.full(30, 1e308), np.eye(1, 30)[0], np.full(30, np.nan), np.full(30, np.inf)]
    for given in inputs:
        for levels in (1, 100, 1 << 16):
            found = on_grid(given, 1.0, levels, norm)  # type: ignore[arg-type]
            assert sum(abs(int(v)) ** order for v in found) <= levels**order
    assert on_grid(np.array([0.25, -0.5]), 1.0, 8).tolist() == [2, -4]
    assert not on_grid(np.full(3, np.nan), 1.0, 8).any()


@pytest.mark.parametrize("epsilon", [0.1, 1, 4, 8, 1 / 3])
def test_laplace_keeps_to_epsilon_as_fractions(epsilon: float) -> None:
    mechanism = LaplaceVector.within(4, 1.0, epsilon)
    assert mechanism.epsilon <= Fraction(epsilon)
    smaller = math.nextafter(mechanism.scale, 0.0)
    assert Fraction(2 * mechanism.levels) / Fraction(smaller) > Fraction(epsilon)
    halved = LaplaceVector(4, 1.0, mechanism.scale / 2)
    assert halved.epsilon > Fraction(epsilon)


def test_laplace_likelihoods_of_every_pair_on_a_small_domain() -> None:
    """ln P(y|x) - ln P(y|x') = (‖y-x'‖ - ‖y-x‖)/t: the maximum over all is 2 levels / t."""
    levels, epsilon = 3, Fraction(2)
    scale = Fraction(scale_within(epsilon, levels))
    values = [(a, b) for a in range(-3, 4) for b in range(-3, 4) if abs(a) + abs(b) <= levels]
    messages = [(a, b) for a in range(-9, 10) for b in range(-9, 10)]
    worst = max(
        Fraction(
            sum(abs(y - o) for y, o in zip(message, other, strict=True))
            - sum(abs(y - v) for y, v in zip(message, value, strict=True))
        )
        / scale
        for value in values for other in values for message in messages
    )  # fmt: skip
    assert worst == 2 * levels / scale <= epsilon


@pytest.mark.parametrize("count", [100_000, pytest.param(1_000_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", [GaussianVector, LaplaceVector])
def test_o15_what_is_added_has_the_exact_law(kind: type, count: int) -> None:
    mechanism = kind(count, 1.0, 40.0, 64)
    levels = np.zeros(count, dtype=np.int64)
    levels[0] = 64
    drawn = mechanism.of_levels(levels, Stream(KEY)) - levels
    law = DiscreteGaussian if kind is GaussianVector else DiscreteLaplace
    assert pvalue(drawn, law, 40.0) > GUARD
    halved = kind(count, 1.0, 20.0, 64).of_levels(levels, Stream(KEY)) - levels
    assert pvalue(halved, law, 40.0) < GUARD, "halved noise is not told apart"
    assert near(float(drawn.astype(float).var()), mechanism.of_noise())


@pytest.mark.parametrize("scale", [0.6, 1.0, 3.0, 50.0])
def test_variances_are_the_closed_form(scale: float) -> None:
    gaussian, laplace = GaussianVector(5, 2.0, scale, 16), LaplaceVector(5, 2.0, scale, 16)
    assert near(gaussian.of_noise(), exact_variance(DiscreteGaussian, scale), 1e-9)
    assert near(laplace.of_noise(), exact_variance(DiscreteLaplace, scale), 1e-9)
    assert near(gaussian.variance(10), 5 * gaussian.of_noise() * (2 / 16) ** 2 / 10, 1e-12)


def test_the_mean_of_many_clients_comes_near_the_truth() -> None:
    mechanism, stream = GaussianVector(20, 1.0, 4096.0, 4096), Stream(KEY)
    vector = np.linspace(-0.2, 0.2, 20)
    drawn = [mechanism.encode(vector, stream) for _ in range(2000)]
    error = float(np.sum((mechanism.mean(drawn) - vector) ** 2))
    assert 0.2 < error / mechanism.variance(2000) < 3
    assert mechanism.unpack(mechanism.pack(drawn[0])).tolist() == drawn[0].tolist()


def test_concentration_is_for_any_two_vectors() -> None:
    """Two vectors of the clip norm with opposite signs are twice as far apart as one from zero."""
    mechanism = GaussianVector(3, 1.0, 131072.0)
    far = on_grid(np.eye(3)[0], 1.0, mechanism.levels) - on_grid(-np.eye(3)[0], 1.0, 1 << 16)
    assert int(far @ far) == mechanism.sensitivity**2
    assert mechanism.rho == pytest.approx(0.5)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_a_clip_or_epsilon_that_is_none_is_refused(bad: float) -> None:
    with pytest.raises(OutOfRange):
        GaussianVector(3, bad, 100.0)
    with pytest.raises(OutOfRange):
        scale_within(bad, 16)
