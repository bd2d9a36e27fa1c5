"""ROC-AUC from pooled histograms: against scipy's rank statistic, by hand, and where undefined."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import mannwhitneyu

from algorithms.tasks.evaluation import total
from algorithms.tasks.scores import UNDEFINED, Ranking, RankScore

ROC, VAL, MEAN, ERROR = Ranking(1).names


def sigmoid(x):
    return (1 / (1 + np.exp(-np.asarray(x, np.float32)))).astype(np.float32)


def exact(p, y):
    """ROC-AUC as the rank statistic that it is (Hanley and McNeil, 1982)."""
    yes, no = p[y == 1].astype(np.float64), p[y == 0].astype(np.float64)
    return mannwhitneyu(yes, no, method="asymptotic").statistic / (len(yes) * len(no))


def said(scoring, p, y, *, val=False):
    """A score of test records only (or validation records only)."""
    p, y = np.asarray(p, np.float32), np.asarray(y, np.float32)
    p, y = (array[:, None] if array.ndim == 1 else array for array in (p, y))
    every = np.ones(len(y), dtype=bool)
    return scoring.count(p, y, *((every, ~every) if val else (~every, every)))


def sample(count, *, gap=1.5, spread=1.0, share=0.5, low=-0.75, seed=0):
    """Scores whose logits are normal, around `low` for negatives and `gap` above for positives."""
    rng = np.random.default_rng(seed)
    y = (rng.random(count) < share).astype(np.float32)
    return sigmoid(low + gap * y + spread * rng.normal(size=count)), y


@given(
    st.lists(st.tuples(st.floats(0, 1, width=32), st.booleans()), min_size=2, max_size=60),
    st.integers(1, 40),
)
def test_binning_errs_by_at_most_half_the_pairs_that_share_a_bin(records, bins):
    p = np.array([score for score, _ in records], np.float32)
    y = np.array([yes for _, yes in records], np.float32)
    scoring = Ranking(1, bins)
    score = said(scoring, p, y)
    if y.min() == y.max():
        assert scoring.read(score)[ROC] is None
        assert scoring.error(score) is None
    else:
        error = abs(scoring.read(score)[ROC] - exact(p, y))
        assert error <= scoring.error(score) + 1e-12
        shared = (score.test_positive * score.test_negative).sum()
        assert scoring.error(score) == pytest.approx(float(shared / (2 * y.sum() * (1 - y).sum())))


def test_the_bound_is_reached():
    """All in one bin, in perfect order: 0.5 is read where 1 is true."""
    scoring = Ranking(1, bins=1)
    score = said(scoring, [0.2, 0.8], [0, 1])
    assert (scoring.read(score)[ROC], scoring.error(score)) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("p", "y", "area"),
    [
        ([0.1, 0.2, 0.8, 0.9], [0, 0, 1, 1], 1.0),
        ([0.1, 0.2, 0.8, 0.9], [1, 1, 0, 0], 0.0),
        ([0.5, 0.5, 0.5], [0, 1, 1], 0.5),
        # pairs (yes, no): .4 > .3 and .4 < .6; .6 > .3 and .6 = .6, half: 2.5 of 4
        ([0.3, 0.6, 0.4, 0.6], [0, 0, 1, 1], 0.625),
    ],
)
def test_areas_by_hand(p, y, area):
    scoring = Ranking(1)
    found = scoring.read(said(scoring, p, y))
    assert found[ROC] == area
    assert found[MEAN] == area
    assert scoring.read(said(scoring, p, y, val=True))[VAL] == area
    assert scoring.merit(said(scoring, p, y, val=True)) == area


def test_clients_are_pooled_not_averaged():
    """Two clients that each rank perfectly, one of them with all its scores lower."""
    scoring = Ranking(1)
    low, high = (said(scoring, p, [0, 1]) for p in ([0.1, 0.2], [0.8, 0.9]))
    found = scoring.read(total([low, high]))
    assert found[ROC] == 0.75  # the higher client's negative beats the lower one's positive
    assert found[MEAN] == 1.0


def test_the_total_does_not_depend_on_who_holds_what():
    p, y = sample(600)
    scoring = Ranking(1)
    whole = said(scoring, p, y)
    shares = np.array_split(np.random.default_rng(1).permutation(600), 7)
    parts = total([said(scoring, p[s], y[s]) for s in shares])
    assert np.array_equal(parts.test_positive, whole.test_positive)
    assert scoring.read(parts)[ROC] == scoring.read(whole)[ROC]
    expected = np.mean([exact(p[s], y[s]) for s in shares])
    assert scoring.read(parts)[MEAN] == pytest.approx(expected, abs=1e-4)
    assert parts.test_clients == 7


@pytest.mark.parametrize(
    ("gap", "spread", "share", "low"),
    [(1.5, 1.0, 0.5, -0.75), (0.05, 0.1, 0.76, 1.1), (12.0, 8.0, 0.5, 0.0), (8.0, 6.0, 0.05, -9.0)],
    ids=["usual", "untrained", "overconfident", "rare"],
)
def test_a_thousand_bins_are_as_good_as_exact(gap, spread, share, low):
    p, y = sample(20_000, gap=gap, spread=spread, share=share, low=low)
    scoring = Ranking(1)
    found = scoring.read(said(scoring, p, y))[ROC]
    assert found == pytest.approx(exact(p, y), abs=1e-3)


def test_equal_parts_of_the_unit_interval_would_not_do():
    """Why the bins are what they are: scores of an overconfident model gather at 0 and 1."""
    p, y = sample(20_000, gap=12.0, spread=8.0, low=0.0)
    cells = np.minimum((p * 1000).astype(int), 999) / 1000
    assert abs(exact(cells, y) - exact(p, y)) > 0.02


@given(st.lists(st.floats(0, 1, width=32), min_size=2, max_size=30, unique=True))
def test_a_larger_score_is_never_in_a_lower_bin(scores):
    scores = np.sort(np.array(scores, np.float32))
    scoring = Ranking(1, bins=17)
    places = [int(said(scoring, [p], [1]).test_positive.argmax()) for p in scores]
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("score", "place"), [(0.0, 0), (1e-45, 9), (0.5, 500), (1.0 - 2**-24, 946), (1.0, 999)]
)
def test_certain_scores_have_their_bins(score, place):
    assert int(said(Ranking(1), [score], [1]).test_positive.argmax()) == place


def test_missing_labels_are_not_counted():
    nan = np.nan
    p = np.array([[0.1, 0.9], [0.9, 0.2], [0.5, 0.5], [0.6, 0.7]], np.float32)
    y = np.array([[0, nan], [1, 0], [nan, nan], [nan, 1]], np.float32)
    score = said(Ranking(2), p, y)
    assert score.test_positive.sum(axis=1).tolist() == [1, 1]
    assert score.test_negative.sum(axis=1).tolist() == [1, 1]
    assert score.test_count == 4
    assert Ranking(2).read(score)[ROC] == 1.0


def test_the_mean_is_over_the_labels_that_are_defined():
    p = np.array([[0.1, 0.4, 0.3], [0.9, 0.3, 0.2], [0.8, 0.2, 0.1]], np.float32)
    y = np.array([[0, 1, 1], [1, 0, 1], [0, 1, 1]], np.float32)  # the third: one class
    scoring = Ranking(3)
    found = scoring.read(said(scoring, p, y))
    assert found[ROC] == pytest.approx((1.0 + 0.5) / 2)
    assert found[MEAN] == pytest.approx(0.75)


@pytest.mark.parametrize("label", [0, 1])
def test_a_single_class_has_a_defined_result_and_a_sentence(label):
    scoring = Ranking(1)
    score = said(scoring, [0.1, 0.9], [label, label])
    assert scoring.read(score) == dict.fromkeys((ROC, VAL, MEAN, ERROR))
    assert (score.test_share, score.test_clients) == (0, 0)
    assert scoring.merit(score) is None
    assert scoring.plausible(score, 1)
    assert "undefined" in UNDEFINED


def test_a_single_class_client_still_brings_its_records():
    scoring = Ranking(1)
    both = said(scoring, [0.2, 0.6], [0, 1])
    ones = said(scoring, [0.1, 0.9], [1, 1])
    found = scoring.read(total([both, ones]))
    assert found[ROC] == pytest.approx(2 / 3)
    assert found[MEAN] == 1.0


def test_validation_and_test_are_kept_apart_and_training_is_left_out():
    p, y = np.full((6, 1), 0.5, np.float32), np.array([[1], [1], [0], [1], [0], [0]], np.float32)
    val, test = (np.isin(np.arange(6), places) for places in ([0, 2], [3, 4, 5]))
    score = Ranking(1).count(p, y, val, test)
    assert (score.val_count, score.test_count) == (2, 3)
    assert [int(part.sum()) for part in (score.val_positive, score.val_negative)] == [1, 1]
    assert [int(part.sum()) for part in (score.test_positive, score.test_negative)] == [1, 2]


@pytest.mark.parametrize(("labels", "bins"), [(1, 1000), (2, 500), (12, 83), (27, 50), (600, 50)])
def test_many_labels_have_fewer_bins(labels, bins):
    scoring = Ranking(labels)
    assert scoring.dims == {"rank_labels": labels, "rank_bins": bins}
    score = said(scoring, np.full((2, labels), 0.5), np.zeros((2, labels)))
    for field in RankScore.fields:
        assert np.shape(getattr(score, field.name)) == field.sizes(scoring.dims)


@pytest.mark.parametrize(
    "lie",
    [
        {"val_count": 39},
        {"test_count": 39},
        {"test_clients": 4, "test_share": 0},
        {"test_share": 20_001},
        {"test_positive": np.zeros((1, 1000), np.int64)},
        {"test_negative": np.zeros((1, 1000), np.int64)},
    ],
)
def test_what_nobody_honest_can_say_is_not_plausible(lie):
    scoring = Ranking(1)
    p, y = sample(40)
    every = np.ones(40, dtype=bool)
    one = scoring.count(p[:20, None], y[:20, None], every[:20], every[:20])
    two = scoring.count(p[20:, None], y[20:, None], every[20:], every[20:])
    found = vars(total([one, two]))
    assert scoring.plausible(SimpleNamespace(**found), 3)
    assert not scoring.plausible(SimpleNamespace(**{**found, **lie}), 3)


@given(st.data())
def test_what_honest_clients_say_is_plausible(data):
    labels, clients = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    scoring, scores = Ranking(labels), []
    for _ in range(clients):
        records = int(rng.integers(0, 6))
        y = rng.choice(np.array([0, 1, np.nan], np.float32), size=(records, labels))
        role = rng.integers(3, size=records)
        p = rng.random((records, labels)).astype(np.float32)
        scores.append(scoring.count(p, y, role == 1, role == 2))
    assert scoring.plausible(total(scores), clients)


@pytest.mark.parametrize("value", [np.nan, -0.1, 1.1, np.inf])
def test_what_is_no_probability_is_refused_without_its_value(value):
    with pytest.raises(FloatingPointError, match=r"lower model\.lr") as refused:
        said(Ranking(1), [0.5, value], [0, 1])
    assert str(value) not in str(refused.value).replace("training", "")


@pytest.mark.parametrize("shape", [(3, 1), (2, 2), (2,)])
def test_predictions_of_another_shape_are_refused(shape):
    none = np.zeros(2, dtype=bool)
    with pytest.raises(ValueError, match="one column a label"):
        Ranking(1).count(np.full(shape, 0.5, np.float32), np.zeros((2, 1), np.float32), none, none)


@pytest.mark.parametrize("sizes", [(0, None), (1, 0), (-1, 10)])
def test_no_labels_and_no_bins_are_refused(sizes):
    with pytest.raises(ValueError, match="labels >= 1"):
        Ranking(*sizes)
