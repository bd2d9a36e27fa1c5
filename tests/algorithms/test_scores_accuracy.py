"""Accuracy as exact counts: what a client says, what is read from totals, what cannot be true."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms.tasks.evaluation import total
from algorithms.tasks.scores import SCORING, Score
from protocols.messages import values


def said(predicted, y, val, test, classes=3):
    rows = np.eye(classes, dtype=np.float32)[np.array(predicted)]
    masks = (np.isin(np.arange(len(y)), mask) for mask in (val, test))
    return SCORING.count(rows, np.array(y), *masks)


def test_one_client_by_hand():
    # right: records 0, 2, 3; validation 0 and 1; test 2, 3 and 4
    score = said([0, 1, 2, 0, 1], [0, 2, 2, 0, 2], val=[0, 1], test=[2, 3, 4])
    assert (score.val_correct, score.val_count) == (1, 2)
    assert (score.test_correct, score.test_count) == (2, 3)
    assert (score.test_share, score.test_clients) == (6667, 1)
    found = SCORING.read(score)
    assert tuple(found) == SCORING.names
    assert found["test_accuracy"] == pytest.approx(2 / 3)
    assert found["val_accuracy"] == SCORING.merit(score) == 0.5
    assert found["test_accuracy_client_mean"] == 0.6667


def test_the_clients_mean_is_unweighted_and_the_pooled_accuracy_is_not():
    large = said([0] * 9, [0] * 9, val=[], test=range(9))
    small = said([1], [0], val=[], test=[0])
    idle = said([0], [0], val=[0], test=[])
    found = SCORING.read(total([large, small, idle]))
    assert found["test_accuracy"] == pytest.approx(0.9)
    assert found["test_accuracy_client_mean"] == 0.5
    assert (idle.test_share, idle.test_clients) == (0, 0)


def test_no_records_give_no_number_and_no_merit():
    score = said([0], [1], val=[], test=[])
    assert set(SCORING.read(score).values()) == {None} and SCORING.merit(score) is None
    assert SCORING.shares(score) == (0.0, 0.0)


def test_the_first_of_equal_maxima_counts():
    rows, here = np.full((2, 3), 1 / 3, np.float32), np.array([True, True])
    assert SCORING.count(rows, np.array([0, 1]), ~here, here).test_correct == 1


@pytest.mark.parametrize("shape", [(2, 3), (3,), (3, 3, 1)])
def test_predictions_of_another_shape_are_refused(shape):
    none = np.zeros(3, dtype=bool)
    with pytest.raises(ValueError, match="one row a record"):
        SCORING.count(np.zeros(shape, np.float32), np.zeros(3, np.int64), none, none)


@given(st.lists(st.tuples(*[st.integers(0, 2)] * 3), min_size=1, max_size=40), st.integers(1, 4))
def test_what_honest_clients_say_is_plausible(records, clients):
    """Each record: predicted class, true class, role (training, validation, test)."""
    shares = [records[k::clients] for k in range(clients)]
    scores = [
        said(
            [r[0] for r in share],
            [r[1] for r in share],
            [k for k, r in enumerate(share) if r[2] == 1],
            [k for k, r in enumerate(share) if r[2] == 2],
        )
        for share in shares
        if share
    ]
    found = total(scores)
    assert SCORING.plausible(found, len(scores))
    assert found.test_count == sum(r[2] == 2 for r in records)
    assert found.test_correct == sum(r[2] == 2 and r[0] == r[1] for r in records)


@pytest.mark.parametrize(
    "lie",
    [
        {"val_correct": 6},
        {"test_correct": 11},
        {"test_clients": 4},
        {"test_share": 20_001},
    ],
)
def test_what_nobody_honest_can_say_is_not(lie):
    fair = {
        "val_correct": 3,
        "val_count": 5,
        "test_correct": 7,
        "test_count": 10,
        "test_share": 14_000,
        "test_clients": 2,
    }
    assert SCORING.plausible(SimpleNamespace(**fair), 3)
    assert not SCORING.plausible(SimpleNamespace(**{**fair, **lie}), 3)


def test_a_score_is_six_numbers_and_mute():
    assert [field.shape for field in Score.fields] == [()] * 6
    assert SCORING.kind is Score
    assert not SCORING.dims
    assert "7" not in repr(said([0], [0], val=[0], test=[]))


def test_one_record_moves_no_field_by_more_than_the_score_declares() -> None:
    """Noise on counts rests on it; one test record may move a client's whole accuracy."""
    rng, widest = np.random.default_rng(5), 0
    moves = {field.name: field.moves for field in Score.fields}
    for size in (1, 2, 9):
        predictions = rng.random((size, 3)).astype(np.float32)
        y, part = rng.integers(3, size=size), rng.integers(3, size=size)
        part[0] = 2
        whole = values(SCORING.count(predictions, y, part == 1, part == 2))
        for gone in range(size):
            kept = np.arange(size) != gone
            split = part[kept]
            less = values(SCORING.count(predictions[kept], y[kept], split == 1, split == 2))
            for name, value in whole.items():
                assert abs(value - less[name]) <= moves[name], name
                widest = max(widest, abs(value - less[name]) if name == "test_share" else 0)
    assert widest > 1  # control: a bound of one would not hold for the share


def test_totals_of_one_score_under_two_weights_tell_a_single_clients_as_limitations_say():
    clients = [said([0] * 8, [0] * wrong + [1] * (8 - wrong), [], range(8)) for wrong in range(6)]
    odd = said([0] * 10, [0] * 3 + [1] * 7, [], range(10))
    both = total([*clients, odd])
    least = both.test_count - 8 * (both.test_clients - 1)  # its number of test records
    right = (both.test_correct - 8 * both.test_share / 10_000) / (1 - 8 / least)
    assert least == 10 and round(right) == odd.test_correct == 3
    alike = total(clients)  # the control: where all have as many, nothing is left
    assert abs(alike.test_correct - 8 * alike.test_share / 10_000) < 0.01
