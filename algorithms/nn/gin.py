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

from typing import TYPE_CHECKING, Any

from algorithms.nn._shared.layouts import Layout, Shapes, Weighing, affine
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from algorithms.nn._shared.graphs import GraphBatch, GraphsModel
    from algorithms.nn._shared.sparse import Features, Propagation

NAME = "gin"
TASK: Kind = "graph"
PROPAGATION: Weighing = "sum"

_SCALE = 8.0
"""What the sums are divided by, a mere choice of units for W. Molecules of 25 atoms then start with
logits around 1 instead of 8, and plain gradient descent converges on BBBP with steps of 0.01 to 0.1
where it did up to 0.01 only. A power of two, so that nothing is rounded."""


def layout(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Layout:
    """Per layer ε, W¹ (in, hidden), b¹, W² (hidden, hidden), b²; then the head's W and b."""
    base: Shapes = ()
    for place in range(layers):
        name = f"layers.{place}."
        first = affine(name, hidden if place else features, hidden)
        base += ((f"{name}epsilon", (1,)), *first, *affine(f"{name}second.", hidden, hidden))
    return Layout(base, affine("head.", layers * hidden, classes))


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> GraphsModel:
    """GIN with `layers` rounds of message passing, uninitialised."""
    from algorithms.nn._shared.graphs import GraphsModel

    shapes = layout(features, classes, hidden, layers, dropout).whole
    return GraphsModel(shapes, _logits, rate=dropout)


def _logits(own: Any, batch: GraphBatch, generator: torch.Generator, training: bool) -> Tensor:
    import torch

    from algorithms.nn._shared.graphs import pooled
    from algorithms.nn._shared.sparse import dropout

    hidden: Features = batch.x
    sums = []
    for layer in own.layers:
        heard = _heard(layer, hidden, batch.propagation)
        hidden = dropout(heard, own.rate, generator, training)
        sums.append(pooled(hidden, batch, "sum") / _SCALE)
    logits: Tensor = own.head(torch.cat(sums, dim=1))
    return logits


def _heard(layer: Any, x: Features, propagation: Propagation) -> Tensor:
    """Return one layer's activations.

    The MLP's first matrix is applied before the sum, which is linear: sparse features stay sparse,
    and the sum runs over `hidden` columns.
    """
    import torch

    from algorithms.nn._shared.sparse import product

    mapped = product(x, layer.weight)
    gathered = (1.0 + layer.epsilon) * mapped + product(propagation, mapped) + layer.bias
    return torch.relu(layer.second(torch.relu(gathered)))


def plain(module: Any) -> torch.nn.Module:
    """The same model in layers of PyG, see `algorithms.nn._shared.plain`; the scale is in W."""
    import torch
    from torch_geometric.nn import GINConv, Sequential, global_add_pool

    from algorithms.nn._shared.plain import Cat, filled, linear

    steps: list[Any] = []
    for place, layer in enumerate(module.layers, 1):
        first, second = linear(layer.weight, layer.bias), layer.second
        last = linear(second.weight, second.bias)
        inner = torch.nn.Sequential(first, torch.nn.ReLU(), last, torch.nn.ReLU())
        kept = {name: value.clone() for name, value in inner.state_dict().items()}
        conv = GINConv(inner, train_eps=True)  # which draws the parameters of `inner` anew
        inner.load_state_dict(kept)
        filled(conv.eps, layer.epsilon)
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
