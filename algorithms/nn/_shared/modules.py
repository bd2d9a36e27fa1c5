"""Torch modules that models share: parameters by their layout, stacks, and networks in two parts.

A model's file holds functions of its parameters, which `Parameters` calls, and imports this module
inside `build` alone: a plan reads the file's `layout` and loads no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from algorithms.nn._shared.layouts import Layout, Shapes, levels
from algorithms.nn._shared.sparse import Features, Propagation, dropout, product
from algorithms.tasks import Weights

__all__ = [
    "Compute",
    "Dense",
    "EgoNet",
    "GraphModel",
    "Parameters",
    "Sage",
    "Stack",
    "moved_buffers",
    "started",
]

Compute = Callable[..., Tensor]
"""From a module and what it is called with to its outputs."""


class Parameters(torch.nn.Module):
    """Parameters of given names and shapes, uninitialised, and a function of them.

    Args:
        shapes: a dot in a name makes a part of its own: "second.weight" is `second`'s `weight`.
        compute: None: x W + b, of a `weight` and a `bias`; sparse rows of x stay sparse.
        rate: of dropout, where `compute` drops something.
        parts: further modules by name, registered in this order.
        facts: what else `compute` reads.
    """

    def __init__(
        self,
        shapes: Shapes = (),
        compute: Compute | None = None,
        *,
        rate: float = 0.0,
        parts: Mapping[str, torch.nn.Module] | None = None,
        **facts: Any,
    ) -> None:
        super().__init__()
        self.compute, self.rate, self.facts = compute, rate, facts
        within: dict[str, Shapes] = {}
        for name, shape in shapes:
            first, _, rest = name.partition(".")
            if rest:
                within[first] = (*within.get(first, ()), (rest, shape))
            else:
                self.register_parameter(name, torch.nn.Parameter(torch.empty(shape)))
        for name, inner in within.items():
            self.add_module(name, Parameters(inner))
        for name, part in (parts or {}).items():
            self.add_module(name, part)

    def forward(self, *given: Any) -> Tensor:
        """Return what `compute` makes of itself and what is given."""
        if self.compute is not None:
            return self.compute(self, *given)
        own = cast(Any, self)  # attributes, not `get_parameter`: others may stand in for parameters
        outputs: Tensor = product(given[0], own.weight) + own.bias
        return outputs

    def __iter__(self) -> Iterator[Any]:
        return iter([*self._parameters.values(), *self._modules.values()])

    def __len__(self) -> int:
        return len(self._parameters) + len(self._modules)


class GraphModel(torch.nn.Module):
    """A module from features and propagation to logits, with injected randomness."""

    def forward(
        self, x: Features, propagation: Propagation, generator: torch.Generator, training: bool
    ) -> Tensor:
        """Logits, shape (N, C). `generator` feeds dropout and is untouched unless `training`."""
        raise NotImplementedError


class Stack(GraphModel):
    """Graph layers with ReLU and dropout on the hidden activations only.

    Args:
        layers: modules from (x, propagation) to the next activations, in order.
        rate: dropout rate.
    """

    @classmethod
    def of(cls, layout: Layout, layers: Iterable[Compute | None], rate: float) -> Stack:
        """Return the stack of a layout, of which each layer computes one of `layers`."""
        parts = Parameters(layout.whole).get_submodule("layers")
        made = [cast(Parameters, part) for part in parts.children()]
        for part, compute in zip(made, layers, strict=True):
            part.compute = compute
        return cls(made, rate)

    def __init__(self, layers: Iterable[torch.nn.Module], rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.layers = torch.nn.ModuleList(layers)

    def forward(
        self,
        x: Features,
        propagation: Propagation,
        generator: torch.Generator,
        training: bool,
        given: Tensor | None = None,
    ) -> Tensor:
        """Logits, shape (N, C).

        With `given`, (r, D), the last r nodes' activations behind the first layer's ReLU are these,
        whatever their features.
        """
        first, *others = self.layers
        hidden: Tensor = first(x, propagation)
        for place, layer in enumerate(others):
            hidden = torch.relu(hidden)
            if given is not None and place == 0:
                hidden = torch.cat([hidden[: len(hidden) - len(given)], given])
            hidden = dropout(hidden, self.rate, generator, training)
            hidden = layer(hidden, propagation)
        return hidden


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
    """Reduction layers, then personalisation layers, then a classifier without bias (FedEgo).

    The reduction layers map every node's features to an embedding r; the personalisation layers
    judge a node by the embeddings around it. An ego-graph of k hops with fan-out n is a tree: its
    positions are numbered level by level, position 0 is the centre, and the children of position p
    are n p + 1, ..., n p + n. Each level j has n^j positions, so k = 2 and n = 6 make 43.

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


def started(module: torch.nn.Module, drawn: Weights) -> Weights:
    """Return a module's parameters as it made them, flat; what it left open is `drawn`.

    Our own modules make nothing: their parameters are drawn by their task. A module from outside
    the folder may make scales of ones, weights by torch's initialisers, and constants in buffers.
    It is made under a seed, in torch's deterministic mode, which fills what `torch.empty` leaves
    open with NaN: values that are NaN are those that the module did not set.
    """
    made = torch.cat([p.detach().reshape(-1) for p in module.parameters()])
    found: Weights = made.to(torch.float32).numpy()
    return np.where(np.isnan(found), drawn, found)


def moved_buffers(module: torch.nn.Module, forward: Callable[[], object]) -> list[str]:
    """Return the names of buffers that a forward pass changes."""
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    forward()
    now = dict(module.named_buffers())
    return [
        name
        for name, buffer in before.items()
        if name not in now or not torch.equal(now[name].nan_to_num(), buffer.nan_to_num())
    ] + [name for name in now if name not in before]
