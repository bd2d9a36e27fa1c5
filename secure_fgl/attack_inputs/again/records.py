"""A client's records, one by one, as the attack on released models asks about them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch

from algorithms.nn._shared.ratings import Bipartite
from algorithms.tasks import DataSpec, Predictions
from audits.attacks import Candidates
from secure_fgl.attack_inputs.truths import rows_of

__all__ = ["Asked", "asked_of", "training_on"]

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_LEAST = 1e-30  # of a probability, so that its logarithm is finite


@dataclass(frozen=True, repr=False)
class Asked:
    """Records of one client of which it is asked whether they trained.

    Attributes:
        data: the client's, as the task takes it.
        spec: of the data.
        numbers: (N,), their numbers at the site, ascending: training and held-out records.
        candidates: what an attack is told of them.
    """

    data: Any
    spec: DataSpec
    numbers: npt.NDArray[np.int64]
    candidates: Candidates

    def training_on(self, marked: Bools) -> Any:
        """Return the client's data with the marked of these records, (N,), to train on."""
        train = np.zeros(len(self.data.train), dtype=bool)
        train[self.numbers[marked]] = True
        return training_on(self.data, self.spec, train)

    def without(self, kept: Bools) -> Asked:
        """Return only some of these records."""
        one = self.candidates
        cut = Candidates(one.members[kept], one.known[:, kept], one.marks[kept])
        return replace(self, numbers=self.numbers[kept], candidates=cut)

    def confidence(self, predictions: Predictions) -> Array:
        """Return how sure predictions for all of the site's records are of the truth, (N,)."""
        p = np.asarray(predictions, dtype=np.float64)[self.numbers]
        if self.spec.task == "rating":
            off: Array = np.abs(p[:, 0] - self.data.rating.numpy()[self.numbers])
            return -off
        y = self.data.y.numpy()[self.numbers]
        if y.ndim > 1:  # a yes-or-no question a column, some without an answer
            p = np.clip(p, 1e-7, 1.0 - 1e-7)
            odds = np.log(p) - np.log1p(-p)
            found: Array = np.nanmean(
                np.where(np.isnan(y), np.nan, np.where(y > 0, odds, -odds)), 1
            )
            return found
        own = np.arange(p.shape[1]) == y[:, None]
        right, wrong = (np.where(side, p, 0.0).sum(axis=1) for side in (own, ~own))
        logit: Array = np.log(np.maximum(right, _LEAST)) - np.log(np.maximum(wrong, _LEAST))
        return logit


def training_on(data: Any, spec: DataSpec, train: Bools) -> Any:
    """Return a client's data with other records to train on; none is held out."""
    none = torch.zeros(len(train), dtype=torch.bool)
    roles: dict[str, Any] = {"train": torch.from_numpy(train), "val": none, "test": none}
    if spec.task == "node":
        roles["kept"] = {}
    if spec.task == "rating":
        pairs = torch.stack([data.user, data.item])[:, roles["train"]]
        sizes = len(data.users), len(data.items)
        roles["graph"] = Bipartite(pairs, *sizes, data.rating[roles["train"]])
    return replace(data, **roles)


def asked_of(data: Any, spec: DataSpec) -> Asked:
    """Return the records of a client that trained, and those that it held out with an answer.

    Args:
        data: of a site.
        spec: of the data.
    """
    train = data.train.numpy()
    there = train | data.val.numpy() | data.test.numpy()
    if spec.multilabel:
        there = there & ~np.isnan(data.y.numpy()).all(axis=1)
    numbers = np.flatnonzero(there)
    look = {"node": _nodes, "graph": _graphs, "rating": _ratings}[spec.task]
    known, marks = look(data, numbers)
    return Asked(data, spec, numbers, Candidates(train[numbers], np.stack(known), marks))


Known = tuple[list[Array], npt.NDArray[np.bytes_]]


def _nodes(data: Any, numbers: Any) -> Known:
    """Degree, share of the class and closeness to the mean; marked by features and label."""
    chosen = np.zeros(data.nodes, dtype=bool)
    chosen[numbers] = True
    x, y = rows_of(data.x, chosen), data.y.numpy()[numbers]
    degree = np.bincount(data.edges.numpy().ravel(), minlength=data.nodes)[numbers]
    marks = _marks(row.tobytes() + label.tobytes() for row, label in zip(x, y, strict=True))
    return [degree.astype(np.float64), _share(y), _near(x)], marks


def _graphs(data: Any, numbers: Any) -> Known:
    """Nodes, edges, share of the class and closeness to the mean; marked by all of a graph."""
    sizes, edges = data.sizes, data.edges.numpy()
    owner = np.repeat(np.arange(len(sizes)), sizes)
    x: Any = data.x if sp.issparse(data.x) else sp.csr_array(data.x.numpy())
    member = sp.csr_array((np.ones(len(owner)), (owner, np.arange(len(owner)))))
    means = np.asarray((member @ x).todense())[numbers] / sizes[numbers, None]
    count = np.bincount(owner[edges[0]], minlength=len(sizes))[numbers]
    y, starts = data.y.numpy(), np.cumsum(sizes) - sizes
    order = np.argsort(owner[edges[0]], kind="stable")
    ends = np.searchsorted(owner[edges[0]][order], np.arange(len(sizes) + 1))

    def whole(number: int) -> bytes:
        first = starts[number]
        rows: bytes = x[first : first + sizes[number]].toarray().tobytes()
        own = edges[:, order[ends[number] : ends[number + 1]]] - first
        ends_of, label = bytes(own.tobytes()), bytes(y[number].tobytes())
        return rows + ends_of + label

    known = [sizes[numbers].astype(np.float64), count.astype(np.float64)]
    known += [_near(means)] + ([_share(y[numbers])] if y.ndim == 1 else [])
    return known, _marks(map(whole, numbers))


def _ratings(data: Any, numbers: Any) -> Known:
    """How many ratings user and item have, share of the value and closeness to the mean."""
    user, item = data.user.numpy()[numbers], data.item.numpy()[numbers]
    rating = data.rating.numpy()[numbers].astype(np.float64)
    known = [_often(user), _often(item), _share(rating), -np.abs(rating - _middle(rating))]
    pairs = zip(data.users[user].tolist(), data.items[item].tolist(), strict=True)
    return known, _marks(f"{one} {other}".encode() for one, other in pairs)


def _often(values: Any) -> Array:
    """Return of each value how many there are."""
    _, place, count = np.unique(values, return_inverse=True, return_counts=True)
    found: Array = count[place].astype(np.float64)
    return found


def _share(values: Any) -> Array:
    return _often(values) / max(len(values), 1)


def _near(rows: Any) -> Array:
    found: Array = -np.linalg.norm(rows - _middle(rows), axis=1).astype(np.float64)
    return found


def _middle(rows: Any) -> Any:
    """Return the mean of rows; zero where there are none, as at a site below the floor."""
    return rows.sum(axis=0) / max(len(rows), 1)


def _marks(records: Any) -> npt.NDArray[np.bytes_]:
    return np.array([hashlib.sha256(one).hexdigest().encode() for one in records], dtype="S64")
