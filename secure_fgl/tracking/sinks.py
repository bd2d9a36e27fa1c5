"""Where metrics go: one sink a target, opened before a run begins and fed a row a round.

A sink that fails while a run goes on is left out and told of: a dashboard that is away must not
cost a run, whose evidence holds the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from protocols.plan.plan import Plan
from secure_fgl.config_values import target
from secure_fgl.errors import UsageError

__all__ = ["Sink", "Sinks", "facts", "opened", "scalars"]


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
    if kind == "mlflow":
        from secure_fgl.tracking.to_mlflow import MlflowSink as Made
    else:
        from secure_fgl.tracking.to_tensorboard import TensorboardSink as Made  # type: ignore[assignment]
    try:
        return Made(place, name, told)
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
