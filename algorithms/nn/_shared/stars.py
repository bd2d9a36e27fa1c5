"""What the models of one user's star graph share: the user, the items it rated, and who else did.

FedPerGNN's local graph (Wu et al., Nature Communications 2022): a client is one user u, joined to
the items it rated and, after an expansion, to neighbours, users who hold the same items. On the
scale from 0 to 1, with residuals s_k = r_uk - μ - b_k - b_u,

    r_uj = μ + b_j + b_u + <p_u, q_j> + layer({(q_k, s_k) : k rated by u, k ≠ j}, q_j).

The rating that is predicted is never among the messages it is predicted from: otherwise a model
would learn to copy it. Where neighbours are known, the vector of an item that the user rated is

    q_k + W Σ_n softmax_n(<q_k, e_n>) e_n,

over the neighbours that hold item k; they are given and not trained. The item that is asked for has
its own vector q_j.

Parameters: Q (items, h), b (items), m with μ = 1/2 + 2 m, the layer's, W (h, h), then p (1, h) and
b_u (1). The user's part is the head. It has one row, as every client has one user: an algorithm
that shares the base only keeps it at the client.

As in `dot`, **an item's row in a sum of updates may have a single contributor** (O12).

Where this departs from the paper: ratings are messages (there, edges carry none), the rating that
is predicted is left out, and neighbours do not change the vector of the item that is asked for.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding

from algorithms.nn._shared.ratings import (
    Bipartite,
    Mean,
    RatingModel,
    Side,
    Start,
)
from algorithms.nn._shared.sparse import dropout
from algorithms.tasks import Weights

__all__ = ["Layer", "Star", "masked_mean", "masked_softmax"]

_SD = 0.1


class Layer(torch.nn.Module):
    """What a user's other ratings say of an item, and what neighbours say of it.

    Args:
        hidden: width h.
    """

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.around = torch.nn.Parameter(torch.empty(hidden, hidden))

    def forward(
        self, query: Tensor, user: Tensor, item: Tensor, residual: Tensor, seen: Tensor
    ) -> Tensor:
        """Return what is added to the predictions, (m,).

        Args:
            query: (m, h), items that are asked about.
            user: (h,), the user's own vector.
            item: (n, h), items that the user rated.
            residual: (n,), their ratings less what biases explain.
            seen: bool (m, n), which of them an answer may rest on.
        """
        raise NotImplementedError

    def start(self, name: str, shape: tuple[int, ...], rng: np.random.Generator) -> Weights:
        """Return starting values of a parameter: W zero, all others small and normal."""
        if name == "around":
            return np.zeros(shape, dtype=np.float32)
        return rng.normal(0.0, _SD, shape).astype(np.float32)


class Star(RatingModel):
    """One user's vector and bias, and a layer over what it rated; see the file's head.

    Args:
        items: how many.
        hidden: width h.
        layer: None: the dot product alone.
        rate: of dropout on the vectors of rated items, in the layer.
    """

    def __init__(self, items: int, hidden: int, layer: Layer | None, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.items, self.mean = Side(items, hidden), Mean()
        if layer is not None:
            self.layer = layer
        self.head = Side(1, hidden)

    def forward(
        self,
        graph: Bipartite,
        user: Tensor,
        item: Tensor,
        generator: torch.Generator,
        training: bool,
    ) -> Tensor:
        """Ratings, shape (M, 1); `generator` feeds dropout.

        Raises:
            ValueError: the site has more than one user.
        """
        if graph.users > 1:
            raise ValueError(
                "this model is for sites of one user; share the ratings out by user_per_client, or "
                "choose the model dot or gcn_dot"
            )
        own, bias = self.head.table[0], self.mean() + self.head.bias
        # A user never learns neighbours of what it has not rated: with them in the query, what is
        # trained on would look unlike what is asked for.
        query = embedding(item, self.items.table)
        rating: Tensor = bias + self.items.bias.index_select(0, item) + query @ own
        layer = getattr(self, "layer", None)
        if layer is None:
            return rating[:, None]
        rated, values = graph.rated()
        residual = values - bias - self.items.bias.index_select(0, rated)
        seen = item[:, None] != rated[None, :]  # never the rating that is predicted
        vectors = dropout(self._vectors(graph, rated), self.rate, generator, training)
        told: Tensor = layer(query, own, vectors, residual, seen)
        return (rating + told)[:, None]

    def _vectors(self, graph: Bipartite, item: Tensor) -> Tensor:
        """Return items' vectors, (m, h), with what neighbours add to them."""
        vectors: Tensor = embedding(item, self.items.table)
        layer, near = getattr(self, "layer", None), graph.neighbours
        if layer is None or near is None:
            return vectors
        others, known = near.vectors[item], near.known[item]
        share = masked_softmax((others @ vectors[:, :, None])[:, :, 0], known)
        around: Tensor = layer.around
        return vectors + (share[:, None, :] @ others)[:, 0] @ around

    def initial(self, rng: np.random.Generator, glorot: Start) -> Weights:
        """Items' vectors normal, the layer's as it says, all others 0: μ is 1/2, p is 0."""
        parts = []
        for name, parameter in self.named_parameters():
            shape = tuple(parameter.shape)
            if name == "items.table":
                part = rng.normal(0.0, _SD, shape).astype(np.float32)
            elif name.startswith("layer."):
                part = self.layer.start(name.removeprefix("layer."), shape, rng)
            else:
                part = np.zeros(shape, dtype=np.float32)
            parts.append(part.ravel())
        return np.concatenate(parts)


def masked_softmax(scores: Tensor, seen: Tensor) -> Tensor:
    """Soft-max over the last dimension of what is seen, zero elsewhere; all zero if nothing is.

    Args:
        scores: (..., n).
        seen: bool, of the same shape.
    """
    if not scores.shape[-1]:  # a user without ratings: there is nothing whose maximum to take
        return scores
    lowered = scores.masked_fill(~seen, -torch.inf)
    top = lowered.detach().amax(dim=-1, keepdim=True).clamp(min=torch.finfo(scores.dtype).min)
    raised = torch.exp(lowered - top)
    return raised / raised.sum(dim=-1, keepdim=True).clamp(min=1e-30)


def masked_mean(values: Tensor, seen: Tensor) -> Tensor:
    """Mean of the rows that are seen, (m, c); zero where none is.

    Args:
        values: (n, c).
        seen: bool (m, n).
    """
    share = seen.to(values.dtype)
    return (share @ values) / share.sum(dim=1, keepdim=True).clamp(min=1.0)
