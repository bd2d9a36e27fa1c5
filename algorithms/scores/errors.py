"""Errors of predicted ratings: MAE and RMSE, pooled over all clients' ratings.

An error is measured in the range of the scale, so it is at most 1, and its sums leave as whole
numbers of 1/10000. A client's sum is below 2^32 as long as it has no more than 429,496 ratings in
one split, whatever their errors are; more are refused when the message is laid out. Rounding moves
a pooled mean by at most K / (20000 n) of the range, K clients having n ratings together.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from protocols.messages import SumMessage, count

__all__ = ["ErrorScore", "Errors", "mean_reference"]

_UNIT = 10_000

Numbers = npt.NDArray[np.float32] | npt.NDArray[np.float64]


class ErrorScore(SumMessage):
    """How far this client's validation and test ratings are predicted wrongly."""

    val_absolute: int = count(
        unit="1/10000 of the scale", meaning="sum of absolute errors on validation ratings"
    )
    val_square: int = count(
        unit="1/10000 of the squared scale", meaning="sum of squared errors on validation ratings"
    )
    val_count: int = count(unit="record", meaning="validation ratings")
    test_absolute: int = count(
        unit="1/10000 of the scale", meaning="sum of absolute errors on test ratings"
    )
    test_square: int = count(
        unit="1/10000 of the squared scale", meaning="sum of squared errors on test ratings"
    )
    test_count: int = count(unit="record", meaning="test ratings")
    test_share: int = count(
        unit="1/10000 of the scale", meaning="this client's mean absolute test error"
    )
    test_clients: int = count(unit="client", meaning="1 if this client has test ratings")


class Errors:
    """Pooled MAE and RMSE, and the unweighted mean of the clients' MAE, in units of a rating.

    Args:
        lowest, highest: the scale of ratings, public.
        squared: the RMSE is the headline, as in the papers of recommenders; else the MAE.

    Raises:
        ValueError: the scale has no range.
    """

    kind = ErrorScore
    dims: dict[str, int] = {}  # noqa: RUF012 - a protocol's attribute, never written to
    names: tuple[str, ...] = (
        "test_mae", "test_rmse", "val_mae", "val_rmse", "test_mae_client_mean",
    )  # fmt: skip

    def __init__(self, lowest: float, highest: float, *, squared: bool = False) -> None:
        if not lowest < highest:
            raise ValueError("the lowest rating must be below the highest; check the DataSpec")
        self._range = highest - lowest
        if squared:
            first, second, *rest = self.names
            self.names = (second, first, *rest)

    def count(
        self,
        predictions: Numbers,
        rating: Numbers,
        val: npt.NDArray[np.bool_],
        test: npt.NDArray[np.bool_],
    ) -> ErrorScore:
        """One client's score.

        Args:
            predictions: (M,), within the scale.
            rating: (M,), true ratings.
            val: bool (M,), validation ratings.
            test: bool (M,), test ratings.

        Raises:
            ValueError: there is not one prediction a rating, or one that is not finite.
        """
        if predictions.shape != rating.shape or rating.ndim != 1:
            raise ValueError(
                "predictions must have one entry a rating; "
                "score what `predict` returned for the same site"
            )
        errors = np.abs(predictions.astype(np.float64) - rating) / self._range
        if not np.isfinite(errors).all():
            raise ValueError("a prediction or a rating is NaN or infinity; lower model.lr")
        errors = np.minimum(errors, 1.0)  # float32 may carry an end of the scale beyond it
        of_test, seen = _sum(errors[test]), int(test.sum())
        return ErrorScore(
            val_absolute=_sum(errors[val]),
            val_square=_sum(errors[val] ** 2),
            val_count=int(val.sum()),
            test_absolute=of_test,
            test_square=_sum(errors[test] ** 2),
            test_count=seen,
            test_share=round(of_test / seen) if seen else 0,
            test_clients=int(seen > 0),
        )

    def read(self, total: Any) -> dict[str, float | None]:
        """Errors in units of a rating; None where there are no ratings."""
        return {
            "test_mae": self._mean(total.test_absolute, total.test_count),
            "test_rmse": self._root(total.test_square, total.test_count),
            "val_mae": self._mean(total.val_absolute, total.val_count),
            "val_rmse": self._root(total.val_square, total.val_count),
            "test_mae_client_mean": self._mean(total.test_share, total.test_clients),
        }

    def merit(self, total: Any) -> float | None:
        """Minus the pooled validation RMSE; None without validation ratings."""
        error = self._root(total.val_square, total.val_count)
        return None if error is None else -error

    def shares(self, total: Any) -> tuple[float, float]:
        """One less the RMSE, in units of the scale; 0 where there are no ratings."""
        errors = (
            self._root(total.val_square, total.val_count),
            self._root(total.test_square, total.test_count),
        )
        val, test = (0.0 if e is None else 1.0 - e / self._range for e in errors)
        return val, test

    def plausible(self, total: Any, clients: int) -> bool:
        """Errors between 0 and 1, squares as such errors have them, and no more clients than are.

        Every sum of a client is rounded to the nearest unit, so a total is off by half a unit for
        each client at most.
        """
        return bool(
            _possible(total.val_absolute, total.val_square, total.val_count, clients)
            and _possible(total.test_absolute, total.test_square, total.test_count, clients)
            and total.test_clients <= min(clients, total.test_count)
            and total.test_share <= _UNIT * total.test_clients
        )

    def _mean(self, units: int, number: int) -> float | None:
        return self._range * units / _UNIT / number if number else None

    def _root(self, units: int, number: int) -> float | None:
        return self._range * math.sqrt(units / _UNIT / number) if number else None


def _sum(errors: npt.NDArray[np.float64]) -> int:
    return round(_UNIT * float(errors.sum()))


def _possible(absolute: int, square: int, number: int, clients: int) -> bool:
    """Tell whether so many errors in [0, 1] can have these rounded sums: e^2 <= e, and Cauchy's."""
    least = max(absolute - clients / 2, 0.0)
    return (
        absolute <= _UNIT * number
        and square <= absolute + clients
        and least * least <= _UNIT * number * (square + clients / 2)
    )


def mean_reference(train: Numbers, test: Numbers) -> tuple[float, float]:
    """MAE and RMSE on `test` of always predicting the mean of `train`, in units of a rating.

    What a model must beat before its error says anything; no federation is needed to compute the
    mean, but only a simulator holds all test ratings.

    Args:
        train: ratings, shape (n,), whose mean is predicted.
        test: ratings, shape (m,), that are predicted.

    Raises:
        ValueError: one of them is empty.
    """
    if not len(train) or not len(test):
        raise ValueError("the mean needs at least one training rating, its error one test rating")
    errors = np.asarray(test, dtype=np.float64) - np.mean(train, dtype=np.float64)
    return float(np.abs(errors).mean()), float(np.sqrt(np.square(errors).mean()))
