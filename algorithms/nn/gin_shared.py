"""GIN as GCFL federates it: convolutions of one width between an input layer and a readout.

Xie, Ma, Xiong and Yang, Federated Graph Classification over Non-IID Graphs, NeurIPS 2021, and the
authors' code:

    h_v⁰ = x_v W + b,    h_vˡ⁺¹ = ReLU(MLPˡ(h_vˡ + ∑_{u ∈ N(v)} h_uˡ)),
    logits = readout(ReLU(post(∑_v h_vᴸ))),

with MLPs of two layers and dropout after every convolution and after `post`. The MLPs are the base:
their size depends on `hidden` and `layers` alone (24,960 numbers with 64 and 3), so that clients
with other features and other classes can share them. Input layer, `post` and readout are the head,
which stays at its client. Sums of nodes are not scaled, as in the authors' code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from algorithms.nn._shared.layouts import Layout, Shapes, Weighing, affine
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from algorithms.nn._shared.graphs import GraphBatch, GraphsModel

NAME = "gin_shared"
TASK: Kind = "graph"
PROPAGATION: Weighing = "sum"


def layout(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Layout:
    """The convolutions W¹, b¹, W², b²; then the head: input, post and readout layer, W and b each.

    The base does not depend on `features` and `classes`.
    """
    base: Shapes = ()
    for place in range(layers):
        name = f"layers.{place}."
        base += affine(f"{name}first.", hidden, hidden) + affine(f"{name}second.", hidden, hidden)
    head = affine("head.input.", features, hidden) + affine("head.post.", hidden, hidden)
    return Layout(base, head + affine("head.readout.", hidden, classes))


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> GraphsModel:
    """GIN with `layers` convolutions, uninitialised."""
    from algorithms.nn._shared.graphs import GraphsModel

    shapes = layout(features, classes, hidden, layers, dropout).whole
    return GraphsModel(shapes, _logits, rate=dropout)


def _logits(own: Any, batch: GraphBatch, generator: torch.Generator, training: bool) -> Tensor:
    import torch

    from algorithms.nn._shared.graphs import pooled
    from algorithms.nn._shared.sparse import dropout, product

    hidden: Tensor = own.head.input(batch.x)
    for layer in own.layers:
        gathered = hidden + product(batch.propagation, hidden)
        heard = torch.relu(layer.second(torch.relu(layer.first(gathered))))
        hidden = dropout(heard, own.rate, generator, training)
    seen = torch.relu(own.head.post(pooled(hidden, batch, "sum")))
    logits: Tensor = own.head.readout(dropout(seen, own.rate, generator, training))
    return logits


def plain(module: Any) -> torch.nn.Module:
    """The same model in layers of PyG, see `algorithms.nn._shared.plain`."""
    import torch
    from torch_geometric.nn import GINConv, Sequential, global_add_pool

    from algorithms.nn._shared.plain import linear

    def same(layer: Any) -> torch.nn.Linear:
        return linear(layer.weight, layer.bias)

    steps: list[Any] = [(same(module.head.input), "x -> x")]
    for layer in module.layers:
        inner = torch.nn.Sequential(same(layer.first), torch.nn.ReLU(), same(layer.second))
        kept = {name: value.clone() for name, value in inner.state_dict().items()}
        conv = GINConv(inner)  # which draws the parameters of `inner` anew
        inner.load_state_dict(kept)
        steps += [
            (conv, "x, edge_index -> x"),
            (torch.nn.ReLU(), "x -> x"),
            (torch.nn.Dropout(module.rate), "x -> x"),
        ]
    steps += [
        (global_add_pool, "x, batch -> x"),
        (same(module.head.post), "x -> x"),
        (torch.nn.ReLU(), "x -> x"),
        (torch.nn.Dropout(module.rate), "x -> x"),
        (same(module.head.readout), "x -> x"),
    ]
    made: torch.nn.Module = Sequential("x, edge_index, batch", steps)
    return made.eval()
