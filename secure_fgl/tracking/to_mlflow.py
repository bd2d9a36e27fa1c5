"""Metrics as a run of MLflow, by its client alone.

`mlflow.start_run` and its like note user, machine, program and commit, and patch libraries;
`MlflowClient` sends what it is given. MLflow's own telemetry is switched off before it is imported.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

__all__ = ["EXPERIMENT", "MlflowSink"]

EXPERIMENT = "secure-fgl"
"""Under which runs stand, unless MLFLOW_EXPERIMENT_NAME says otherwise."""


class MlflowSink:
    """One run in a tracking store.

    A run that was killed and goes on is a second run there, with all rows.

    Args:
        place: a tracking URI, such as ``sqlite:///runs.db`` or ``https://mlflow.example.org``.
        name: of the run.
        told: public facts, kept as parameters.

    Raises:
        ImportError: mlflow is not installed.
    """

    def __init__(self, place: str, name: str, told: Mapping[str, str]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient

        self._client = MlflowClient(tracking_uri=place)
        wanted = os.environ.get("MLFLOW_EXPERIMENT_NAME", EXPERIMENT)
        known = self._client.get_experiment_by_name(wanted)
        number = known.experiment_id if known else self._client.create_experiment(wanted)
        self._run = self._client.create_run(number, run_name=name).info.run_id
        for key, value in told.items():
            self._client.log_param(self._run, key, value)

    def write(self, round: int, numbers: Mapping[str, float]) -> None:
        """Log a metric each, at the step `round`."""
        for name, value in numbers.items():
            self._client.log_metric(self._run, name, value, step=round)

    def close(self, *, whole: bool) -> None:
        """Say that the run finished, or that it did not."""
        self._client.set_terminated(self._run, "FINISHED" if whole else "FAILED")
