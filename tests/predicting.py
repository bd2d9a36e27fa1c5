"""What a client predicts, for tests of algorithms."""

from __future__ import annotations

from typing import Any

from algorithms.tasks import predictions

__all__ = ["predicted"]


def predicted(algorithm: Any, task: Any, site: Any, given: Any) -> Any:
    """Return the predictions of a client's model, as downloaded, or with None as trained."""
    return predictions(task, algorithm.model(site, given), site)
