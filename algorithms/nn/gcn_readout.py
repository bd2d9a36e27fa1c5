"""GCN with a readout of features and embeddings, FedGraphNN's (He et al., 2021)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from algorithms.nn._shared.layouts import Layout, Shapes, Weighing, affine
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch

    from algorithms.nn._shared.graphs import GraphsModel

NAME = "gcn_readout"
TASK: Kind = "graph"
PROPAGATION: Weighing = "symmetric"


def layout(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Layout:
    """Order of the module: U¹ of the features, then W per layer, U¹ of the embeddings, U², head."""
    wide = 2 * hidden
    layer = [
        (f"layers.{place}", (hidden if place else features, hidden)) for place in range(layers)
    ]
    base: Shapes = (("own", (features, wide)), *layer)
    base += (*affine("readout.", hidden, wide), *affine("second.", wide, wide))
    return Layout(base, affine("head.", wide, classes))


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> GraphsModel:
    """GCN of `layers` layers with a readout, uninitialised."""
    from algorithms.nn.modules import gcn_readout as made

    return made.build(features, classes, hidden, layers, dropout)


def plain(module: Any) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    from algorithms.nn.modules import gcn_readout as made

    return made.plain(module)
