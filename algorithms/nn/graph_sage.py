"""GraphSAGE with the mean aggregator.

Hamilton, Ying and Leskovec, Inductive Representation Learning on Large Graphs, NeurIPS 2017,
Algorithm 1:

    h_vˡ⁺¹ = ReLU(h_vˡ W_own + mean_{u ∈ N(v)} h_uˡ W_near + b),

the concatenation of the paper written as a sum of two products; all neighbours, no sampling, no
row normalisation between layers; no ReLU on the last layer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from algorithms.nn._shared.layouts import Layout, Weighing, sage, stacked, widths
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch

    from algorithms.nn._shared.modules import Stack

NAME = "graph_sage"
TASK: Kind = "node"
PROPAGATION: Weighing = "mean"


def layout(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Layout:
    """Per layer W_own, W_near (in, out), b."""
    pairs = widths(features, classes, hidden, layers)
    return stacked(sage(f"layers.{place}.", *pair) for place, pair in enumerate(pairs))


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Stack:
    """GraphSAGE with `layers` layers, uninitialised."""
    from algorithms.nn._shared.modules import Sage, Stack

    return Stack([Sage(*pair) for pair in widths(features, classes, hidden, layers)], dropout)


def plain(module: Any) -> torch.nn.Module:
    """The same model in layers of PyG, see `algorithms.nn._shared.plain`."""
    from algorithms.nn._shared import plain as made

    return made.stacked([made.mean_convolution(layer) for layer in module.layers], module.rate)
