"""Which candidate is advised: validation scores choose, and test scores are only shown."""

from __future__ import annotations

from collections.abc import Sequence

from secure_fgl.advising.trials import Trial, worst

__all__ = ["advised", "cost", "frontier"]

_SMALLER = ("rmse", "mae", "loss")
"""Scores of which less is better."""


def advised(trials: Sequence[Trial], points: float) -> Trial | None:
    """Return the best by validation of those whose attacks all pass, or None.

    Args:
        trials: the run's own first.
        points: how far below the run's own validation score it may be, of 100 for shares.
    """
    passed = [
        trial for trial in trials if trial.verdict == "PASS" and _within(trial, trials, points)
    ]
    return max(passed, key=_merit, default=None)


def cost(trial: Trial, trials: Sequence[Trial]) -> float | None:
    """Return how much worse a validation score is than the run's own; None where one is missing."""
    own = trials[0]
    if trial.validation is None or own.validation is None or trial.metric != own.metric:
        return None
    return _merit(own) - _merit(trial)


def frontier(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Return the trials of which no other is at least as good in both: leakage and validation.

    Leakage is the upper end of the interval of how far the worst row is above an attacker without
    the message, so that few clients, which decide nothing, do not look safe.
    """
    shown = [t for t in trials if t.validation is not None and _leakage(t) is not None]

    def beaten(trial: Trial) -> bool:
        return any(
            _leak(other) <= _leak(trial)
            and _merit(other) >= _merit(trial)
            and (_leak(other), _merit(other)) != (_leak(trial), _merit(trial))
            for other in shown
        )

    return tuple(trial for trial in shown if not beaten(trial))


def _within(trial: Trial, trials: Sequence[Trial], points: float) -> bool:
    lost = cost(trial, trials)
    return lost is not None and lost <= points / 100.0 + 1e-12


def _merit(trial: Trial) -> float:
    value = trial.validation if trial.validation is not None else float("-inf")
    return -value if trial.metric.endswith(_SMALLER) else value


def _leakage(trial: Trial) -> float | None:
    row = worst(trial)
    return float(row.gap.high) if row is not None and row.gap is not None else None


def _leak(trial: Trial) -> float:
    found = _leakage(trial)
    return float("inf") if found is None else found
