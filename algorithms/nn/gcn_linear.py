"""GCN layers below a linear classifier, FED-PUB's; see `algorithms.nn.modules.gcn_linear`."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from algorithms.nn import gcn
from algorithms.nn._shared.layouts import Layout, Weighing, affine, stacked
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch

    from algorithms.nn._shared.graph_model import GraphModel

NAME = "gcn_linear"
TASK: Kind = "node"
PROPAGATION: Weighing = gcn.PROPAGATION


def layout(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Layout:
    """Per GCN layer W (in, hidden), b; then the classifier's W (hidden, C), b, the head."""
    widths = pairwise([features, *[hidden] * layers, classes])
    return stacked(affine(f"layers.{place}.", *wide) for place, wide in enumerate(widths))


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> GraphModel:
    """`layers` GCN layers and a classifier, uninitialised."""
    from algorithms.nn.modules import gcn_linear as made

    return made.build(features, classes, hidden, layers, dropout)


def plain(module: Any) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    from algorithms.nn.modules import gcn_linear as made

    return made.plain(module)
