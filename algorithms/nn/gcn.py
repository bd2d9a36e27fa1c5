"""GCN (Kipf and Welling, ICLR 2017); its formulas stand in `algorithms.nn.modules.gcn`."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from algorithms.nn._shared.layouts import Layout, Weighing, affine, stacked
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch

    from algorithms.nn._shared.graph_model import GraphModel

NAME = "gcn"
TASK: Kind = "node"
PROPAGATION: Weighing = "symmetric"


def layout(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Layout:
    """Per layer W (in, out), b."""
    widths = pairwise([features, *[hidden] * (layers - 1), classes])
    return stacked(affine(f"layers.{place}.", *wide) for place, wide in enumerate(widths))


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> GraphModel:
    """GCN with `layers` layers, uninitialised."""
    from algorithms.nn.modules import gcn as made

    return made.build(features, classes, hidden, layers, dropout)


def plain(module: Any) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    from algorithms.nn.modules import gcn as made

    return made.plain(module)
