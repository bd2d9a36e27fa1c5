"""GraphSAGE as FedSage trains it: five drawn neighbours a node, and layers in two halves.

Hamilton et al., NeurIPS 2017, Algorithm 1, with the widths and the sampling of Zhang et al.,
NeurIPS 2021 (FedSage). Layer l is hidden / 2^l wide, so 64 and 32 by default, and a dense head
follows. In training, a node hears at most `FAN_OUT` of its neighbours, drawn anew for each batch;
a prediction reads them all.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

from algorithms.nn._shared.layouts import Layout, Shapes, Weighing, affine, stacked
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch

    from algorithms.nn._shared.graph_model import GraphModel

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


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> GraphModel:
    """GraphSAGE with `layers` layers and a head, uninitialised."""
    from algorithms.nn.modules import graph_sage_sampled as made

    return made.build(widths(features, hidden, layers), classes, dropout)


def plain(module: Any) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    from algorithms.nn.modules import graph_sage_sampled as made

    return made.plain(module)


def _halves(name: str, wide: int, out: int) -> Shapes:
    own, near = out - out // 2, out // 2
    return (
        (f"{name}own", (wide, own)),
        (f"{name}near", (wide, near)),
        (f"{name}bias", (out,)),
    )
