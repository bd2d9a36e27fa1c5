"""Released metrics, written besides the run folder: to TensorBoard or MLflow.

What goes there is what ``metrics.jsonl`` holds, round by round, and public names of the plan. No
message of a client, no model, no reference that only a simulator knows, and nothing of this
machine or its user is handed to a sink.

A sink is opened before a run begins. One that fails while a run goes on is left out, with a line
for people: a dashboard that is away must not cost a run, whose evidence holds the same rows.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from protocols.plan.plan import Plan
from secure_fgl.config import target
from secure_fgl.errors import UsageError

__all__ = [
    "EXPERIMENT",
    "MlflowSink",
    "Sink",
    "Sinks",
    "TensorboardSink",
    "facts",
    "opened",
    "scalars",
]


# Metrics as a run of MLflow, by its client alone.
#
# `mlflow.start_run` and its like note user, machine, program and commit, and patch libraries;
# `MlflowClient` sends what it is given. MLflow's own telemetry is switched off before it is
# imported.

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


# Metrics as TensorBoard's event files, by the writer that PyTorch brings.


class TensorboardSink:
    """Scalars of one run in a folder of its own, below the one that is given.

    The writer puts this machine's name and the process's number into the file's name. A run that
    was killed and goes on writes a second file there, from its first round: TensorBoard shows the
    rows of the newer one.

    Args:
        place: the folder that ``tensorboard --logdir`` is given.
        name: of the run.
        told: public facts, shown as a text.

    Raises:
        ImportError: tensorboard is not installed.
        OSError: the folder cannot be written to.
    """

    def __init__(self, place: str, name: str, told: Mapping[str, str]) -> None:
        from torch.utils.tensorboard import SummaryWriter

        folder = Path(place).expanduser() / name
        self._writer = SummaryWriter(str(folder), purge_step=0)
        table = "\n".join(f"| {key} | {value} |" for key, value in told.items())
        self._writer.add_text("run", f"| | |\n|---|---|\n{table}", 0)

    def write(self, round: int, numbers: Mapping[str, float]) -> None:
        """Add a scalar a metric, at the step `round`."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, round)
        self._writer.flush()

    def close(self, *, whole: bool) -> None:
        """Flush and close the event file."""
        self._writer.close()


class Sink(Protocol):
    """A place that keeps numbers by name and round."""

    def write(self, round: int, numbers: Mapping[str, float]) -> None:
        """Keep the metrics of the model after `round` rounds."""

    def close(self, *, whole: bool) -> None:
        """Let go of it; `whole` tells whether the run finished."""


def facts(plan: Plan) -> dict[str, str]:
    """Return what is said of a run besides its metrics: public names and numbers of its plan."""
    return {
        "algorithm": plan.algorithm,
        "clients": str(len(plan.clients)),
        "data": plan.data.name,
        "form": plan.form,
        "plan": plan.digest,
        "policy": plan.policy,
        "rounds": str(plan.rounds),
        "synthetic": str(plan.data.synthetic).lower(),
    }


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers of a row of ``metrics.jsonl``, without its round."""
    return {
        name: float(value)
        for name, value in sorted(row.items())
        if name != "round"
        and isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    }


def opened(text: str, name: str, told: Mapping[str, str]) -> Sink:
    """Open one target.

    Args:
        text: ``tensorboard:FOLDER`` or ``mlflow:URI``.
        name: of the run there.
        told: of `facts`.

    Raises:
        UsageError: it is none, its package is not installed, or it cannot be opened.
    """
    try:
        kind, _, place = target(text).partition(":")
    except ValueError as error:
        raise UsageError("Metrics cannot be tracked there.", fix=str(error)) from error
    try:
        return (
            MlflowSink(place, name, told)
            if kind == "mlflow"
            else TensorboardSink(place, name, told)
        )
    except ImportError as error:
        raise UsageError(
            f"{kind} is not installed.",
            why="it is an extra, since a run needs it for nothing else",
            fix=f"pip install 'secure-fgl[{kind}]', or leave the target out",
        ) from error
    except UsageError:
        raise
    except Exception as error:  # of libraries and servers: whatever they raise
        raise UsageError(
            f"{kind} could not be opened ({type(error).__name__}), so nothing was started.",
            why="its folder cannot be written to, or its server does not answer",
            fix="see with --verbose what it said, or leave it out",
        ) from error


class Sinks:
    """All sinks of a run: opened when it is entered, closed when it is left.

    Entered, it gives the function that takes a row of ``metrics.jsonl``.

    Args:
        targets: as a configuration's ``tracking`` names them.
        name: of the run there.
        plan: of the run.
        tell: called with a line for people when a sink is left out.
    """

    def __init__(
        self, targets: Sequence[str], name: str, plan: Plan, tell: Callable[[str], None]
    ) -> None:
        self._targets, self._name, self._plan, self._tell = targets, name, plan, tell
        self._open: dict[str, Sink] = {}

    def __enter__(self) -> Callable[[Mapping[str, Any]], None]:
        """Open all; raises UsageError, with none left open, if one cannot be."""
        try:
            for text in self._targets:
                self._open[text] = opened(text, self._name, facts(self._plan))
        except BaseException:
            self._close(whole=False)
            raise
        return self._row

    def __exit__(self, kind: type[BaseException] | None, error: object, trace: object) -> None:
        self._close(whole=kind is None)

    def _row(self, row: Mapping[str, Any]) -> None:
        numbers = scalars(row)
        self._each(lambda sink: sink.write(int(row["round"]), numbers))

    def _close(self, *, whole: bool) -> None:
        self._each(lambda sink: sink.close(whole=whole))
        self._open.clear()

    def _each(self, use: Callable[[Sink], None]) -> None:
        for text, sink in list(self._open.items()):
            try:
                use(sink)
            except Exception as error:  # of libraries and servers: whatever they raise
                del self._open[text]
                kind = text.partition(":")[0]  # a URI may hold a password
                self._tell(
                    f"Metrics go to {kind} no more ({type(error).__name__}); metrics.jsonl has all."
                )
