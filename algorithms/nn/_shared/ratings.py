"""What rating models share: the bipartite graph of who rated what, and how a model is asked.

A site numbers the users and items that it knows anew, from 0; a model sees these own numbers only,
so that its cost follows the site's ratings and not the size of the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn.functional import embedding

from algorithms.nn._shared.layouts import BUCKETS, Inputs, Layout, Shapes
from algorithms.nn._shared.modules import Compute, Parameters
from algorithms.nn._shared.sparse import Propagation, dropout, propagation
from algorithms.tasks import Weights

__all__ = [
    "Bipartite",
    "Neighbours",
    "RatingModel",
    "Star",
    "Start",
    "masked_mean",
    "masked_softmax",
    "mean_rating",
    "neighbours",
]

Start = Callable[[np.random.Generator], Weights]
"""Draws starting values of all parameters."""


class Neighbours(NamedTuple):
    """Vectors of other users, by the item that they share with this site's user.

    Attributes:
        vectors: (items, N, h), rows in the order of the site's items.
        known: bool (items, N), which of them there are.
    """

    vectors: Tensor
    known: Tensor


def neighbours(
    places: npt.NDArray[np.int64], vectors: npt.NDArray[np.float32], items: int
) -> Neighbours:
    """Return neighbours in the order of items.

    Args:
        places: (n,), of the item that each neighbour shares, as often as there are neighbours.
        vectors: (n, h), theirs.
        items: how many places there are.
    """
    order = np.argsort(places, kind="stable")
    ordered = places[order]
    nth = np.arange(len(order)) - np.searchsorted(ordered, ordered)  # of its item's neighbours
    shape = (items, 1 + int(nth.max(initial=0)))
    found, known = np.zeros((*shape, vectors.shape[1]), np.float32), np.zeros(shape, dtype=bool)
    found[ordered, nth], known[ordered, nth] = vectors[order], True
    return Neighbours(torch.from_numpy(found), torch.from_numpy(known))


class Bipartite:
    """The graph of a site's training ratings: users first, then items, an edge a rating.

    Validation and test ratings are neither edges nor counted in a degree, so that a model cannot
    see that a rating exists which it is asked to predict. Everything here is private.

    Args:
        pairs: int64 (2, M), the site's own numbers of user and item of every training rating.
        users, items: how many the site knows, with or without a training rating.
        rating: (M,), of every pair; a model that passes ratings on as messages needs them.

    Attributes:
        neighbours: vectors of other users who hold the same items, see `Neighbours`; None: unknown.
    """

    def __init__(self, pairs: Tensor, users: int, items: int, rating: Tensor | None = None) -> None:
        self.users, self.items, self.neighbours = users, items, cast(Neighbours | None, None)
        self._pairs, self._rating, self._scaled = pairs, rating, cast(Tensor | None, None)
        self._edges = torch.stack([pairs[0], pairs[1] + users])
        self._matrix: Propagation | None = None
        self._inputs: dict[Inputs, Tensor] = {}

    @property
    def nodes(self) -> int:
        """Number of users and items."""
        return self.users + self.items

    @property
    def degree(self) -> Tensor:
        """Number of training ratings of every node, int64 (N,)."""
        return torch.bincount(self._edges.reshape(-1), minlength=self.nodes)

    def on_scale(self, lowest: float, span: float) -> Bipartite:
        """Bring the ratings to [0, 1] by a public scale, once, and return this graph."""
        if self._scaled is None and self._rating is not None:
            self._scaled = (self._rating - lowest) / span
        return self

    def rated(self) -> tuple[Tensor, Tensor]:
        """Items of the training ratings, int64 (M,), and the ratings on [0, 1], (M,).

        Raises:
            ValueError: the ratings or their scale were never given.
        """
        if self._scaled is None:
            raise ValueError(
                "this model passes ratings on as messages and the graph holds none; build it by "
                "RatingsData.from_ratings and train it by RatingTask"
            )
        return self._pairs[1], self._scaled

    def propagation(self) -> Propagation:
        """D^-1/2 (A + I) D^-1/2 (Kipf and Welling, ICLR 2017, eq. 2), (N, N), made once."""
        if self._matrix is None:
            self._matrix = propagation(self._edges, self.nodes, "symmetric")
        return self._matrix

    def inputs(self, kind: Inputs) -> Tensor:
        """Features of all nodes, float32 (N, `width(kind)`), made once."""
        if kind not in self._inputs:
            self._inputs[kind] = self._features(kind)
        return self._inputs[kind]

    def _features(self, kind: Inputs) -> Tensor:
        if kind == "constant":
            return torch.ones(self.nodes, 1)
        # frexp is exact where a logarithm may round: its exponent is 0 for 0, else
        # 1 + floor(log2 degree).
        bucket = torch.frexp(self.degree.to(torch.float64)).exponent.long().clamp(max=BUCKETS - 1)
        one_hot = torch.nn.functional.one_hot(bucket, BUCKETS).to(torch.float32)
        side = (torch.arange(self.nodes) >= self.users).to(torch.float32)
        return torch.cat([one_hot, side[:, None]], dim=1)

    def __repr__(self) -> str:
        return "<Bipartite>"


class RatingModel(Parameters):
    """A module from users and items to ratings on the scale from 0 to 1.

    It is called with a graph, the pairs (user, item), int64 (M,) each, a generator, and whether it
    trains, and returns ratings before they are clipped, (M, 1).

    Args:
        shapes, compute, more: see `Parameters`.
        start: draws starting values of all parameters, flat and in order; None: the task's own.
    """

    def __init__(
        self,
        shapes: Shapes = (),
        compute: Compute | None = None,
        start: Callable[[Any, np.random.Generator], Weights] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(shapes, compute, **more)
        self.start = start

    def initial(self, rng: np.random.Generator, glorot: Start) -> Weights:
        """Starting values of all parameters, flat and in order; by default `glorot`'s."""
        return glorot(rng) if self.start is None else self.start(self, rng)


