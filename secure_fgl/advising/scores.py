"""How good a run's model is: by its own scores, or by the audit's where clients told none.

Under `calibrated` no counts of records leave, so a run has no scores. Whoever advises holds all
data anyway, and scores the final model that all were given on every site's own records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from algorithms.tasks import predictions
from algorithms.tasks.evaluation import total
from audits.evidence.steps import Case
from secure_fgl.attack_inputs.again.released import released_models
from secure_fgl.attack_inputs.replayed import ReplayedRun
from secure_fgl.plugins.in_use import Given
from secure_fgl.run.driver import one_thread_and_deterministic
from secure_fgl.store.finished_run import Run

__all__ = ["scores"]


def scores(run: Run, data: Path | None, plugins: Sequence[Given]) -> Mapping[str, float]:
    """Return metrics by name, ``val_…`` and ``test_…``; empty where there is no whole model.

    Args:
        run: whose evidence was verified.
        data: the auditor's own folder.
        plugins: its own copies of the run's code.

    Raises:
        SecureFglError: the data cannot be read.
    """
    told = {name: value for name, value in run.metrics.items() if value is not None}
    if any(name.startswith("val_") for name in told):
        return told
    with one_thread_and_deterministic():
        replay = ReplayedRun.of(run, Case(run.view()), data, plugins, stand_ins=False)
        task, sites = replay.task, replay.sites
        models = released_models(run, replay.case, replay.config, task, sites).shared
        model: Any = models.get("final", models.get("final and best"))
        if model is None:
            return {}
        found = total([task.score(predictions(task, model, s), s) for s in sites.values()])
    return {name: value for name, value in task.scoring.read(found).items() if value is not None}
