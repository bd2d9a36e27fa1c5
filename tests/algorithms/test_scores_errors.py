"""Errors of ratings: exact counts that sum to what numpy computes, and totals that cannot lie."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.tasks.evaluation import total
from algorithms.tasks.scores import Errors, ErrorScore, mean_reference
from crypto.samplers import Stream
from protocols.disclosures.sum.layout import SumLayout
from protocols.errors import UnfitMessage
from protocols.policy.guards import Clip, Quantise

SCALES = [(1.0, 5.0), (0.5, 4.0), (0.0, 1.0), (1.0, 100.0)]


@st.composite
def cohorts(draw):
    """A scale and some clients' (predictions, ratings, val, test), any of them empty."""
    lowest, highest = draw(st.sampled_from(SCALES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    clients = []
    for size in draw(st.lists(st.integers(0, 40), min_size=1, max_size=5)):
        predictions, rating = rng.uniform(lowest, highest, (2, size)).astype(np.float32)
        if draw(st.booleans()):  # the largest errors there are
            predictions, rating = np.full(size, lowest, "f4"), np.full(size, highest, "f4")
        role = rng.random(size)
        clients.append((predictions, rating, role < 0.3, role > 0.6))
    return (lowest, highest), clients


def scored(scale, clients):
    return total([Errors(*scale).count(*client) for client in clients])


def pooled(clients, split):
    return np.concatenate(
        [(client[0].astype(float) - client[1])[client[split]] for client in clients]
    )


@given(cohorts())
def test_totals_give_the_pooled_errors_to_within_rounding(cohort):
    (lowest, highest), clients = cohort
    found = Errors(lowest, highest).read(scored(*cohort))
    span = highest - lowest
    for name, split in (("val", 2), ("test", 3)):
        errors = pooled(clients, split)
        if not len(errors):
            assert found[f"{name}_mae"] is found[f"{name}_rmse"] is None
            continue
        slack = span * len(clients) / (20_000 * len(errors)) + 1e-6
        assert found[f"{name}_mae"] == pytest.approx(np.abs(errors).mean(), abs=slack)
        assert found[f"{name}_rmse"] ** 2 == pytest.approx(
            np.square(errors).mean(), abs=span * slack
        )


@given(cohorts())
def test_the_clients_mean_counts_every_client_alike(cohort):
    (lowest, highest), clients = cohort
    of_each = [np.abs((c[0].astype(float) - c[1])[c[3]]).mean() for c in clients if c[3].any()]
    found = Errors(lowest, highest).read(scored(*cohort))["test_mae_client_mean"]
    if of_each:
        assert found == pytest.approx(np.mean(of_each), abs=(highest - lowest) * 1.1e-4)
    else:
        assert found is None


@given(cohorts())
def test_honest_totals_are_plausible_and_lie_below_the_documented_bound(cohort):
    scale, clients = cohort
    found = scored(*cohort)
    assert Errors(*scale).plausible(found, len(clients))
    for split, name in ((2, "val"), (3, "test")):
        records = sum(int(client[split].sum()) for client in clients)
        assert getattr(found, f"{name}_absolute") <= 10_000 * records
        assert getattr(found, f"{name}_square") <= getattr(found, f"{name}_absolute") + len(clients)


HONEST = ErrorScore(
    val_absolute=40_000,
    val_square=20_000,
    val_count=20,
    test_absolute=60_000,
    test_square=30_000,
    test_count=30,
    test_share=6_000,
    test_clients=3,
)


@pytest.mark.parametrize(
    "lie",
    [
        {"val_absolute": 200_001, "val_square": 200_000},  # errors above the whole scale
        {"val_square": 40_004},  # squares above the errors
        {"val_square": 7_990},  # squares below what these errors have at least: 8,000
        {"test_square": 60_004},
        {"test_square": 11_990},
        {"test_absolute": 300_001, "test_square": 300_000},
        {"val_count": 0},
        {"test_count": 0},
        {"test_clients": 4},
        {"test_count": 2, "test_absolute": 2_000, "test_square": 200},
        {"test_share": 30_001},
        {"test_clients": 0},
    ],
)
def test_contradicting_totals_are_not_plausible(lie):
    errors = Errors(1.0, 5.0)
    assert errors.plausible(HONEST, 3)
    assert not errors.plausible(replace(HONEST, **lie), 3)


def test_the_sums_stay_exact_counts_up_to_the_documented_number_of_records():
    layout = SumLayout([ErrorScore], Clip(), Quantise(), {})
    for records, fits in ((429_496, True), (429_497, False)):
        worst, nobody = np.ones(records, bool), np.zeros(records, bool)
        ratings = np.full(records, 5.0, "f4"), np.full(records, 1.0, "f4")
        score = Errors(1.0, 5.0).count(*ratings, nobody, worst)
        assert score.test_absolute == score.test_square == 10_000 * records
        if fits:
            layout.encode([score], Stream(bytes(32)))
        else:
            with pytest.raises(UnfitMessage, match="exact count below"):
                layout.encode([score], Stream(bytes(32)))


def test_merit_prefers_the_smaller_validation_rmse_and_nothing_is_worst():
    errors = Errors(1.0, 5.0)
    better = replace(HONEST, val_square=10_000)
    assert errors.merit(better) > errors.merit(HONEST) == -errors.read(HONEST)["val_rmse"]
    nothing = ErrorScore(**dict.fromkeys(asdict(HONEST), 0))
    assert errors.merit(nothing) is None
    assert errors.plausible(nothing, 3)
    assert set(errors.read(nothing).values()) == {None}
    assert tuple(errors.read(nothing)) == errors.names


def test_errors_are_read_in_units_of_a_rating():
    found = Errors(1.0, 5.0).read(HONEST)
    assert found["val_mae"] == pytest.approx(4 * 4 / 20)
    assert found["test_rmse"] == pytest.approx(4 * math.sqrt(3 / 30))
    assert found["test_mae_client_mean"] == pytest.approx(4 * 0.6 / 3)


SENTINEL = 4242.0


@pytest.mark.parametrize(
    ("predictions", "match"),
    [
        ([SENTINEL] * 3, "one entry a rating"),
        ([SENTINEL, np.nan], "NaN or infinity"),
        ([SENTINEL, np.inf], "NaN or infinity"),
    ],
)
def test_unfit_predictions_are_refused_mutely(predictions, match):
    mask = np.ones(2, bool)
    with pytest.raises(ValueError, match=match) as refused:
        Errors(1.0, 5.0).count(np.array(predictions, "f4"), np.ones(2, "f4"), mask, ~mask)
    assert "4242" not in str(refused.value)


def test_a_scale_without_range_is_refused():
    with pytest.raises(ValueError, match="below the highest"):
        Errors(5.0, 5.0)


@given(st.integers(1, 50), st.integers(1, 50), st.integers(0, 2**32))
def test_predict_the_mean_is_numpys(trained, tested, seed):
    rng = np.random.default_rng(seed)
    train, test = (rng.integers(1, 6, size).astype(np.float32) for size in (trained, tested))
    mae, rmse = mean_reference(train, test)
    off = test - train.mean(dtype=float)
    assert mae == pytest.approx(np.mean(np.abs(off)))
    assert rmse == pytest.approx(np.sqrt(np.mean(off**2)))


def test_predict_the_mean_needs_ratings_on_both_sides():
    some, none = np.ones(3, "f4"), np.ones(0, "f4")
    for train, test in ((some, none), (none, some)):
        with pytest.raises(ValueError, match="at least one"):
            mean_reference(train, test)


def test_a_score_says_nothing_in_its_representation():
    assert "40000" not in repr(HONEST)
