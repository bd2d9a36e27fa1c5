"""Accuracy: how many records are given their own class. For nodes and graphs with one label."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from protocols.messages import SumMessage, count

__all__ = ["SCORING", "Accuracy", "Score"]

_UNIT = 10_000


class Score(SumMessage):
    """How many of this client's validation and test records are predicted correctly.

    One record of a set whose records do not depend on each other, there or not, moves each count by
    one at most, and the accuracy of its client by all of it.
    """

    val_correct: int = count(unit="record", meaning="correct on validation records", moves=1)
    val_count: int = count(unit="record", meaning="validation records", moves=1)
    test_correct: int = count(unit="record", meaning="correct on test records", moves=1)
    test_count: int = count(unit="record", meaning="test records", moves=1)
    test_share: int = count(
        unit="1/10000", meaning="this client's test accuracy, for their mean", moves=_UNIT
    )
    test_clients: int = count(unit="client", meaning="1 if this client has test records", moves=1)


class Accuracy:
    """Pooled accuracy, and the unweighted mean of the clients' test accuracies."""

    kind: type[Score] = Score
    dims: dict[str, int] = {}  # noqa: RUF012 - a protocol's attribute, never written to
    names: tuple[str, ...] = ("test_accuracy", "val_accuracy", "test_accuracy_client_mean")

    def count(
        self,
        predictions: npt.NDArray[np.float32],
        y: npt.NDArray[np.int64],
        val: npt.NDArray[np.bool_],
        test: npt.NDArray[np.bool_],
    ) -> Score:
        """One client's score.

        Args:
            predictions: (N, C); the first of equal maxima counts.
            y: int64 (N,), true classes.
            val: bool (N,), validation records.
            test: bool (N,), test records.

        Raises:
            ValueError: there is not one prediction a record.
        """
        if predictions.ndim != 2 or len(predictions) != len(y):
            raise ValueError(
                "predictions must have one row a record and one column a class; "
                "score what `predict` returned for the same site"
            )
        hits = predictions.argmax(axis=1) == y
        right, seen = int(hits[test].sum()), int(test.sum())
        return Score(
            val_correct=int(hits[val].sum()),
            val_count=int(val.sum()),
            test_correct=right,
            test_count=seen,
            test_share=round(_UNIT * right / seen) if seen else 0,
            test_clients=int(seen > 0),
        )

    def read(self, total: Any) -> dict[str, float | None]:
        """Accuracies in [0, 1]; None where there are no records."""
        return {
            "test_accuracy": _ratio(total.test_correct, total.test_count),
            "val_accuracy": _ratio(total.val_correct, total.val_count),
            "test_accuracy_client_mean": _ratio(total.test_share / _UNIT, total.test_clients),
        }

    def merit(self, total: Any) -> float | None:
        """Pooled validation accuracy; None without validation records."""
        return _ratio(total.val_correct, total.val_count)

    def shares(self, total: Any) -> tuple[float, float]:
        """Accuracies on validation and test records; 0 where there are none."""
        val, test = self.merit(total), _ratio(total.test_correct, total.test_count)
        return val or 0.0, test or 0.0

    def plausible(self, total: Any, clients: int) -> bool:
        """No more correct than counted, no more clients than there are."""
        return bool(
            total.val_correct <= total.val_count
            and total.test_correct <= total.test_count
            and total.test_clients <= clients
            and total.test_share <= _UNIT * total.test_clients
        )


def _ratio(right: float, seen: int) -> float | None:
    """Return a share of records; None where none was seen, or noise leaves none of them."""
    return float(right / seen) if seen > 0 else None


SCORING = Accuracy()
