"""Many graphs side by side: batches cut out of one block-diagonal matrix, and their readouts.

The nodes of all graphs of a site are numbered graph after graph, so whatever belongs to one graph
(rows of features, rows of the propagation matrix, their entries) lies in one run of memory. A batch
is those runs put together: a handful of array operations, none of them per node or per graph.

**One gradient for each graph of a batch** (`PerGraph`). Opacus' hooks take the first dimension of
every layer's input for the batch. In a batch of graphs that dimension counts nodes, and layers that
pass messages have more than one input; the hooks would give wrong gradients or none. The engine
behind them (`opacus.grad_sample.functorch`) takes a module of any shape: here the whole model, and
as its input graphs padded to equal size, each with its own dense propagation. Padding rows have no
features, no neighbours and another owner than the graph's nodes, so they reach neither the readout
nor any gradient.

It gives what a loop of one backward pass a graph gives, in half the time. Dropout is left out:
vmap cannot draw it graph by graph from an injected generator, and noise regularises by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
import torch
from torch import Tensor

from algorithms.nn._shared.layouts import Weighing
from algorithms.nn._shared.modules import Parameters
from algorithms.nn._shared.sparse import Features, Propagation, Sparse

__all__ = ["Blocks", "GraphBatch", "GraphsModel", "PerGraph", "pooled"]

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


class GraphsModel(Parameters):
    """A module from graphs to one row of logits a graph, with injected randomness.

    It is called with a `GraphBatch`, a generator, which feeds dropout and is untouched unless it
    trains, and whether it trains; it returns (b, C).

    No such model may use batch normalisation: its running statistics are no parameters, so they
    would stay out of the flat vector that travels and differ from client to client unseen; and its
    batch statistics would make one graph's gradient depend on the others in the batch, which
    per-graph clipping must rule out.
    """


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


Rows = Iterator[npt.NDArray[np.float32]]
Cut = Callable[[Numbers], GraphBatch]
"""From numbers of graphs to a batch of them."""

_ENTRIES = 1 << 22
"""Numbers of padded inputs, or of gradients, that are held at once: 16 MB of each."""


class PerGraph:
    """Per-graph gradients of one model, whose weights may change between calls.

    Args:
        model: an `algorithms.nn._shared.graphs.GraphsModel`.
        features: columns of the features.

    Raises:
        ValueError: the model has buffers, as batch normalisation has: through these the graphs of a
            batch touch each other.
    """

    def __init__(self, model: torch.nn.Module, features: int) -> None:
        if next(model.buffers(), None) is not None:
            raise ValueError(
                "the model has buffers (batch normalisation?), through which the graphs of a batch "
                "touch each other; clipping one graph's gradient would not bound its influence"
            )
        self._model, self._features = model, features
        self._size = sum(parameter.numel() for parameter in model.parameters())
        self._padded = _Padded(model, features)

    def rows(self, cut: Cut, graphs: Numbers, slopes: Tensor) -> Rows:
        """Yield, graph by graph, the gradient of <slope, logits> with respect to all parameters.

        If the slope is the gradient of the graph's own loss at its logits, that is the gradient of
        its loss.

        Args:
            cut: gives a batch of the graphs asked for.
            graphs: int64 (b,), numbers of graphs.
            slopes: (b, C).

        Yields:
            float32 (d,), parameters in the model's order.
        """
        alone = [cut(graphs[k : k + 1]) for k in range(len(graphs))]
        start = 0
        for end in range(1, len(graphs) + 1):
            if end == len(graphs) or self._entries(alone[start : end + 1]) > _ENTRIES:
                yield from self._together(alone[start:end], slopes[start:end])
                start = end

    def _entries(self, batches: list[GraphBatch]) -> int:
        widest = _widest(batches)
        return len(batches) * max(widest * (self._features + widest + 1), self._size)

    def _together(self, batches: list[GraphBatch], slopes: Tensor) -> Rows:
        from opacus.grad_sample.functorch import ft_compute_per_sample_gradient  # takes seconds

        padded = _stacked(batches, self._features)
        found: dict[Any, Tensor] = ft_compute_per_sample_gradient(self._padded, [padded], slopes)
        parts = [found[p].detach().reshape(len(batches), -1) for p in self._model.parameters()]
        yield from torch.cat(parts, dim=1).numpy()


class _Padded(torch.nn.Module):
    """The model on one padded graph at a time, all of it in one tensor, as the engine wants it."""

    def __init__(self, model: torch.nn.Module, features: int) -> None:
        super().__init__()
        self.model, self._features = model, features

    def forward(self, padded: Tensor) -> Tensor:
        """Logits (1, C) of (1, n, F + n + 1): features, propagation, and the owner of each row."""
        (rows,) = padded  # the engine adds a batch of one
        features, nodes = self._features, rows.shape[0]
        owner = rows[:, -1].long()
        real = (owner == 0).sum()
        dense: Any = rows[:, features : features + nodes]  # `product` takes it as it takes Sparse
        # The padding is a second graph; its size divides nothing that is used, but must not be 0.
        batch = GraphBatch(rows[:, :features], dense, owner, torch.stack([real, real]))
        logits: Tensor = self.model(batch, torch.Generator(), False)
        return logits[:1]


def _stacked(batches: list[GraphBatch], features: int) -> Tensor:
    """Return batches of one graph each side by side, (b, n, F + n + 1), n being the widest's."""
    widest = _widest(batches)
    found = torch.zeros(len(batches), widest, features + widest + 1)
    found[:, :, -1] = 1.0
    for place, batch in zip(found, batches, strict=True):
        nodes = int(batch.sizes[0])
        place[:nodes, :features] = _dense(batch.x)
        place[:nodes, features : features + nodes] = _dense(batch.propagation)
        place[:nodes, -1] = 0.0
    return found


def _widest(batches: list[GraphBatch]) -> int:
    return max(int(batch.sizes[0]) for batch in batches)


def _dense(matrix: Tensor | Sparse) -> Tensor:
    return matrix.matrix.to_dense() if isinstance(matrix, Sparse) else matrix
