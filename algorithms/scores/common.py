"""Accuracy on the client's own test and on one test graph that all clients were given (FedEgo).

Zhang et al., FedEgo, 2022, section 5.1, score every client's model on its own test nodes and on the
nodes of a global test that nobody trains on, and give the mean over clients of the micro-averaged
F1. With one class a node that is the accuracy. The global test is one and the same graph
everywhere, so the mean over clients is the pooled share.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from algorithms.scores.accuracy import Accuracy, Score
from protocols.messages import count, values

__all__ = ["COMMON", "CommonAccuracy", "CommonScore"]


class CommonScore(Score):
    """How many of this client's own, and of the common test's, records are predicted correctly."""

    common_correct: int = count(unit="record", meaning="correct on the common test graph")
    common_count: int = count(unit="record", meaning="records of the common test graph")


class CommonAccuracy(Accuracy):
    """Accuracy, and the two F1 scores of FedEgo."""

    kind = CommonScore
    names = (*Accuracy.names, "local_f1", "global_f1")

    def common(
        self,
        predictions: npt.NDArray[np.float32],
        y: npt.NDArray[np.int64],
        own: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]],
        shared: npt.NDArray[np.bool_],
    ) -> CommonScore:
        """One client's score.

        Args:
            predictions: (N, C), the common test's rows included.
            y: int64 (N,), true classes.
            own: bool (N,) twice, the client's validation and test records.
            shared: bool (N,), records of the common test.

        Raises:
            ValueError: there is not one prediction a record.
        """
        mine = self.count(predictions, y, *own)
        hits = predictions[shared].argmax(axis=1) == y[shared]
        return CommonScore(**values(mine), common_correct=int(hits.sum()), common_count=len(hits))

    def read(self, total: Any) -> dict[str, float | None]:
        """As `Accuracy.read`; `global_f1` is None where there is no common test."""
        found = super().read(total)
        seen = total.common_count
        return {
            **found,
            "local_f1": found["test_accuracy_client_mean"],
            "global_f1": total.common_correct / seen if seen else None,
        }

    def plausible(self, total: Any, clients: int) -> bool:
        """As `Accuracy.plausible`, and no more correct than counted."""
        return super().plausible(total, clients) and bool(
            total.common_correct <= total.common_count
        )


COMMON = CommonAccuracy()