def mean_rating(own: Any) -> Tensor:
    """Return μ = 1/2 + 2 m, (1,): the mean rating is a parameter of its own, with m at 0 first.

    Adam moves all parameters alike. With μ = m the many biases that a rating touches learn the mean
    in its place, and a user or item without a bias of its own is predicted too low. Twice the step
    is enough (a small Ciao category, a third of the test users without a training rating: MAE 0.84
    with μ = 1/2 + m, 0.74 so), and plain gradient descent stays stable below lr = 1/4.
    """
    mean: Tensor = 0.5 + 2.0 * own.mean.deviation
    return mean


_SD = 0.1


class Star(RatingModel):
    """One user's vector and bias, and a layer over what it rated; its layout is `layouts.star`.

    FedPerGNN's local graph (Wu et al., Nature Communications 2022): a client is one user u, joined
    to the items it rated and, after an expansion, to neighbours, users who hold the same items. On
    the scale from 0 to 1, with residuals s_k = r_uk - μ - b_k - b_u,

        r_uj = μ + b_j + b_u + <p_u, q_j> + layer({(q_k, s_k) : k rated by u, k ≠ j}, q_j).

    The rating that is predicted is never among the messages it is predicted from: otherwise a model
    would learn to copy it. Where neighbours are known, the vector of an item that the user rated is

        q_k + W Σ_n softmax_n(<q_k, e_n>) e_n,

    over the neighbours that hold item k; they are given and not trained. The item that is asked for
    has its own vector q_j.

    Parameters: Q (items, h), b (items), m with μ = 1/2 + 2 m, the layer's, of which W (h, h) is the
    first, then p (1, h) and b_u (1). The user's part is the head. It has one row, as every client
    has one user: an algorithm that shares the base only keeps it at the client. As in `dot`, **an
    item's row in a sum of updates may have a single contributor** (O12).

    Where this departs from the paper: ratings are messages (there, edges carry none), the rating
    that is predicted is left out, and neighbours do not change the vector of the item that is asked
    for.

    Args:
        layout: of all parameters.
        layer: None: the dot product alone. Else it takes its parameters; (m, h), items that are
            asked about; (h,), the user's own vector; (n, h), items that the user rated; (n,), their
            ratings less what biases explain; bool (m, n), which of them an answer may rest on. It
            returns what is added to the predictions, (m,).
        rate: of dropout on the vectors of rated items, in the layer.
        spread: standard deviations that the layer's parameters start from; 0.1 if not named, but 0
            for W and the constant `plain`.
    """

    def __init__(
        self,
        layout: Layout,
        layer: Compute | None = None,
        rate: float = 0.0,
        spread: Mapping[str, float] | None = None,
    ) -> None:
        super().__init__(layout.whole, rate=rate)
        self.spread = {"around": 0.0, "plain": 0.0, **(spread or {})}
        if layer is not None:
            cast(Parameters, self.layer).compute = layer

    def forward(self, *given: Any) -> Tensor:
        """Ratings, shape (M, 1); the generator feeds dropout.

        Raises:
            ValueError: the site has more than one user.
        """
        graph, _, item, generator, training = given
        if graph.users > 1:
            raise ValueError(
                "this model is for sites of one user; share the ratings out by user_per_client, or "
                "choose the model dot or gcn_dot"
            )
        items, head = cast(Any, self.items), cast(Any, self.head)
        own, bias = head.table[0], mean_rating(self) + head.bias
        # A user never learns neighbours of what it has not rated: with them in the query, what is
        # trained on would look unlike what is asked for.
        query = embedding(item, items.table)
        rating: Tensor = bias + items.bias.index_select(0, item) + query @ own
        layer = getattr(self, "layer", None)
        if layer is None:
            return rating[:, None]
        rated, values = graph.rated()
        residual = values - bias - items.bias.index_select(0, rated)
        seen = item[:, None] != rated[None, :]  # never the rating that is predicted
        vectors = dropout(self._vectors(graph, rated), self.rate, generator, training)
        added: Tensor = layer(query, own, vectors, residual, seen)
        return (rating + added)[:, None]

    def _vectors(self, graph: Bipartite, item: Tensor) -> Tensor:
        """Return items' vectors, (m, h), with what neighbours add to them."""
        vectors: Tensor = embedding(item, cast(Any, self.items).table)
        layer, near = getattr(self, "layer", None), graph.neighbours
        if layer is None or near is None:
            return vectors
        others, known = near.vectors[item], near.known[item]
        share = masked_softmax((others @ vectors[:, :, None])[:, :, 0], known)
        around: Tensor = layer.around
        return vectors + (share[:, None, :] @ others)[:, 0] @ around

    def initial(self, rng: np.random.Generator, glorot: Start) -> Weights:
        """Items' vectors normal, the layer's by `spread`, all others 0: μ is 1/2, p is 0."""
        parts = []
        for name, parameter in self.named_parameters():
            part, _, last = name.partition(".")
            spread = self.spread.get(last, _SD) if part == "layer" else 0.0
            if name == "items.table":
                spread = _SD
            shape = tuple(parameter.shape)
            drawn = rng.normal(0.0, spread, shape) if spread else np.zeros(shape)
            parts.append(drawn.astype(np.float32).ravel())
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
