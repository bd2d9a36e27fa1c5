"""FedEgo's linear network: `ego_sage` without ReLUs between the GraphSAGE layers (FedEgo-Linear).

Zhang et al., FedEgo, 2022, Theorem 4.1: below its last ReLU a centre's output is then a mean over
each level of the ego-graph, so it does not matter which neighbour stands at which position. The
authors' program keeps the last ReLU in this variant; so does this one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithms.nn import ego_sage
from algorithms.nn._shared.layouts import Layout, Weighing
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch

    from algorithms.nn._shared.modules import EgoNet

NAME = "ego_sage_linear"
TASK: Kind = "node"
PROPAGATION: Weighing = ego_sage.PROPAGATION
EGOS = True


def layout(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Layout:
    """Return the same as `ego_sage`'s."""
    return ego_sage.layout(features, classes, hidden, layers, dropout)


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> EgoNet:
    """Return the same parameters as `ego_sage`."""
    from algorithms.nn._shared.modules import Dense, EgoNet, Sage

    personal = [Sage(hidden, hidden) for _ in range(layers)]
    return EgoNet([Dense(features, hidden)], personal, classes, dropout, linear=True)


def plain(module: EgoNet) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    from algorithms.nn._shared.plain import plain_egos

    return plain_egos(module)
