"""How predictions are counted, one metric family per file.

A score is a message of exact counts over one client's validation and test records, so that only
cohort totals are ever disclosed and no number of a single client leaves. What is printed (accuracy,
ROC-AUC, MAE) is computed from the totals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from protocols.messages import SumMessage

__all__ = ["Scoring"]


class Scoring(Protocol):
    """Reads totals of one kind of score."""

    @property
    def kind(self) -> type[SumMessage]:
        """The message that a client answers with."""

    @property
    def dims(self) -> Mapping[str, int]:
        """Sizes of the message's named dimensions."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the metrics that `read` returns; the first is the headline."""

    def read(self, total: Any) -> dict[str, float | None]:
        """Metrics of a cohort total; None where there are no records, or too few kinds of them.

        ROC-AUC needs a positive and a negative one.
        """

    def merit(self, total: Any) -> float | None:
        """How good the validation records were predicted; larger is better, by which best is.

        None where nothing tells: there are no such records. 0 of 0 is no merit.
        """

    def shares(self, total: Any) -> tuple[float, float]:
        """How good validation and test records were predicted, in [0, 1]; larger is better."""

    def plausible(self, total: Any, clients: int) -> bool:
        """Tell whether honest clients can have this total. Encryption gives no range proof."""
