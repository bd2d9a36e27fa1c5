"""GraphSAGE as FedSage trains it: five drawn neighbours a node, and layers in two halves.

Hamilton, Ying and Leskovec, NeurIPS 2017, Algorithm 1, with a matrix for each part of the
concatenation, as StellarGraph's mean aggregator has it:

    h_vˡ⁺¹ = ReLU([h_vˡ W_own | mean_{u ∈ S(v)} h_uˡ W_near] + b),    logits = h_vᴸ W + b,

where S(v) is what the propagation matrix holds: in training, at most `FAN_OUT` neighbours, drawn
anew for each batch, and all of them in a prediction (Zhang et al., FedSage, NeurIPS 2021). No row
normalisation between layers. Layer l is hidden / 2^l wide, so 64 and 32 by default.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from algorithms.nn._shared.layouts import Layout, Shapes, Weighing, affine, stacked
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from algorithms.nn._shared.modules import Stack
    from algorithms.nn._shared.sparse import Features, Propagation

NAME = "graph_sage_sampled"
TASK: Kind = "node"
PROPAGATION: Weighing = "mean"
FAN_OUT = 5


def widths(features: int, hidden: int, layers: int) -> list[int]:
    """Return F, then each layer's width, two at least."""
    return [features, *[max(hidden >> place, 2) for place in range(1, layers + 1)]]


def layout(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Layout:
    """Per layer W_own, W_near of half its width each, b; the head's W, b."""
    wide = widths(features, hidden, layers)
    below = [_halves(f"layers.{place}.", *pair) for place, pair in enumerate(pairwise(wide))]
    return stacked([*below, affine(f"layers.{layers}.", wide[-1], classes)])


def _halves(name: str, wide: int, out: int) -> Shapes:
    own, near = out - out // 2, out // 2
    return (
        (f"{name}own", (wide, own)),
        (f"{name}near", (wide, near)),
        (f"{name}bias", (out,)),
    )


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Stack:
    """GraphSAGE with `layers` layers and a head, uninitialised."""
    from algorithms.nn._shared.modules import Stack

    shapes = layout(features, classes, hidden, layers, dropout)
    return Stack.of(shapes, [*[_joined] * layers, None], dropout)


def _joined(own: Any, x: Features, propagation: Propagation) -> Tensor:
    import torch

    from algorithms.nn._shared.sparse import product

    near = product(propagation, product(x, own.near))
    rows: Tensor = torch.cat([product(x, own.own), near], dim=1) + own.bias
    return rows


def plain(module: Any) -> torch.nn.Module:
    """The same model in layers of PyG, see `algorithms.nn._shared.plain`."""
    from algorithms.nn._shared import plain as made

    *halves, head = module.layers
    layers = [_convolution(layer) for layer in halves]
    return made.stacked([*layers, made.linear(head.weight, head.bias)], module.rate)


def _convolution(layer: Any) -> torch.nn.Module:
    import torch
    from torch_geometric.nn import SAGEConv

    from algorithms.nn._shared.plain import filled

    (wide, own), near = layer.own.shape, layer.near.shape[1]
    made: torch.nn.Module = SAGEConv(wide, own + near, aggr="mean")
    apart = layer.own.new_zeros
    filled(made.get_parameter("lin_l.weight"), torch.cat([apart(own, wide), layer.near.T]))
    filled(made.get_parameter("lin_l.bias"), layer.bias)
    filled(made.get_parameter("lin_r.weight"), torch.cat([layer.own.T, apart(near, wide)]))
    return made
