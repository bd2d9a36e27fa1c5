"""GCN on the bipartite graph of training ratings, and the dot product of two nodes.

The link predictor of FedGraphNN (He et al., arXiv 2104.07145, 2021) for ratings, on the scale from
0 to 1:

    Z = GCN(X),    r_ui = μ + <z_u, z_i>,

with the layers of `gcn` and no activation on the last. No parameter belongs to a user or an item,
so a sum of updates has no item's row with a single contributor (O12), and its length tells nothing
of the catalogue. With `degree` inputs a row of the first weights belongs to a range of degrees,
which may occur at one client only.

X is the same one for every node (`constant`, what FedGraphNN's pipeline amounts to: its degrees
are counted on a list that names every node once) or the logarithm of the node's number of training
ratings and its side (`degree`). With `constant` only the normalisation of the propagation tells
two nodes apart.

μ is a parameter that FedGraphNN does not have; without it a constant rating has to be learnt as a
dot product. A user without a training rating at the site has no neighbour, and no rating ever
trained what the GCN makes of such a node. Its z is the mean of the users' z over the training
ratings instead, so the prediction is what the site's users give this item on average; likewise for
items. A site without a training rating keeps the GCN's z.

The first layers are the base, the last one with μ is the head.
"""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor
from torch.nn.functional import embedding

from algorithms.nn._shared.rating_layouts import BUCKETS, Inputs, Scale, width
from algorithms.nn._shared.ratings import Bipartite, Mean, RatingModel
from algorithms.nn.modules import gcn


class GcnDot(RatingModel):
    """A GCN's embeddings and their dot product; parameters of the GCN by layers, then μ."""

    def __init__(self, hidden: int, layers: int, dropout: float, inputs: Inputs) -> None:
        super().__init__()
        self.inputs = inputs
        self.encoder = gcn.build(width(inputs), hidden, hidden, layers, dropout)
        self.mean = Mean()
        *_, last = self.encoder.get_submodule("layers").children()
        self.head = torch.nn.ModuleList([last, self.mean])

    def forward(
        self,
        graph: Bipartite,
        user: Tensor,
        item: Tensor,
        generator: torch.Generator,
        training: bool,
    ) -> Tensor:
        """Ratings, shape (M, 1); `generator` feeds dropout on the hidden layers."""
        z = self.encoder(graph.inputs(self.inputs), graph.propagation(), generator, training)
        if not training:  # training pairs have neighbours
            users, degree = graph.users, graph.degree.to(z.dtype)[:, None]
            z = torch.cat([_filled(z[:users], degree[:users]), _filled(z[users:], degree[users:])])
        product = embedding(user, z) * embedding(item + graph.users, z)
        rating: Tensor = self.mean() + product.sum(dim=1)
        return rating[:, None]


def _filled(z: Tensor, degree: Tensor) -> Tensor:
    """Rows of degree 0 replaced by the mean over edges, if there are any."""
    edges = degree.sum()
    return torch.where((degree > 0) | (edges == 0), z, (degree * z).sum(dim=0) / edges)


def build(
    users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
) -> RatingModel:
    """GCN with `layers` layers of width `hidden`, uninitialised; `users`, `items` are unused."""
    return GcnDot(hidden, layers, dropout, inputs)


class PlainGcnDot(torch.nn.Module):
    """The same with PyG's layers and tensors for a graph, see `_shared.plain_ratings`."""

    def __init__(self, model: GcnDot, scale: Scale) -> None:
        super().__init__()
        self.users, self.items, self.inputs = scale.users, scale.items, model.inputs
        self.encoder, self.mean = gcn.plain(model.encoder), model.mean  # type: ignore[arg-type]
        self.register_buffer("bounds", 2 ** torch.arange(BUCKETS - 1))

    def forward(self, user: Tensor, item: Tensor, edge_index: Tensor, rating: Tensor) -> Tensor:
        """Return (M,); ratings' values are not read."""
        nodes = self.users + self.items
        there, back = torch.stack([edge_index[0], edge_index[1] + self.users]), [1, 0]
        ends = there.reshape(-1)
        degree = torch.zeros(nodes).index_add(0, ends, torch.ones_like(ends, dtype=torch.float32))
        z = self.encoder(self._features(degree), torch.cat([there, there[back]], dim=1))
        near = degree[:, None]
        sides = ((z[: self.users], near[: self.users]), (z[self.users :], near[self.users :]))
        z = torch.cat([_filled(rows, degrees) for rows, degrees in sides])
        product = embedding(user, z) * embedding(item + self.users, z)
        found: Tensor = self.mean() + product.sum(dim=1)
        return found

    def _features(self, degree: Tensor) -> Tensor:
        if self.inputs == "constant":
            return torch.ones_like(degree)[:, None]
        bucket = torch.bucketize(degree.long(), cast(Tensor, self.bounds), right=True)
        side = (torch.arange(len(degree)) >= self.users).to(torch.float32)
        one_hot = torch.nn.functional.one_hot(bucket, BUCKETS).to(torch.float32)
        return torch.cat([one_hot, side[:, None]], dim=1)


def plain(module: GcnDot, scale: Scale) -> torch.nn.Module:
    """The same model in layers of PyG, see `_shared.plain_ratings`."""
    return PlainGcnDot(module, scale)
