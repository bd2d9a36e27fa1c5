"""Which model a run delivers: the best by validation, or the last; and whether it was trained."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = ["BEST", "LAST", "NEVER", "NEVER_TRAINED", "NO_SCORE", "chosen_by", "never_trained"]

NEVER_TRAINED = (
    "MODEL NEVER TRAINED: on validation records no round did as well as the model before training, "
    "so that one is delivered; predict, evaluate and model export use it"
)
BEST, NO_SCORE = "best validation score", "no score of all clients"
LAST = "last round: no validation score"
NEVER = "best validation score, before training: the model was never trained"


def never_trained(result: Mapping[str, Any]) -> bool:
    """Tell whether the model that a run delivers is the one before its first round.

    Args:
        result: ``result.json``, of which anybody may have written anything.
    """
    metrics = result.get("metrics")
    best = metrics.get("best_round") if isinstance(metrics, Mapping) else None
    return type(best) is int and best == 0


def chosen_by(result: Mapping[str, Any]) -> str:
    """Return what the delivered model of a finished run was chosen by, in words."""
    metrics = result.get("metrics", {})
    if metrics.get("best_round") is None:
        return NO_SCORE
    if never_trained(result):
        return NEVER
    validated = any(metrics[name] is not None for name in metrics if name.startswith("val_"))
    return BEST if validated else LAST
