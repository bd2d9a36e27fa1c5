"""GCN with a readout of features and embeddings, as FedGraphNN classifies molecules.

He et al., FedGraphNN: A Federated Learning Benchmark System for Graph Neural Networks, 2021:

    Hˡ⁺¹ = ReLU(P Hˡ Wˡ),    P = D^-1/2 (A + I) D^-1/2,    the last one, E, without the ReLU,
    r_v = ReLU(ReLU([x_v || e_v] U¹ + c¹) U² + c²),    logits = mean_v (r_v W + b).

Its settings for molecules are two layers, hidden 32 and dropout 0.3. E is as wide as the hidden
layers and r_v twice as wide (32, 64 and 64 there). Its code also leaves out the ReLU between the
layers of the GCN, which it defines and never calls; Kipf and Welling (ICLR 2017), whom it follows,
have it, and so has this file. The mean over nodes is taken before W, which is linear.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from algorithms.nn import gcn
from algorithms.nn._shared.layouts import Layout, Shapes, Weighing, affine
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from algorithms.nn._shared.graphs import GraphBatch, GraphsModel

NAME = "gcn_readout"
TASK: Kind = "graph"
PROPAGATION: Weighing = "symmetric"


def layout(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Layout:
    """U¹ (F, 2 hidden) of the features, W per layer, U¹ of the embeddings and c¹, U², c², head.

    U¹ is two matrices for the two halves of [x || e]: sparse features need no dense copy.
    """
    wide = 2 * hidden
    layer = [
        (f"layers.{place}", (hidden if place else features, hidden)) for place in range(layers)
    ]
    base: Shapes = (("own", (features, wide)), *layer)
    base += (*affine("readout.", hidden, wide), *affine("second.", wide, wide))
    return Layout(base, affine("head.", wide, classes))


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> GraphsModel:
    """GCN of `layers` layers with a readout, uninitialised."""
    from algorithms.nn._shared.graphs import GraphsModel

    shapes = layout(features, classes, hidden, layers, dropout).whole
    return GraphsModel(shapes, _logits, rate=dropout)


def _logits(own: Any, batch: GraphBatch, generator: torch.Generator, training: bool) -> Tensor:
    import torch

    from algorithms.nn._shared.graphs import pooled
    from algorithms.nn._shared.sparse import dropout, product

    first, *others = own.layers
    hidden = product(batch.propagation, product(batch.x, first))
    for weight in others:
        hidden = dropout(torch.relu(hidden), own.rate, generator, training)
        hidden = product(batch.propagation, product(hidden, weight))
    read = torch.relu(product(batch.x, own.own) + own.readout(hidden))
    logits: Tensor = own.head(pooled(torch.relu(own.second(read)), batch, "mean"))
    return logits


def plain(module: Any) -> torch.nn.Module:
    """The same model in layers of PyG, see `algorithms.nn._shared.plain`."""
    import torch
    from torch_geometric.nn import Sequential, global_mean_pool

    from algorithms.nn._shared.plain import Cat, linear

    steps: list[Any] = []
    for place, weight in enumerate(module.layers):
        if place:
            steps += [(torch.nn.ReLU(), "h -> h"), (torch.nn.Dropout(module.rate), "h -> h")]
        steps.append((gcn.convolution(weight, None), f"{'h' if place else 'x'}, edge_index -> h"))
    both = torch.cat([module.own, module.readout.weight])
    steps += [
        (Cat(), "x, h -> h"),
        (linear(both, module.readout.bias), "h -> h"),
        (torch.nn.ReLU(), "h -> h"),
        (linear(module.second.weight, module.second.bias), "h -> h"),
        (torch.nn.ReLU(), "h -> h"),
        (global_mean_pool, "h, batch -> g"),
        (linear(module.head.weight, module.head.bias), "g -> g"),
    ]
    made: torch.nn.Module = Sequential("x, edge_index, batch", steps)
    return made.eval()
