"""GIN whose convolutions alone can be shared; see `algorithms.nn.modules.gin_shared`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from algorithms.nn._shared.layouts import Layout, Shapes, Weighing, affine
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch

    from algorithms.nn._shared.graphs import GraphsModel

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
    from algorithms.nn.modules import gin_shared as made

    return made.build(features, classes, hidden, layers, dropout)


def plain(module: Any) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    from algorithms.nn.modules import gin_shared as made

    return made.plain(module)
