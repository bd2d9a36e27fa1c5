"""FedEgo's network without ego-graphs: GraphSAGE below, a perceptron above (FedEgo w/o EGO).

Zhang et al., FedEgo, 2022, sections 4.2.1 and 5.5: graph mining happens in the reduction layers, so
an ego-graph is its centre alone. `layers` is the number of hops below, and of layers above.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithms.nn import ego_sage
from algorithms.nn._shared.layouts import Layout, Weighing, affine, ego_net, sage
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch

    from algorithms.nn._shared.modules import EgoNet

NAME = "ego_mlp"
TASK: Kind = "node"
PROPAGATION: Weighing = ego_sage.PROPAGATION
EGOS = True


def layout(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Layout:
    """Per hop W_own, W_near, b; per layer above W, b; the classifier's W."""
    widths = [features, *[hidden] * (layers - 1)]
    below = [sage(f"reduction.{place}.", wide, hidden) for place, wide in enumerate(widths)]
    above = [affine(f"personal.{place}.", hidden, hidden) for place in range(layers)]
    return ego_net([*below, *above], hidden, classes)


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> EgoNet:
    """Per hop W_own, W_near, b; per layer above W, b; the classifier's W."""
    from algorithms.nn._shared.modules import Dense, EgoNet, Sage

    widths = [features, *[hidden] * (layers - 1)]
    reduction = [Sage(wide, hidden) for wide in widths]
    personal = [Dense(hidden, hidden) for _ in range(layers)]
    return EgoNet(reduction, personal, classes, dropout)


def plain(module: EgoNet) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    from algorithms.nn._shared.plain import plain_egos

    return plain_egos(module)
