"""One gradient for each graph of a batch, by Opacus' functorch engine.

Opacus' hooks take the first dimension of every layer's input for the batch. In a batch of graphs
that dimension counts nodes, and layers that pass messages have more than one input; the hooks
would give wrong gradients or none. The engine behind them (`opacus.grad_sample.functorch`) takes
a module of any shape: here the whole model, and as its input graphs padded to equal size, each with
its own dense propagation. Padding rows have no features, no neighbours and another owner than the
graph's nodes, so they reach neither the readout nor any gradient.

It gives what a loop of one backward pass a graph gives, in half the time. Dropout is left out:
vmap cannot draw it graph by graph from an injected generator, and noise regularises by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algorithms.nn._shared.graphs import GraphBatch
from algorithms.nn._shared.sparse import Sparse

__all__ = ["PerGraph"]

Numbers = npt.NDArray[np.int64]
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
