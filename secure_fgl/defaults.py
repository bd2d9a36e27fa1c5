"""What a model is trained with where nobody says: chosen per kind of task and model, in one table.

How the figures were found, and what was tried beside them: docs/results/defaults.md, ADR 0032. Only
validation figures chose. A row holds as a whole for the optimiser that it names: whoever asks for
another one, or for moments that begin anew, gets `PLAIN` beside it, since a step size that suits
one suits no other.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from algorithms.tasks import Kind, Task
from protocols.errors import NotAdmitted
from protocols.forms import Algorithm
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.config import ModelConfig
from secure_fgl.errors import UsageError

__all__ = [
    "PLAIN",
    "Training",
    "check_optimiser",
    "check_training",
    "defaults",
    "said",
    "settled",
]


class Training(NamedTuple):
    """How a model is trained; the fields are those of `ModelConfig`."""

    optimiser: Literal["adamw", "adam", "sgd"]
    keep_moments: bool
    lr: float
    dropout: float
    batch: int | None = None


PLAIN = Training("adamw", False, 0.01, 0.5)
"""For every model without a row."""

STEPS = PLAIN._replace(lr=0.3)
"""For nodes under algorithms that take plain gradient steps, one a round where nobody says: a step
of 0.01 is for AdamW, and moves almost nothing (docs/results/defaults.md)."""

_KEPT = PLAIN._replace(keep_moments=True)

_TABLE: dict[tuple[Kind, str], Training] = {
    ("node", "gcn"): _KEPT,
    ("node", "gcn_linear"): _KEPT,
    ("node", "graph_sage"): _KEPT,
    ("node", "graph_sage_sampled"): Training("adam", True, 0.001, 0.0, 64),  # as the paper
}


def defaults(kind: Kind, model: str) -> Training:
    """Return what a model of `algorithms/nn` is trained with where the settings do not say."""
    return _TABLE.get((kind, model), PLAIN)


def said(chosen: Training | ModelConfig, *, gradients: bool = False) -> str:
    """Return in words how a model is trained; nothing of what is not settled.

    Args:
        chosen: the settings.
        gradients: the algorithm takes plain gradient steps, and uses no optimiser.
    """
    kept = {True: "moments kept", False: "moments anew in every round", None: ""}
    numbers = (("lr", chosen.lr), ("dropout", chosen.dropout), ("batch", chosen.batch))
    words = [chosen.optimiser or "", kept[chosen.keep_moments]]
    words = ["plain gradient steps"] if gradients else words
    words += [f"{name} {value:g}" for name, value in numbers if value is not None]
    return ", ".join(filter(None, words))


def settled(model: ModelConfig, kind: Kind, name: str, *, gradients: bool = False) -> ModelConfig:
    """Return a model's settings with every default written out.

    Args:
        model: the settings, None where nobody chose.
        kind: of task.
        name: of the model.
        gradients: whether the algorithm takes plain gradient steps, and no optimiser's.
    """
    row = (STEPS if kind == "node" else PLAIN) if gradients else defaults(kind, name)
    if model.optimiser not in (None, row.optimiser):
        row = PLAIN
    if model.keep_moments not in (None, row.keep_moments):
        row = PLAIN
    missing: dict[str, Any] = {
        field: value for field, value in row._asdict().items() if getattr(model, field) is None
    }
    return model.model_copy(update=missing)


def check_optimiser(algorithm: Algorithm[Any], model: ModelConfig) -> None:
    """Refuse an optimiser that somebody chose and nothing would use; raises UsageError.

    ``adamw`` is what algorithms with plain gradient steps have written out and do not use.
    """
    asked = ["optimiser: adam"] if model.optimiser == "adam" else []
    asked += ["keep_moments: true"] if model.keep_moments else []
    if algorithm.gradients and asked:
        raise UsageError(
            f"{algorithm.name} would not use model.{' and model.'.join(asked)}.",
            why="it takes plain gradient steps, which is what its analysis is about",
            fix="leave model.optimiser and model.keep_moments out, or set optimiser: sgd",
        )


def check_training(algorithm: Algorithm[Any], task: Task, policy: PrivacyPolicy) -> None:
    """Raise NotAdmitted where private training would promise more than it can hold."""
    training = policy.training
    if training is None:
        return
    if algorithm.gradients > training.steps:
        raise NotAdmitted(
            f"{algorithm.name} takes {algorithm.gradients} gradients in a round and policy "
            f"{policy.name!r} allows {training.steps} noised ones (training.steps).",
            why="every gradient of a training record is counted in its epsilon",
            fix="lower the algorithm's epochs or steps, or agree on more training.steps",
        )
    try:
        task.check_training(training.unit)
    except ValueError as error:
        raise NotAdmitted(
            f"Policy {policy.name!r} asks for training that hides single records, which a "
            f"{task.spec.task} task cannot give.",
            why=str(error),
            fix="train on graphs (a graph task), or protect whole clients with the guard 'noise' "
            "in place of policy.training",
        ) from error
