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

from typing import TYPE_CHECKING, Any

from algorithms.nn import gcn
from algorithms.nn._shared.layouts import BUCKETS, MEAN, Inputs, Layout, Rows, width
from algorithms.tasks import Kind

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from algorithms.nn._shared.ratings import Bipartite, RatingModel

NAME = "gcn_dot"
TASK: Kind = "rating"


def layout(
    users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
) -> Layout:
    """The GCN's parameters by layers, then m; the last layer and m are the head."""
    inner = gcn.layout(width(inputs), hidden, hidden, layers, dropout)
    below, last = (
        tuple((f"encoder.{name}", shape) for name, shape in part)
        for part in (inner.base, inner.head)
    )
    return Layout(below, (*last, *MEAN))


def build(
    users: int, items: int, hidden: int, layers: int, dropout: float, inputs: Inputs
) -> RatingModel:
    """GCN with `layers` layers of width `hidden`, uninitialised; `users`, `items` are unused."""
    import torch

    from algorithms.nn._shared.modules import Parameters
    from algorithms.nn._shared.ratings import RatingModel

    encoder = gcn.build(width(inputs), hidden, hidden, layers, dropout)
    mean = Parameters((("deviation", (1,)),))
    head = torch.nn.ModuleList([encoder.layers[-1], mean])
    parts = {"encoder": encoder, "mean": mean, "head": head}
    return RatingModel((), _ratings, parts=parts, inputs=inputs)


def rows(own: tuple[Rows, Rows], sizes: tuple[int, int], hidden: int) -> Rows | None:
    """None: every site needs all parameters."""
    return None


def _ratings(
    own: Any,
    graph: Bipartite,
    user: Tensor,
    item: Tensor,
    generator: torch.Generator,
    training: bool,
) -> Tensor:
    import torch
    from torch.nn.functional import embedding

    from algorithms.nn._shared.ratings import mean_rating

    z = own.encoder(graph.inputs(own.facts["inputs"]), graph.propagation(), generator, training)
    if not training:  # training pairs have neighbours
        users, degree = graph.users, graph.degree.to(z.dtype)[:, None]
        z = torch.cat([_filled(z[:users], degree[:users]), _filled(z[users:], degree[users:])])
    product = embedding(user, z) * embedding(item + graph.users, z)
    rating: Tensor = mean_rating(own) + product.sum(dim=1)
    return rating[:, None]


def _filled(z: Tensor, degree: Tensor) -> Tensor:
    """Rows of degree 0 replaced by the mean over edges, if there are any."""
    import torch

    edges = degree.sum()
    return torch.where((degree > 0) | (edges == 0), z, (degree * z).sum(dim=0) / edges)


def plain(module: Any, scale: Any) -> torch.nn.Module:
    """The same with PyG's layers and tensors for a graph, see `algorithms.nn._shared.plain`."""
    import torch

    from algorithms.nn._shared.modules import Parameters

    parts = {"encoder": gcn.plain(module.encoder), "mean": module.mean}
    facts = {"users": scale.users, "items": scale.items, "inputs": module.facts["inputs"]}
    made = Parameters((), _plain_ratings, parts=parts, **facts)
    made.register_buffer("bounds", 2 ** torch.arange(BUCKETS - 1))
    return made


def _plain_ratings(
    own: Any, user: Tensor, item: Tensor, edge_index: Tensor, rating: Tensor
) -> Tensor:
    """Return (M,); ratings' values are not read."""
    import torch
    from torch.nn.functional import embedding

    from algorithms.nn._shared.ratings import mean_rating

    users, items = own.facts["users"], own.facts["items"]
    there, back = torch.stack([edge_index[0], edge_index[1] + users]), [1, 0]
    ends = there.reshape(-1)
    degree = torch.zeros(users + items).index_add(
        0, ends, torch.ones_like(ends, dtype=torch.float32)
    )
    z = own.encoder(_degrees(own, degree), torch.cat([there, there[back]], dim=1))
    near = degree[:, None]
    sides = ((z[:users], near[:users]), (z[users:], near[users:]))
    z = torch.cat([_filled(rows, degrees) for rows, degrees in sides])
    product = embedding(user, z) * embedding(item + users, z)
    found: Tensor = mean_rating(own) + product.sum(dim=1)
    return found


def _degrees(own: Any, degree: Tensor) -> Tensor:
    import torch

    if own.facts["inputs"] == "constant":
        return torch.ones_like(degree)[:, None]
    bucket = torch.bucketize(degree.long(), own.bounds, right=True)
    side = (torch.arange(len(degree)) >= own.facts["users"]).to(torch.float32)
    one_hot = torch.nn.functional.one_hot(bucket, BUCKETS).to(torch.float32)
    return torch.cat([one_hot, side[:, None]], dim=1)
