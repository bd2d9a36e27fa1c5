"""Predictions for a folder of own data, with ids as in its tables."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from algorithms.nn import alone
from audits.formats.csv import cell
from secure_fgl.data.own import OwnSpec, load_spec, read_site
from secure_fgl.data.own.spec import SPEC_FILE
from secure_fgl.errors import UsageError
from secure_fgl.predicting.inputs import answers
from secure_fgl.store.trained_model import TrainedModel

__all__ = ["Predicted", "predict", "spec_for"]


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
