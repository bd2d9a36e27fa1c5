"""What a trained model makes of a site's own data: predictions, and how good they are there.

Everything is computed and written where it is called; nothing leaves for it.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from algorithms.nn import alone
from algorithms.tasks.training import activated
from audits.formats import cell
from secure_fgl.data.features import rescaled
from secure_fgl.data.own import OwnSpec, load_spec, read_site
from secure_fgl.data.own.spec import SPEC_FILE
from secure_fgl.data.records import ClientRatings, Part
from secure_fgl.errors import UsageError
from secure_fgl.store.trained_model import TrainedModel

__all__ = ["PARTS", "Evaluation", "Predicted", "answers", "evaluate", "predict", "spec_for"]


# From records to what a plain module takes, and its answers; by kind of task.

Floats = npt.NDArray[np.float32]


def answers(trained: TrainedModel, records: Any, known: npt.NDArray[np.bool_]) -> Floats:
    """Return predictions as a run has them, float32 (records, classes), for ratings (records, 1).

    Args:
        trained: a model.
        records: a `Graph`, `GraphSet` or `Ratings`, or what a client holds of one, with features as
            the data has them; they are scaled as the model's own site scaled its own.
        known: bool (records,): ratings that the model may look at; read for ratings only.
    """
    given = _ratings(records, known) if trained.spec.task == "rating" else _graph(trained, records)
    with torch.no_grad():
        found: Floats = activated(trained.spec, trained.module(*given)).numpy()
    return found


def _graph(trained: TrainedModel, records: Any) -> tuple[Tensor, ...]:
    from torch_geometric.utils import to_undirected

    x = rescaled(records.x, trained.facts["scaling"], trained.scaling)
    dense = np.asarray(x.toarray() if sp.issparse(x) else x, dtype=np.float32)
    edges = torch.from_numpy(np.asarray(records.edges, dtype=np.int64))
    both = to_undirected(edges, num_nodes=len(dense))
    if trained.spec.task == "node":
        return torch.from_numpy(dense), both
    graph = np.repeat(np.arange(len(records.sizes)), records.sizes)
    return torch.from_numpy(dense), both, torch.from_numpy(graph.astype(np.int64))


def _ratings(records: Any, known: npt.NDArray[np.bool_]) -> tuple[Tensor, ...]:
    pairs = np.stack([records.user, records.item]).astype(np.int64)
    user, item = torch.from_numpy(pairs)
    rating = torch.from_numpy(np.asarray(records.rating[known], dtype=np.float32))
    return user, item, torch.from_numpy(pairs[:, known]), rating


# Predictions for a folder of own data, with ids as in its tables.


@dataclass(frozen=True, repr=False)
class Predicted:
    """Predictions of records.

    Attributes:
        ids: columns that say which record is which, lists by name.
        columns: names of the columns of `values`: classes, labels, or ``rating``.
        values: float32 (records, columns): probabilities, or ratings.
        exclusive: whether one of the columns is the answer (classes).
    """

    ids: dict[str, list[Any]]
    columns: list[str]
    values: npt.NDArray[np.float32]
    exclusive: bool

    def csv(self) -> bytes:
        """Return a table: ids, the predicted class where there is one, then the values."""
        made = io.StringIO()
        table = csv.writer(made, lineterminator="\n")
        named = ["predicted"] if self.exclusive else []
        probabilities = [c if c == "rating" else f"p_{c}" for c in self.columns]
        table.writerow([cell(c) for c in (*self.ids, *named, *probabilities)])
        best = self.values.argmax(axis=1)
        for row, which in enumerate(zip(*self.ids.values(), strict=True)):
            said = [self.columns[best[row]]] if self.exclusive else []
            values = [f"{v:.6f}" for v in self.values[row]]
            table.writerow([*map(cell, (*which, *said)), *values])
        return made.getvalue().encode()


def _of_all_sites(folder: Path) -> UsageError:
    """Return what is said of the folder that holds all sites' folders, in place of one of them."""
    sites = sorted(f for f in folder.expanduser().iterdir() if f.is_dir() and f.name[0] != ".")
    one = sites[0] if sites else folder / "SITE"
    return UsageError(
        f"{folder} is no site's folder: it holds those of all sites.",
        why=f"{SPEC_FILE} lies in it, and each site's tables one folder further in",
        fix=f"name one site's folder, for example --site {one}",
    )


