"""SGC (Wu et al., ICML 2019), a linear model of propagated features; `hidden` is unused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from algorithms.nn._shared.layouts import Layout, Weighing, affine
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch

    from algorithms.nn._shared.graph_model import GraphModel

NAME = "sgc"
TASK: Kind = "node"
PROPAGATION: Weighing = "symmetric"
LINEAR = True


def layout(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Layout:
    """W (features, classes), b; both are the head."""
    return Layout((), affine("", features, classes))


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> GraphModel:
    """SGC with K = `layers` hops, uninitialised."""
    from algorithms.nn.modules import sgc as made

    return made.build(features, classes, hidden, layers, dropout)


def plain(module: Any) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    from algorithms.nn.modules import sgc as made

    return made.plain(module)
