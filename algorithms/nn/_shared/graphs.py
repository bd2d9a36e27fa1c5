"""Many graphs side by side: batches cut out of one block-diagonal matrix, and their readouts.

The nodes of all graphs of a site are numbered graph after graph, so whatever belongs to one graph
(rows of features, rows of the propagation matrix, their entries) lies in one run of memory. A batch
is those runs put together: a handful of array operations, none of them per node or per graph.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from algorithms.nn._shared.layouts import Weighing
from algorithms.nn._shared.sparse import Features, Propagation, Sparse, product

__all__ = ["Blocks", "GraphBatch", "GraphsModel", "Linear", "pooled"]

Numbers = npt.NDArray[np.int64]

_NARROW = 256
"""Feature columns up to which a batch's sparse rows are made dense: a batch is small, and a dense
product then costs less than a transpose in every step. The site's own matrix stays sparse."""


class GraphBatch(NamedTuple):
    """Some graphs of a site, in the order they were asked for.

    Attributes:
        x: features of their nodes (n, F).
        propagation: block-diagonal, (n, n): nothing passes from one graph to another.
        owner: int64 (n,), which graph of the batch a node is of, ascending from 0.
        sizes: int64 (b,), nodes of each graph, 1 or more.
    """

    x: Features
    propagation: Propagation
    owner: Tensor
    sizes: Tensor


class GraphsModel(torch.nn.Module):
    """A module from graphs to one row of logits a graph, with injected randomness.

    No such model may use batch normalisation: its running statistics are no parameters, so they
    would stay out of the flat vector that travels and differ from client to client unseen; and its
    batch statistics would make one graph's gradient depend on the others in the batch, which
    per-graph clipping must rule out.
    """

    def forward(self, batch: GraphBatch, generator: torch.Generator, training: bool) -> Tensor:
        """Logits, shape (b, C). `generator` feeds dropout and is untouched unless `training`."""
        raise NotImplementedError


class Linear(torch.nn.Module):
    """x W + b, with W of shape (in, out) before b of shape (out,); uninitialised."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(wide, out))
        self.bias = torch.nn.Parameter(torch.empty(out))

    def forward(self, x: Features) -> Tensor:
        """Rows of `x` (n, in) mapped to (n, out); sparse rows stay sparse."""
        return product(x, self.weight) + self.bias


def pooled(hidden: Tensor, batch: GraphBatch, how: Literal["sum", "mean"]) -> Tensor:
    """The sum or the mean of each graph's node rows: (n, k) to (b, k)."""
    zeros = hidden.new_zeros(len(batch.sizes), hidden.shape[1])
    sums = zeros.index_add(0, batch.owner, hidden)
    return sums if how == "sum" else sums / batch.sizes.to(sums.dtype).unsqueeze(1)


class Blocks:
    """Features and propagation of all graphs of a site, of which any may be asked for.

    Args:
        sizes: int64 (G,), nodes of each graph, 1 or more.
        x: features (N, F) of all nodes, graph after graph: a dense tensor or scipy CSR.
        matrix: propagation over all nodes (N, N), in which no entry joins two graphs.
        kind: how `matrix` weighs; all but "mean" are symmetric, and so their own transpose.
    """

    def __init__(
        self, sizes: Numbers, x: Tensor | sp.csr_array, matrix: Propagation, kind: Weighing
    ) -> None:
        self._sizes, self._x = sizes, x
        self._starts = np.cumsum(sizes) - sizes
        self._forward = _Rows.of(matrix.matrix)
        self._backward = self._forward if kind != "mean" else _Rows.of(matrix.transpose)

    def cut(self, graphs: Numbers) -> GraphBatch:
        """The graphs of these numbers; one asked for twice comes twice.

        Args:
            graphs: int64 (b,), 1 or more numbers below G, in any order.
        """
        sizes, starts = self._sizes[graphs], self._starts[graphs]
        nodes = _runs(starts, sizes)
        owner = np.repeat(np.arange(len(graphs)), sizes)
        shift = np.repeat(np.cumsum(sizes) - sizes - starts, sizes)  # from site to batch numbers
        forward = self._forward.block(nodes, starts, sizes, shift)
        same = self._backward is self._forward
        return GraphBatch(
            self._features(nodes),
            Sparse(forward, forward if same else self._backward.block(nodes, starts, sizes, shift)),
            torch.from_numpy(owner),
            torch.from_numpy(sizes),
        )

    def _features(self, nodes: Numbers) -> Features:
        if isinstance(self._x, Tensor):
            return self._x.index_select(0, torch.from_numpy(nodes))
        rows = self._x[nodes]
        return torch.tensor(rows.toarray()) if rows.shape[1] <= _NARROW else Sparse.of(rows)


class _Rows(NamedTuple):
    """A CSR matrix over the nodes of all graphs."""

    indptr: Numbers
    indices: Numbers
    values: Tensor

    @classmethod
    def of(cls, matrix: Tensor) -> _Rows:
        indptr, indices = matrix.crow_indices().numpy(), matrix.col_indices().numpy()
        return cls(indptr, indices, matrix.values())

    def block(self, nodes: Numbers, starts: Numbers, sizes: Numbers, shift: Numbers) -> Tensor:
        """The rows of some graphs, with columns numbered within the batch."""
        begin = self.indptr[starts]
        entries = _runs(begin, self.indptr[starts + sizes] - begin)
        width = self.indptr[nodes + 1] - self.indptr[nodes]
        indptr = np.concatenate([[0], np.cumsum(width)])
        columns = self.indices[entries] + np.repeat(shift, width)
        return torch.sparse_csr_tensor(
            torch.from_numpy(indptr),
            torch.from_numpy(columns),
            self.values[torch.from_numpy(entries)],
            size=(len(nodes), len(nodes)),
            check_invariants=False,
        )


def _runs(starts: Numbers, lengths: Numbers) -> Numbers:
    """Whole numbers from each start on, as many as each length says, run after run."""
    ends = np.cumsum(lengths)
    steps: Numbers = np.arange(lengths.sum()) + np.repeat(starts - ends + lengths, lengths)
    return steps
