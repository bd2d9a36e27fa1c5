"""From records to what a plain module takes, and its answers; by kind of task."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from algorithms.tasks.training import activated
from secure_fgl.data.features import rescaled
from secure_fgl.store.trained_model import TrainedModel

__all__ = ["answers"]

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
