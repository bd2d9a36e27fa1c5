"""Networks in two parts, of which the second also works on ego-graphs of a fixed shape (FedEgo).

The reduction layers map every node's features to an embedding r; the personalisation layers judge a
node by the embeddings around it. An ego-graph of k hops with fan-out n is a tree: its positions are
numbered level by level, position 0 is the centre, and the children of position p are
n p + 1, ..., n p + n. Each level j has n^j positions, so k = 2 and n = 6 make 43.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from algorithms.nn._shared.ego_layouts import levels
from algorithms.nn._shared.graph_model import GraphModel
from algorithms.nn._shared.sparse import Features, Propagation, dropout, product

__all__ = ["Dense", "EgoNet", "Sage"]


class Dense(torch.nn.Module):
    """x W + b, of a node alone; the neighbours are not read."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(wide, out))
        self.bias = torch.nn.Parameter(torch.empty(out))

    def forward(self, x: Features, propagation: Propagation | None) -> Tensor:
        """Return one row for each row of `x`."""
        return product(x, self.weight) + self.bias


class Sage(torch.nn.Module):
    """x W_own + mean of the neighbours' x W_near + b (Hamilton et al., NeurIPS 2017)."""

    def __init__(self, wide: int, out: int) -> None:
        super().__init__()
        self.own = torch.nn.Parameter(torch.empty(wide, out))
        self.near = torch.nn.Parameter(torch.empty(wide, out))
        self.bias = torch.nn.Parameter(torch.empty(out))

    def forward(self, x: Features, propagation: Propagation) -> Tensor:
        """Return one row for each row of `x`, on a whole graph."""
        near = product(propagation, product(x, self.near))
        return product(x, self.own) + near + self.bias

    def above(self, parents: Tensor, children: Tensor) -> Tensor:
        """Return one row a parent of a tree.

        Args:
            parents: (B, m, D).
            children: (B, m n, D); those of one parent stand together.
        """
        batch, count, wide = parents.shape
        mean = children.reshape(batch, count, -1, wide).mean(dim=2)
        return parents @ self.own + mean @ self.near + self.bias


class EgoNet(GraphModel):
    """Reduction layers, then personalisation layers, then a classifier without bias.

    Parameters are registered in this order, so the flat vector is Theta, then Phi.

    Args:
        reduction: layers from (x, propagation) to activations; a ReLU follows each.
        personal: `Sage` layers, or `Dense` ones, which need no ego-graph.
        classes: C.
        rate: dropout rate on all hidden activations.
        linear: without the ReLUs between the personalisation layers; the last one's stays.
    """

    def __init__(
        self,
        reduction: Sequence[torch.nn.Module],
        personal: Sequence[Sage | Dense],
        classes: int,
        rate: float,
        *,
        linear: bool = False,
    ) -> None:
        super().__init__()
        self.rate, self.linear = rate, linear
        self.reduction = torch.nn.ModuleList(reduction)
        self.personal = torch.nn.ModuleList(personal)
        width = personal[-1].bias.shape[0]
        self.head = _Classifier(width, classes)

    @property
    def hops(self) -> int:
        """Hops of the ego-graphs that the personalisation layers read: one for each `Sage`."""
        return sum(isinstance(layer, Sage) for layer in self.personal)

    @property
    def alone(self) -> bool:
        """Whether a node's reduction embedding depends on its own features only."""
        return all(isinstance(layer, Dense) for layer in self.reduction)

    def reduce(
        self,
        x: Features,
        propagation: Propagation | None,
        generator: torch.Generator,
        training: bool,
    ) -> Tensor:
        """Return the reduction embedding of every node, (N, D), without dropout on it.

        Nothing is propagated where `alone`.
        """
        first, *others = self.reduction
        hidden = torch.relu(first(x, propagation))
        for layer in others:
            hidden = dropout(hidden, self.rate, generator, training)
            hidden = torch.relu(layer(hidden, propagation))
        return hidden

    def forward(
        self, x: Features, propagation: Propagation, generator: torch.Generator, training: bool
    ) -> Tensor:
        """Logits of every node of a whole graph, (N, C); all neighbours, nothing sampled."""
        hidden = self.reduce(x, propagation, generator, training)
        for last, layer in self._layers():
            hidden = dropout(hidden, self.rate, generator, training)
            hidden = self._bent(layer(hidden, propagation), last)
        return self._classified(hidden, generator, training)

    def judge(
        self, egos: Tensor, fan_out: int, generator: torch.Generator, training: bool
    ) -> Tensor:
        """Logits of the centres of ego-graphs, (B, C).

        Args:
            egos: reduction embeddings at all positions, (B, positions, D), dropped out already.
            fan_out: children of a position, n.
            generator: feeds dropout; untouched unless `training`.
            training: whether there is dropout.
        """
        sizes = levels(self.hops, fan_out)
        hidden = list(torch.split(egos, list(sizes), dim=1))
        for last, layer in self._layers():
            if isinstance(layer, Sage):
                pairs = pairwise(hidden)
                hidden = [self._bent(layer.above(up, low), last) for up, low in pairs]
            else:
                hidden = [self._bent(layer(level, None), last) for level in hidden]
            if not last:
                hidden = [dropout(level, self.rate, generator, training) for level in hidden]
        return self._classified(hidden[0][:, 0], generator, training)

    def _layers(self) -> list[tuple[bool, torch.nn.Module]]:
        count = len(self.personal)
        return [(place == count - 1, layer) for place, layer in enumerate(self.personal)]

    def _bent(self, hidden: Tensor, last: bool) -> Tensor:
        return hidden if self.linear and not last else torch.relu(hidden)

    def _classified(self, hidden: Tensor, generator: torch.Generator, training: bool) -> Tensor:
        logits: Tensor = self.head(dropout(hidden, self.rate, generator, training))
        return logits


class _Classifier(torch.nn.Module):
    def __init__(self, wide: int, classes: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(wide, classes))

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden @ self.weight
