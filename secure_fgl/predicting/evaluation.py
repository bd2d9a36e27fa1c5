"""How good a model is at one site, by that site's own labels: for the site itself.

Counts and curves are those of scikit-learn. Unlike a run's scores they are one site's alone, so
they say more of its records than anything a run lets out: they are written where they are made.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from audits.formats.csv import cell
from secure_fgl.data.records import ClientRatings, Part
from secure_fgl.errors import UsageError
from secure_fgl.predicting.inputs import answers
from secure_fgl.store.trained_model import TrainedModel

__all__ = ["PARTS", "Evaluation", "evaluate"]

PARTS = ("train", "val", "test", "all")
BINS = 10
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, repr=False)
class Evaluation:
    """A model's answers beside a site's labels.

    Attributes:
        numbers: accuracy, AUC and the like, by name.
        confusion: rows are true classes, columns predicted ones; None for ratings and several
            labels.
        names: of classes or labels.
        roc: by class or label: false and true positive rates and thresholds.
        calibration: rows of mean confidence, share that is right, and count, for each of `BINS`.
    """

    numbers: dict[str, Any]
    confusion: npt.NDArray[np.int64] | None = None
    names: list[str] = field(default_factory=list)
    roc: dict[str, tuple[Any, Any, Any]] = field(default_factory=dict)
    calibration: list[tuple[float, float, int]] = field(default_factory=list)

    def files(self) -> dict[str, bytes]:
        """Return what is written: ``evaluation.json``, and curves as tables."""
        document = {
            **self.numbers,
            "classes": self.names,
            "confusion": None if self.confusion is None else self.confusion.tolist(),
        }
        files = {"evaluation.json": (json.dumps(document, indent=2) + "\n").encode()}
        if self.confusion is not None:
            rows = [[n, *map(int, r)] for n, r in zip(self.names, self.confusion, strict=True)]
            files["confusion.csv"] = _table(["true", *self.names], rows)
        if self.roc:
            points = [
                [name, f"{x:.6f}", f"{y:.6f}", f"{t:.6f}"]
                for name, curve in self.roc.items()
                for x, y, t in zip(*curve, strict=True)
            ]
            head = ["class", "false_positive_rate", "true_positive_rate", "threshold"]
            files["roc.csv"] = _table(head, points)
        if self.calibration:
            bins = [[f"{c:.6f}", f"{r:.6f}", n] for c, r, n in self.calibration]
            files["calibration.csv"] = _table(["confidence", "right", "records"], bins)
        return files


def _table(head: list[str], rows: list[list[Any]]) -> bytes:
    made = io.StringIO()
    table = csv.writer(made, lineterminator="\n")
    table.writerows([[cell(value) for value in row] for row in (head, *rows)])
    return made.getvalue().encode()


def evaluate(trained: TrainedModel, part: Part, which: str = "test") -> Evaluation:
    """Return how good a model is on a site's records.

    Args:
        trained: a model.
        part: the site's records with their labels and roles, features not yet scaled.
        which: one of `PARTS`.

    Raises:
        UsageError: scikit-learn is not installed, or no record of that part has a label.
    """
    if which not in PARTS:
        raise UsageError(f"There is no part {which!r}.", fix=f"choose one of {', '.join(PARTS)}")
    roles = {"train": part.train, "val": part.val, "test": part.test}
    chosen = roles.get(which, part.train | part.val | part.test)
    values = answers(trained, part, part.train)
    if isinstance(part, ClientRatings):
        return _of_ratings(values[chosen, 0], part.rating[chosen], which)
    classes = trained.facts.get("class_names") or range(trained.spec.classes)
    names = list(map(str, classes))
    if trained.spec.multilabel:
        return _of_answers(values[chosen], part.y[chosen], names, which)
    return _of_classes(values[chosen & (part.y >= 0)], part.y[chosen & (part.y >= 0)], names, which)


def _metrics() -> Any:
    try:
        from sklearn import metrics
    except ImportError as error:
        raise UsageError(
            "Evaluation needs a package that is not installed.",
            why=str(error),
            fix="pip install 'secure-fgl[evaluate]'",
        ) from error
    return metrics


def _none_left(which: str) -> UsageError:
    return UsageError(
        f"No record of the part {which!r} has a label here.",
        why="the column split, or the shares of spec.yaml, give it none",
        fix=f"choose another --part: {', '.join(PARTS)}",
    )


def _of_classes(values: Any, y: Any, names: list[str], which: str) -> Evaluation:
    if not len(y):
        raise _none_left(which)
    metrics, best = _metrics(), values.argmax(axis=1)
    every = np.arange(len(names))
    confusion = metrics.confusion_matrix(y, best, labels=every)
    roc, areas = _curves(values, y[:, None] == every, np.ones((len(y), len(names)), bool), names)
    bins = _calibration(values.max(axis=1), best == y)
    gap = sum(n * abs(c - r) for c, r, n in bins) / len(y)
    numbers = {
        "part": which,
        "records": len(y),
        "correct": int((best == y).sum()),
        "accuracy": float((best == y).mean()),
        "macro_f1": float(
            metrics.f1_score(y, best, labels=every, average="macro", zero_division=0)
        ),
        "auc": areas,
        "calibration_error": gap,
    }
    return Evaluation(numbers, confusion.astype(np.int64), names, roc, bins)


def _of_answers(values: Any, y: Any, names: list[str], which: str) -> Evaluation:
    known = ~np.isnan(y)
    if not known.any():
        raise _none_left(which)
    roc, areas = _curves(values, y > 0.5, known, names)
    sure = np.maximum(values, 1 - values)[known]
    right = ((values > 0.5) == (y > 0.5))[known]
    bins = _calibration(sure, right)
    gap = sum(n * abs(c - r) for c, r, n in bins) / len(sure)
    numbers = {
        "part": which,
        "records": len(y),
        "answers": int(known.sum()),
        "accuracy": float(right.mean()),
        "auc": areas,
        "calibration_error": gap,
    }
    return Evaluation(numbers, None, names, roc, bins)


def _of_ratings(values: Any, rating: Any, which: str) -> Evaluation:
    if not len(rating):
        raise _none_left(which)
    metrics = _metrics()
    return Evaluation(
        {
            "part": which,
            "records": len(rating),
            "mae": float(metrics.mean_absolute_error(rating, values)),
            "rmse": float(metrics.root_mean_squared_error(rating, values)),
        }
    )


def _curves(
    values: Any, true: Bools, known: Bools, names: list[str]
) -> tuple[dict[str, tuple[Any, Any, Any]], Mapping[str, float | None]]:
    """Return each class's curve against the rest and its area; none where one side is missing."""
    metrics = _metrics()
    roc, areas = {}, dict[str, float | None]()
    for place, name in enumerate(names):
        asked = known[:, place]
        y, score = true[asked, place], values[asked, place]
        if y.all() or not y.any():
            areas[name] = None
            continue
        roc[name] = metrics.roc_curve(y, score)
        areas[name] = float(metrics.roc_auc_score(y, score))
    return roc, areas


def _calibration(confidence: Any, right: Bools) -> list[tuple[float, float, int]]:
    """Return mean confidence, share of right answers and count of each bin that holds some."""
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    found = []
    for number in range(BINS):
        here = place == number
        if here.any():
            found.append(
                (float(confidence[here].mean()), float(right[here].mean()), int(here.sum()))
            )
    return found
