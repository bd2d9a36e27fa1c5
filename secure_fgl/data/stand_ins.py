"""Stand-ins: data of clients that are not here, drawn from what one site's own records look like.

A rehearsal plays all clients of a plan where one site's data lie. The others' data are made of the
site's own statistics: nothing of another organisation is known or guessed. A stand-in has as many
records as the site, with its shares of roles. Its class mix is drawn around the site's (Dirichlet,
total weight the number of classes), since clients differ in it; within a class each column is drawn
by itself, so columns keep their values and lose what ties them together. Edges are random, as many
as the site has and as often within one class. Users rate as many items as the site's, by how often
these are rated there.

What is drawn stays in the process, as the site's own records do.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from secure_fgl.data.records import ClientGraph, ClientGraphs, ClientRatings, Features, Part

__all__ = ["stand_in"]

Numbers = npt.NDArray[np.int64]


def stand_in(own: Part, rng: np.random.Generator) -> Part:
    """Return what another client might hold, of the kind and size of what one client holds.

    Args:
        own: of the client that is here.
        rng: draws all of it.
    """
    if isinstance(own, ClientGraph):
        return _graph(own, rng)
    return _graphs(own, rng) if isinstance(own, ClientGraphs) else _ratings(own, rng)


def _graph(own: ClientGraph, rng: np.random.Generator) -> ClientGraph:
    """Return a graph of as many nodes; edges that cross clients are nobody's here."""
    alike = _alike(own.y, own.train | own.val | own.test, rng)
    y = own.y[alike]
    inside = own.y[own.edges[0]] == own.y[own.edges[1]]
    within = float(inside.mean()) if inside.size else 0.0
    return ClientGraph(
        edges=_edges(y, own.edges.shape[1], within, rng),
        x=_features(own.x, own.y, y, rng),
        y=y,
        train=own.train,
        val=own.val,
        test=own.test,
        nodes=own.nodes,
    )


def _graphs(own: ClientGraphs, rng: np.random.Generator) -> ClientGraphs:
    """Return as many graphs, each of the size of one of the site's and with as many edges."""
    used = own.train | own.val | own.test
    alike = _alike(own.y, used, rng) if own.y.ndim == 1 else _within(used, rng)
    sizes = own.sizes[alike]
    of = np.repeat(np.arange(len(own.sizes)), own.sizes)
    many = np.bincount(of[own.edges[0]], minlength=len(own.sizes))[alike]
    starts, parts = np.cumsum(sizes) - sizes, list[Numbers]()
    for start, size, count in zip(starts, sizes, many, strict=True):
        there = np.zeros(size, dtype=np.int64)
        parts.append(start + _edges(there, int(count), 1.0, rng))
    nothing = np.zeros(len(of), dtype=np.int64)
    return replace(
        own,
        sizes=sizes,
        edges=np.concatenate([np.zeros((2, 0), np.int64), *parts], axis=1),
        x=_features(own.x, nothing, np.zeros(int(sizes.sum()), dtype=np.int64), rng),
        y=own.y[alike],
    )


def _ratings(own: ClientRatings, rng: np.random.Generator) -> ClientRatings:
    """Return as many ratings of each user; the pair of a user and an item stands once."""
    items, times = np.unique(own.item, return_counts=True)
    chosen = np.empty_like(own.item)
    for user in np.unique(own.user):
        rows = np.flatnonzero(own.user == user)
        chosen[rows] = rng.choice(items, size=len(rows), replace=False, p=times / times.sum())
    return replace(own, item=chosen, rating=rng.choice(own.rating, size=len(own.rating)))


def _alike(y: Numbers, used: npt.NDArray[np.bool_], rng: np.random.Generator) -> Numbers:
    """Return for each record one of the site's whose label it gets; the unused keep theirs."""
    alike, rows = np.arange(len(y)), np.flatnonzero(used)
    classes, counts = np.unique(y[rows], return_counts=True)
    if not len(classes):
        return alike
    mix = rng.dirichlet(len(classes) * counts / counts.sum())
    drawn = rng.choice(len(classes), size=len(rows), p=mix)
    for place, label in enumerate(classes):
        wanted = np.flatnonzero(drawn == place)
        alike[rows[wanted]] = rng.choice(rows[y[rows] == label], size=len(wanted))
    return alike


def _within(used: npt.NDArray[np.bool_], rng: np.random.Generator) -> Numbers:
    """Return for each record one of the site's, used ones for those in use."""
    alike, rows = np.arange(len(used)), np.flatnonzero(used)
    alike[rows] = rng.choice(rows, size=len(rows)) if len(rows) else rows
    return alike


def _features(x: Features, y: Numbers, wanted: Numbers, rng: np.random.Generator) -> Features:
    """Return a row for each wanted label, drawn column by column from the rows of that label."""
    if isinstance(x, sp.csr_array):
        return _bags(x, y, wanted, rng)
    made = np.empty((len(wanted), x.shape[1]), dtype=np.float32)
    for label in np.unique(wanted):
        rows, places = np.flatnonzero(y == label), np.flatnonzero(wanted == label)
        for column in range(x.shape[1]):
            made[places, column] = x[rng.choice(rows, size=len(places)), column]
    return made


def _bags(x: sp.csr_array, y: Numbers, wanted: Numbers, rng: np.random.Generator) -> sp.csr_array:
    """Return sparse rows: as many entries as some row of the label has, each any of these rows'."""
    made: list[dict[int, float]] = [{} for _ in wanted]
    for label in np.unique(wanted):
        rows: Any = x[np.flatnonzero(y == label)]
        lengths = np.diff(rows.indptr)
        for place in np.flatnonzero(wanted == label):
            count = int(rng.choice(lengths))
            entries = rng.integers(rows.nnz, size=count) if rows.nnz else ()
            made[place] = {int(rows.indices[e]): float(rows.data[e]) for e in entries}
    ends = np.cumsum([0, *map(len, made)])
    columns = np.array([c for row in made for c in sorted(row)], dtype=np.int64)
    values = np.array([row[c] for row in made for c in sorted(row)], dtype=np.float32)
    return sp.csr_array((values, columns, ends), shape=(len(wanted), x.shape[1]))


def _edges(y: Numbers, count: int, within: float, rng: np.random.Generator) -> Numbers:
    """Return about so many pairs (2, m), each once with u < v, a share of them in one class."""
    if len(y) < 2 or not count:
        return np.zeros((2, 0), dtype=np.int64)
    begin = rng.integers(len(y), size=count)
    end = rng.integers(len(y), size=count)
    inside = rng.random(count) < within
    for label in np.unique(y):
        there, places = np.flatnonzero(y == label), np.flatnonzero(inside & (y[begin] == label))
        end[places] = rng.choice(there, size=len(places))
    pairs = np.stack([np.minimum(begin, end), np.maximum(begin, end)])
    found: Numbers = np.unique(pairs[:, pairs[0] < pairs[1]], axis=1)
    return found
