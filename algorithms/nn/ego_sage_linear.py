"""FedEgo's linear network: `ego_sage` without ReLUs between the GraphSAGE layers (FedEgo-Linear).

Zhang et al., FedEgo, 2022, Theorem 4.1: below its last ReLU a centre's output is then a mean over
each level of the ego-graph, so it does not matter which neighbour stands at which position. The
authors' program keeps the last ReLU in this variant; so does this one.
"""

from __future__ import annotations

from typing import Literal

import torch

from algorithms.nn import ego_sage
from algorithms.nn._shared.egos import Dense, EgoNet, Sage
from algorithms.nn._shared.plain_egos import plain_egos
from algorithms.tasks import Kind

NAME = "ego_sage_linear"
TASK: Kind = "node"
PROPAGATION: Literal["mean_or_self"] = ego_sage.PROPAGATION
EGOS = True


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> EgoNet:
    """Return the same parameters as `ego_sage`."""
    personal = [Sage(hidden, hidden) for _ in range(layers)]
    return EgoNet([Dense(features, hidden)], personal, classes, dropout, linear=True)


def plain(module: EgoNet) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    return plain_egos(module)
