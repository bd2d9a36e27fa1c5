"""FedEgo's network: a reduction layer, then GraphSAGE that also works on ego-graphs.

Zhang et al., FedEgo: Privacy-preserving Personalized Federated Graph Learning with Ego-graphs,
2022, sections 4.1.1 and 4.1.3, eqs. 7 and 9, with the activations of section 5.2:

    r_v = ReLU(x_v W + b),   p^0 = r,   p_v^(l+1) = ReLU(p_v^l W_own + mean_u p_u^l W_near + b),

and a classifier without bias on p^k. `layers` is k, the number of hops. The mean is over all
neighbours here, and over sampled ones in `judge`; an isolated node is its own neighbour in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from algorithms.nn._shared.layouts import Layout, Weighing, affine, ego_net, sage
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch

    from algorithms.nn._shared.modules import EgoNet

NAME = "ego_sage"
TASK: Kind = "node"
PROPAGATION: Weighing = "mean_or_self"
EGOS = True


def layout(features: int, classes: int, hidden: int, layers: int, dropout: float) -> Layout:
    """W, b; per hop W_own, W_near, b; the classifier's W."""
    above = [sage(f"personal.{place}.", hidden, hidden) for place in range(layers)]
    return ego_net([affine("reduction.0.", features, hidden), *above], hidden, classes)


def build(features: int, classes: int, hidden: int, layers: int, dropout: float) -> EgoNet:
    """W, b; per hop W_own, W_near, b; the classifier's W. All hidden layers are `hidden` wide."""
    from algorithms.nn._shared.modules import Dense, EgoNet, Sage

    personal = [Sage(hidden, hidden) for _ in range(layers)]
    return EgoNet([Dense(features, hidden)], personal, classes, dropout)


def plain(module: EgoNet) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain`."""
    from algorithms.nn._shared.plain import plain_egos

    return plain_egos(module)
