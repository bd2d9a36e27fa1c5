"""Scores on a test graph that all clients were given, beside each client's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from algorithms.tasks.evaluation import total
from algorithms.tasks.scores import COMMON, CommonScore, Score

Y = np.array([0, 1, 2, 0, 1, 2])
VAL, TEST, SHARED = (np.isin(np.arange(6), rows) for rows in ([0], [1, 2], [3, 4, 5]))


def said(guesses: list[int]) -> CommonScore:
    return COMMON.common(np.eye(3, dtype=np.float32)[guesses], Y, (VAL, TEST), SHARED)


def test_own_and_common_records_are_counted_apart() -> None:
    found = said([0, 1, 0, 0, 0, 2])
    assert [getattr(found, f.name) for f in CommonScore.fields] == [1, 1, 1, 2, 5000, 1, 2, 3]
    own = COMMON.count(np.eye(3, dtype=np.float32)[[0, 1, 0, 0, 0, 2]], Y, VAL, TEST)
    for field in Score.fields:
        assert getattr(found, field.name) == getattr(own, field.name)


def test_f1_scores_are_means_over_clients() -> None:
    read: Any = COMMON.read(total([said([0, 1, 0, 0, 0, 2]), said([1, 1, 2, 0, 1, 2])]))
    assert read["global_f1"] == pytest.approx((2 / 3 + 1) / 2)
    assert read["local_f1"] == pytest.approx((1 / 2 + 1) / 2)
    assert set(COMMON.names) == set(read) and COMMON.names[0] == "test_accuracy"


def test_without_a_common_test_its_score_is_undefined() -> None:
    nothing = np.zeros(6, dtype=bool)
    found = COMMON.common(np.eye(3, dtype=np.float32)[Y], Y, (VAL, TEST), nothing)
    assert COMMON.read(found)["global_f1"] is None


def test_more_correct_than_counted_is_implausible() -> None:
    honest = said([0, 1, 2, 0, 1, 2])
    assert COMMON.plausible(honest, 1)
    facts = {f.name: getattr(honest, f.name) for f in CommonScore.fields}
    assert not COMMON.plausible(CommonScore(**{**facts, "common_correct": 4}), 1)
    assert not COMMON.plausible(CommonScore(**{**facts, "test_correct": 3}), 1)
