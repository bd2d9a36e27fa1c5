"""Scores that each client tells under its own noise: two numbers in [0, 1], in place of counts.

Every client counts alike, whatever its number of records. The aggregator reads each message's
estimate, and the mean of all; which round was best rests on these, and each of them is charged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from algorithms.scores import Scoring
from protocols.messages import NoisedMessage, SumMessage, bounded, count, real
from protocols.rounds import Reply

__all__ = ["ToldScore", "ToldScores", "ToldTotal", "heard", "reads"]


class ToldScore(NoisedMessage):
    """How good one client's predictions are, by its own noise."""

    val: float = bounded(unit="share", meaning="how good on the client's validation records")
    test: float = bounded(unit="share", meaning="how good on the client's test records")


class ToldTotal(SumMessage):
    """What the aggregator adds up of such estimates; nobody sends it."""

    val: float = real(unit="share", meaning="sum of validation scores")
    test: float = real(unit="share", meaning="sum of test scores")
    clients: int = count(unit="client", meaning="how many were told")


class ToldScores:
    """Reads totals of `ToldScore`.

    Args:
        scoring: the task's own, which a client reads its score by.
    """

    kind = ToldScore
    dims: Mapping[str, int] = {}
    names: tuple[str, ...] = ("test_told", "val_told")

    def __init__(self, scoring: Scoring) -> None:
        self._scoring = scoring

    def of_client(self, score: SumMessage) -> ToldScore:
        """Return what one client tells of its own counts."""
        val, test = self._scoring.shares(score)
        return ToldScore(val=val, test=test)

    def added(self, said: Sequence[ToldScore]) -> ToldTotal:
        """Return the sum of what was told."""
        val, test = sum(one.val for one in said), sum(one.test for one in said)
        return ToldTotal(val=float(val), test=float(test), clients=len(said))

    def read(self, total: Any) -> dict[str, float | None]:
        """Return means over clients, with noise, brought into [0, 1]."""
        told = (("test_told", total.test), ("val_told", total.val))
        many = max(int(total.clients), 1)
        return {name: float(np.clip(value / many, 0.0, 1.0)) for name, value in told}

    def merit(self, total: Any) -> float:
        """Return the mean validation score."""
        return self.read(total)["val_told"] or 0.0

    def plausible(self, total: Any, clients: int) -> bool:
        """Tell whether no more clients told than there are; under noise any number can be."""
        return int(total.clients) <= clients


def reads(scoring: Scoring, score: SumMessage) -> Scoring | ToldScores:
    """Return what reads a total: the task's scoring, or of scores that were told its like."""
    return ToldScores(scoring) if isinstance(score, ToldTotal) else scoring


def heard(reply: Reply, scoring: Scoring | ToldScores) -> SumMessage:
    """Return the total of a reply's scores."""
    if isinstance(scoring, ToldScores):
        return scoring.added(reply.each(ToldScore))
    return reply.total(scoring.kind)
