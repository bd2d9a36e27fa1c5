"""Lower bounds of epsilon: what the scores of a distinguishing attack prove."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from audits.attacks._methods.statistics import Bound, ceiling, claim, lower_bound, untested
from crypto.noise import DiscreteGaussian, DiscreteLaplace
from crypto.samplers import Stream
from protocols.privacy.accounting import gaussian_epsilon

Numbers = npt.NDArray[np.float64]


def stream(seed: int = 1) -> Stream:
    return Stream(np.random.default_rng(seed).bytes(32))


@pytest.mark.parametrize(
    ("trials", "wanted"), [(20, 1.60), (100, 3.28), (500, 4.91), (1000, 5.60), (5000, 7.21)]
)
def test_ceiling_of_a_perfect_attack(trials: int, wanted: float) -> None:
    assert ceiling(trials) == pytest.approx(wanted, abs=0.005)


def test_a_perfect_attack_reaches_the_ceiling_and_no_more() -> None:
    found = lower_bound(np.ones(400), np.zeros(400), delta=1e-5)
    assert found.epsilon == pytest.approx(ceiling(200, delta=1e-5))
    assert found.ceiling == pytest.approx(found.epsilon)
    assert found.trials == 400


def draw(sampler: DiscreteGaussian | DiscreteLaplace, source: Stream, runs: int) -> Numbers:
    return sampler.sample(source, runs).astype(np.float64)


def laplace(seed: int, runs: int, scale: float = 1000.0) -> tuple[Numbers, Numbers]:
    """Return exact log-likelihood ratios for a shift of 1,000 under noise of another scale."""
    sampler, source = DiscreteLaplace(scale), stream(seed)

    def ratio(values: Numbers) -> Numbers:
        return np.asarray((np.abs(values) - np.abs(values - 1000.0)) / 1000.0)

    return ratio(draw(sampler, source, runs) + 1000.0), ratio(draw(sampler, source, runs))


@pytest.mark.parametrize("seed", range(5))
def test_laplace_of_epsilon_one_is_proved_to_four_fifths(seed: int) -> None:
    assert 0.8 < lower_bound(*laplace(seed, 20_000), delta=0.0).epsilon <= 1.0
    assert lower_bound(*laplace(seed, 20_000, 500.0), delta=0.0).epsilon > 1.5  # half the noise


def test_equal_inputs_prove_nothing_in_either_reading() -> None:
    sampler, source = DiscreteGaussian(1000.0), stream()
    positive = 0
    for _ in range(100):
        one, other = (draw(sampler, source, 2000) for _ in range(2))
        for reading in ("any mechanism", "gaussian"):
            found = lower_bound(one, other, delta=1e-5, reading=reading)
            positive += found.epsilon > 0
    assert positive <= 6  # a bound that held with 95 % only would be there ten times


def test_the_threshold_is_chosen_on_other_runs_than_the_bound() -> None:
    there, none = np.zeros(4000), np.zeros(4000)
    there[:2000:2] = 1.0  # a leak in the first half, of which the second shows nothing
    assert lower_bound(there, none, delta=0.0).epsilon == 0
    assert lower_bound(there[::-1], none, delta=0.0).epsilon == 0


@pytest.mark.parametrize("mu", [0.5, 1.0, 2.0])
def test_gaussian_noise_is_proved_closely_when_read_as_such(mu: float) -> None:
    sampler, source = DiscreteGaussian(1000.0), stream(7)
    there = draw(sampler, source, 20_000) + 1000.0 * mu
    none, true = draw(sampler, source, 20_000), gaussian_epsilon(mu, 1e-5)
    plain = lower_bound(there, none, delta=1e-5).epsilon
    read = lower_bound(there, none, delta=1e-5, reading="gaussian").epsilon
    assert plain < read <= true
    assert read > 0.75 * true


def test_a_loss_in_the_other_direction_counts() -> None:
    rng = np.random.default_rng(0)
    there, none = rng.random(20_000), rng.random(20_000)
    assert lower_bound(there, none, delta=0.0).epsilon == 0
    low = np.where(there < 0.2, there + 0.5, there)  # a low score is never of the record
    assert lower_bound(low, none, delta=0.0).epsilon > 5
    high = np.where(none > 0.8, none - 0.5, none)  # a high score is always of the record
    assert lower_bound(there, high, delta=0.0).epsilon > 5


def test_delta_is_taken_off() -> None:
    there = np.zeros(20_000)
    there[::50] = 1.0  # a leak of two in a hundred, and nothing else
    none = np.zeros(20_000)
    assert lower_bound(there, none, delta=0.0).epsilon > 3
    assert lower_bound(there, none, delta=0.03).epsilon == 0


@pytest.mark.parametrize("runs", [(3, 3), (8, 9)])
def test_a_bound_needs_runs_on_both_sides(runs: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="equally many"):
        lower_bound(np.zeros(runs[0]), np.zeros(runs[1]), delta=0.0)


@pytest.mark.parametrize(
    ("proved", "able", "status"),
    [(2.1, True, "falsified"), (2.1, False, "falsified"), (1.9, True, "not_falsified"),
     (1.9, False, "untested")],
)  # fmt: skip
def test_a_claim_is_falsified_by_a_proof_and_untested_without_power(
    proved: float, able: bool, status: str
) -> None:
    found = claim("a claim", 2.0, "client", Bound(proved, 3.0, 100), able=able)
    assert found.status == status
    assert (found.epsilon_claim, found.epsilon_lb, found.ceiling) == (
        "2.0000", f"{proved:.4f}", "3.0000",
    )  # fmt: skip


def test_figures_are_rounded_against_the_claim() -> None:
    found = claim("a claim", 1.00001, "client", Bound(0.99999, 2.99999, 10), able=True)
    assert (found.epsilon_claim, found.epsilon_lb) == ("1.0001", "0.9999")
    assert untested("a claim", 1.0, "client").status == "untested"
