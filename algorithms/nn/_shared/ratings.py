"""What rating models share: the bipartite graph of who rated what, and how a model is asked.

A site numbers the users and items that it knows anew, from 0; a model sees these own numbers only,
so that its cost follows the site's ratings and not the size of the catalogue.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from algorithms.nn._shared.rating_layouts import BUCKETS, Inputs
from algorithms.nn._shared.sparse import Propagation, propagation
from algorithms.tasks import Weights

__all__ = [
    "Bipartite",
    "Mean",
    "Neighbours",
    "RatingModel",
    "Side",
    "Start",
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


class RatingModel(torch.nn.Module):
    """A module from users and items to ratings on the scale from 0 to 1."""

    def forward(
        self,
        graph: Bipartite,
        user: Tensor,
        item: Tensor,
        generator: torch.Generator,
        training: bool,
    ) -> Tensor:
        """Ratings before they are clipped, shape (M, 1), of the pairs (user, item), int64 (M,)."""
        raise NotImplementedError

    def initial(self, rng: np.random.Generator, glorot: Start) -> Weights:
        """Starting values of all parameters, flat and in order; by default `glorot`'s."""
        return glorot(rng)


class Mean(torch.nn.Module):
    """The mean rating as a parameter of its own, μ = 1/2 + 2 m with m at 0 in the beginning.

    Adam moves all parameters alike. With μ = m the many biases that a rating touches learn the mean
    in its place, and a user or item without a bias of its own is predicted too low. Twice the step
    is enough (a small Ciao category, a third of the test users without a training rating: MAE 0.84
    with μ = 1/2 + m, 0.74 so), and plain gradient descent stays stable below lr = 1/4.
    """

    def __init__(self) -> None:
        super().__init__()
        self.deviation = torch.nn.Parameter(torch.empty(1))

    def forward(self) -> Tensor:
        """μ, shape (1,)."""
        return 0.5 + 2.0 * self.deviation


class Side(torch.nn.Module):
    """A vector and a bias for each user, or each item."""

    def __init__(self, count: int, hidden: int) -> None:
        super().__init__()
        self.table = torch.nn.Parameter(torch.empty(count, hidden))
        self.bias = torch.nn.Parameter(torch.empty(count))
