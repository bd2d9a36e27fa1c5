"""GIN (Xu et al., ICLR 2019); see `algorithms.nn.modules.gin`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from algorithms.nn._shared.layouts import Layout, Shapes, Weighing, affine
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch

    from algorithms.nn._shared.graphs import GraphsModel

NAME = "gin"
TASK: Kind = "graph"
PROPAGATION: Weighing = "sum"


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
    from algorithms.nn.modules import gin as made

    return made.build(features, classes, hidden, layers, dropout)


def plain(module: Any) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    from algorithms.nn.modules import gin as made

    return made.plain(module)
