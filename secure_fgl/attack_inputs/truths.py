"""What is true of a client, to hold an attack's guesses against. It stays with the client."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from algorithms.nn._shared.sparse import Sparse
from algorithms.tasks import DataSpec, Site
from audits.attacks import Truth

__all__ = ["items_of", "labels_of", "ratings_of", "rows_of", "tested_of", "truth_of"]


def truth_of(site: Site, spec: DataSpec, hops: int) -> Truth:
    """Return labels of the training records, and features of who trained and who had no influence.

    Args:
        site: the client's.
        spec: of the data; tasks without classes have no label counts.
        hops: how far a model of this depth looks from a training node.
    """
    if spec.task == "node":
        return _of_nodes(site, spec, hops)
    return Truth(labels=labels_of(site, spec))


def labels_of(site: Site, spec: DataSpec) -> Any:
    """Return the training records per class, int64 (C,); None where a record has no one class."""
    data: Any = site.data
    if spec.task == "rating" or np.asarray(data.y).ndim != 1:
        return None
    return _counted(np.asarray(data.y)[np.asarray(data.train, dtype=bool)], spec.classes)


def items_of(site: Site, spec: DataSpec) -> Any:
    """Return the numbers of the items that a client trains on, int64 (k,); None: it rates none."""
    if spec.task != "rating":
        return None
    data: Any = site.data
    return np.asarray(data.items)[np.unique(data.item[data.train].numpy())].astype(np.int64)


def ratings_of(site: Site) -> Any:
    """Return a client's mean training rating of each of `items_of`, float64 (k,)."""
    data: Any = site.data
    train = data.train.numpy()
    place = np.unique(data.item.numpy()[train], return_inverse=True)[1]
    total = np.bincount(place, weights=data.rating.numpy()[train].astype(np.float64))
    return total / np.bincount(place)


def tested_of(site: Site) -> int:
    """Return how many test records a client has."""
    data: Any = site.data
    return int(np.count_nonzero(np.asarray(data.test)))


def _counted(labels: Any, classes: int) -> Any:
    known = labels[labels >= 0].astype(np.int64)
    return np.bincount(known, minlength=classes).astype(np.int64)


def _of_nodes(site: Site, spec: DataSpec, hops: int) -> Truth:
    data: Any = site.data
    train, edges = data.train.numpy(), data.edges.numpy()
    nodes = len(train)
    ones = np.ones(edges.shape[1], dtype=np.int64)
    links = sp.coo_matrix((ones, (edges[0], edges[1])), shape=(nodes, nodes)).tocsr()
    links = links + links.T
    reached = train | data.common.numpy()  # what all were given is nobody's secret
    for _ in range(hops):
        reached = reached | (links @ reached.astype(np.int64) > 0)
    members, outsiders = rows_of(data.x, train), rows_of(data.x, ~reached)
    # Equal features cannot be told apart by anybody: such rows are on neither side.
    known = {row.tobytes() for row in members}
    kept = np.asarray([row.tobytes() not in known for row in outsiders], dtype=bool)
    labels = labels_of(site, spec)
    return Truth(labels=labels, members=members, outsiders=outsiders[kept])


def rows_of(x: Any, wanted: Any) -> Any:
    """Return the chosen rows of dense or sparse features, dense."""
    if isinstance(x, Sparse):
        parts = (x.matrix.values(), x.matrix.col_indices(), x.matrix.crow_indices())
        arrays: Any = tuple(part.numpy() for part in parts)
        whole: Any = sp.csr_matrix(arrays, shape=(x.matrix.shape[0], x.matrix.shape[1]))
        rows = whole[wanted].toarray()
    else:
        rows = x.numpy()[wanted]
    return np.ascontiguousarray(rows, dtype=np.float32)
