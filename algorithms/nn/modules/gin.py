"""GIN, the graph isomorphism network.

Xu, Hu, Leskovec and Jegelka, How Powerful are Graph Neural Networks?, ICLR 2019, eq. 4.1 and 4.2:

    h_vˡ⁺¹ = ReLU(MLPˡ((1 + εˡ) h_vˡ + ∑_{u ∈ N(v)} h_uˡ)),
    logits = [∑_v h_v¹ || … || ∑_v h_vᴸ] W / 8 + b,

with MLPs of two layers and a learnt ε that starts at 0 (GIN-ε). Dropout follows every layer. Unlike
the paper's code there is no batch normalisation (see `GraphsModel` for why not), and the input
features themselves are not read out. Sums instead of means tell multisets apart, and make the
logits grow with a graph's size: on graphs of hundreds of nodes take a smaller step.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from algorithms.nn._shared.graphs import GraphBatch, GraphsModel, Linear, pooled
from algorithms.nn._shared.plain import Cat, filled, linear
from algorithms.nn._shared.sparse import Features, Propagation, dropout, product

_SCALE = 8.0
"""What the sums are divided by, a mere choice of units for W. Molecules of 25 atoms then start with
logits around 1 instead of 8, and plain gradient descent converges on BBBP with steps of 0.01 to 0.1
where it did up to 0.01 only. A power of two, so that nothing is rounded."""


class _Layer(torch.nn.Module):
    def __init__(self, wide: int, hidden: int) -> None:
        super().__init__()
        self.epsilon = torch.nn.Parameter(torch.empty(1))
        self.weight = torch.nn.Parameter(torch.empty(wide, hidden))
        self.bias = torch.nn.Parameter(torch.empty(hidden))
        self.second = Linear(hidden, hidden)

    def forward(self, x: Features, propagation: Propagation) -> Tensor:
        # The MLP's first matrix is applied before the sum, which is linear: sparse features stay
        # sparse, and the sum runs over `hidden` columns.
        mapped = product(x, self.weight)
        gathered = (1.0 + self.epsilon) * mapped + product(propagation, mapped) + self.bias
        return torch.relu(self.second(torch.relu(gathered)))


class GIN(GraphsModel):
    """GIN; per layer ε, W¹ (in, hidden), b¹, W² (hidden, hidden), b²; then the head's W and b."""

    def __init__(self, features: int, classes: int, hidden: int, layers: int, rate: float) -> None:
        super().__init__()
        self.rate = rate
        widths = [features, *[hidden] * (layers - 1)]
        self.layers = torch.nn.ModuleList(_Layer(wide, hidden) for wide in widths)
        self.head = Linear(layers * hidden, classes)

    def forward(self, batch: GraphBatch, generator: torch.Generator, training: bool) -> Tensor:
        """Logits, shape (b, C)."""
        hidden: Features = batch.x
        sums = []
        for layer in self.layers:
            hidden = dropout(layer(hidden, batch.propagation), self.rate, generator, training)
            sums.append(pooled(hidden, batch, "sum") / _SCALE)
        logits: Tensor = self.head(torch.cat(sums, dim=1))
        return logits


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> GraphsModel:
    """GIN with `layers` rounds of message passing, uninitialised."""
    return GIN(features, classes, hidden, layers, dropout)


def plain(module: GIN) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`; the scale is in the head's weights."""
    from torch_geometric.nn import GINConv, Sequential, global_add_pool

    steps: list[Any] = []
    for place, layer in enumerate(module.layers, 1):
        first, second = linear(layer.weight, layer.bias), layer.second  # type: ignore[arg-type]
        last = linear(second.weight, second.bias)  # type: ignore[union-attr,arg-type]
        inner = torch.nn.Sequential(first, torch.nn.ReLU(), last, torch.nn.ReLU())
        kept = {name: value.clone() for name, value in inner.state_dict().items()}
        conv = GINConv(inner, train_eps=True)  # which draws the parameters of `inner` anew
        inner.load_state_dict(kept)
        filled(conv.eps, layer.epsilon)  # type: ignore[arg-type]
        steps += [
            (conv, "x, edge_index -> x"),
            (torch.nn.Dropout(module.rate), "x -> x"),
            (global_add_pool, f"x, batch -> s{place}"),
        ]
    sums = ", ".join(f"s{place}" for place in range(1, len(module.layers) + 1))
    steps += [
        (Cat(), f"{sums} -> g"),
        (linear(module.head.weight / _SCALE, module.head.bias), "g -> g"),
    ]
    made: torch.nn.Module = Sequential("x, edge_index, batch", steps)
    return made.eval()
