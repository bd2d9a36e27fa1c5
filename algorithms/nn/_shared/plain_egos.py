"""Models on ego-graphs as plain PyTorch Geometric modules, see `algorithms.nn._shared.plain`.

They answer for whole graphs with all neighbours, as `EgoNet.forward` does; nothing is sampled.
"""

from __future__ import annotations

import torch
from torch import Tensor

from algorithms.nn._shared.egos import Dense, EgoNet, Sage
from algorithms.nn._shared.plain import Step, filled, linear

__all__ = ["HearSelf", "plain_egos"]


class HearSelf(torch.nn.Module):
    """Gives a node without neighbours an edge from itself, so that it hears itself."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Return int64 (2, E + isolated nodes)."""
        heard = torch.zeros(x.shape[0], dtype=torch.bool).index_fill(0, edge_index[1], True)
        alone = torch.nonzero(~heard).T.expand(2, -1)
        return torch.cat([edge_index, alone], dim=1)


def plain_egos(net: EgoNet) -> torch.nn.Module:
    """Return the same model in layers of PyG: ``(x, edge_index)`` to logits."""
    from torch_geometric.nn import Sequential

    steps: list[Step] = [(HearSelf(), "x, edge_index -> near")]
    for place, layer in enumerate(net.reduction):
        if place:
            steps.append((torch.nn.Dropout(net.rate), "x -> x"))
        steps += [_layer(layer), (torch.nn.ReLU(), "x -> x")]
    for place, layer in enumerate(net.personal, 1):
        steps += [(torch.nn.Dropout(net.rate), "x -> x"), _layer(layer)]
        if place == len(net.personal) or not net.linear:
            steps.append((torch.nn.ReLU(), "x -> x"))
    head = linear(net.head.weight, None)
    steps += [(torch.nn.Dropout(net.rate), "x -> x"), (head, "x -> x")]
    made: torch.nn.Module = Sequential("x, edge_index", steps)
    return made.eval()


def _layer(layer: torch.nn.Module) -> Step:
    if isinstance(layer, Sage):
        return mean_convolution(layer), "x, near -> x"
    if isinstance(layer, Dense):
        return linear(layer.weight, layer.bias), "x -> x"
    raise TypeError(f"{type(layer).__name__} has no plain form; add it here")


def mean_convolution(layer: Sage) -> torch.nn.Module:
    """Return a layer of GraphSAGE as PyG has it."""
    from torch_geometric.nn import SAGEConv

    made: torch.nn.Module = SAGEConv(*layer.own.shape, aggr="mean")
    filled(made.get_parameter("lin_l.weight"), layer.near.T)
    filled(made.get_parameter("lin_l.bias"), layer.bias)
    filled(made.get_parameter("lin_r.weight"), layer.own.T)
    return made