def spec_for(trained: TrainedModel, folder: Path) -> OwnSpec:
    """Return what a folder's tables hold: what the model's sites agreed on.

    A model of a published set knows no names of columns; then the ``spec.yaml`` beside the folder
    says them.

    Args:
        trained: the model.
        folder: of the records.

    Raises:
        UsageError: there is none, or the one beside the folder is another one.
    """
    beside = folder.expanduser().resolve().parent
    own = load_spec(beside) if (beside / SPEC_FILE).is_file() else None
    if own is None and (folder.expanduser() / SPEC_FILE).is_file():
        raise _of_all_sites(folder)
    if trained.agreed is None:
        if own is None:
            raise UsageError(
                "Nothing says what the columns of this folder are.",
                why="the model knows its columns by their number only, and there is no spec.yaml "
                f"in {beside}",
                fix="write one, as for training; see docs/own-data.md",
            )
        known = [f for f in _PUBLIC if f != "columns" or trained.spec.columns]
        _check_same(trained.spec, own.data_spec(1), beside / SPEC_FILE, known)
        return own
    agreed = OwnSpec.model_validate_json(trained.agreed)
    if own is not None:
        _check_same(agreed, own, beside / SPEC_FILE, _AGREED)
    return agreed


_SIZES = ("task", "features", "classes", "multilabel", "users", "items", "lowest", "highest")
_PUBLIC, _AGREED = (*_SIZES, "columns"), (*_SIZES, "vocabulary")
_OTHER = {"columns": "other columns or classes, or another order of them,"}


def _check_same(ours: object, theirs: object, path: Path, fields: Sequence[str]) -> None:
    for what in fields:
        if getattr(ours, what) != getattr(theirs, what):
            other = _OTHER.get(what, f"another {what}")
            raise UsageError(
                f"{path} has {other} than the model was trained with.",
                why="its columns would be taken for others",
                fix="give records with the columns of the training data, or train on the new ones",
            )


def _check_user(trained: TrainedModel, records: Any) -> None:
    user = trained.facts.get("user")
    if user is None or not alone(str(trained.facts["model"]["name"])):
        return
    if (np.asarray(records.user) != user).any():
        raise UsageError(
            f"This model is that of user {user} alone, and the table has ratings of others.",
            why="it holds one user's vector, which says nothing of anybody else",
            fix=f"leave the rows of user {user}, or name another site with --of",
        )


def predict(trained: TrainedModel, folder: Path, spec: OwnSpec) -> Predicted:
    """Predict every record of a folder; no label is read, and none need be there.

    Ratings that are there may be looked at, and blank ones are predicted like all others.

    Raises:
        OwnDataError: the files cannot be used; the message names file, row and column.
        UsageError: the model cannot know how to scale them, or is another user's.
    """
    if trained.facts["scaling"] == "standard" and not trained.scaling:
        raise UsageError(
            "The shared model cannot scale new records: its features are `standard`, by each "
            "site's own means and deviations.",
            why="by the new records alone, an answer would depend on which others stand beside it",
            fix="name a site whose model opens here with --of, or train with data.features: raw",
        )
    found = read_site(folder, spec, labelled=False)
    records: Any = found.whole
    _check_user(trained, records)
    known = np.ones(records.records, dtype=bool)
    if spec.task == "rating":
        known = ~np.isnan(records.rating)
    values = answers(trained, records, known)
    ids = {name: column.to_pylist() for name, column in found.ids.items()}
    if not ids:
        ids = {spec.task: list(range(len(values)))}
    names = {"rating": ["rating"], "node": list(spec.labels)}
    columns = names.get(spec.task) or list(spec.label_columns if spec.multilabel else spec.labels)
    return Predicted(ids, columns, values, exclusive=spec.task != "rating" and not spec.multilabel)


# How good a model is at one site, by that site's own labels: for the site itself.
#
# Counts and curves are those of scikit-learn. Unlike a run's scores they are one site's alone, so
# they say more of its records than anything a run lets out: they are written where they are made.

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
