"""Small sites of each kind of task, for what must run on all of them without a change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from algorithms.tasks import DataSpec, Site
from algorithms.tasks.graph import GraphTask
from algorithms.tasks.inputs import GraphsData, NodeData, RatingsData
from algorithms.tasks.node import NodeTask
from algorithms.tasks.rating import RatingTask

KINDS = ("node", "graph", "rating")
CLIENTS = 4
USERS, ITEMS = 6, 8


def roles(rng: Any, records: int) -> dict[str, Any]:
    """Return masks of half, a quarter and a quarter of the records."""
    role = rng.permutation(records) % 4
    return {"train": role < 2, "val": role == 2, "test": role == 3}


def triangle(rng: Any, nodes: int) -> Any:
    """Return the edges of a random graph, (2, M), u < v."""
    return np.stack(np.nonzero(np.triu(rng.random((nodes, nodes)) < 0.3, k=1))).astype(np.int64)


def _node(rng: Any) -> NodeData:
    y = rng.integers(3, size=24)
    x = rng.random((24, 5)).astype(np.float32) + np.eye(5, dtype=np.float32)[y]
    part = SimpleNamespace(edges=triangle(rng, 24), x=x, y=y, **roles(rng, 24))
    return NodeData.from_graph(part)


def _graph(rng: Any) -> GraphsData:
    sizes = rng.integers(3, 7, size=12)
    starts = np.cumsum(sizes) - sizes
    edges = [triangle(rng, size) + start for size, start in zip(sizes, starts, strict=True)]
    y = rng.integers(2, size=(12, 1)).astype(np.float32)
    x = rng.random((sizes.sum(), 5)) + np.repeat(y, sizes)[:, None]
    part = SimpleNamespace(
        sizes=sizes, edges=np.hstack(edges), x=x.astype(np.float32), y=y, **roles(rng, 12)
    )
    return GraphsData.from_graphs(part)


def _rating(rng: Any) -> RatingsData:
    pairs = rng.permutation(USERS * ITEMS)[:24]
    part = SimpleNamespace(
        user=pairs // ITEMS,
        item=pairs % ITEMS,
        rating=rng.integers(1, 6, size=24).astype(np.float32),
        **roles(rng, 24),
    )
    return RatingsData.from_ratings(part, USERS, ITEMS)


def task_of(kind: str, **options: Any) -> Any:
    """Return a small task of a kind, by default with plain gradient steps and no dropout."""
    chosen = {"hidden": 4, "dropout": 0.0, "lr": 0.05, "optimiser": "sgd", **options}
    public: dict[str, Any] = {"records": 64, "clients": CLIENTS, "synthetic": True, "name": "toy"}
    if kind == "node":
        return NodeTask(DataSpec("node", 5, 3, **public), **chosen)
    if kind == "graph":
        return GraphTask(DataSpec("graph", 5, 1, multilabel=True, **public), **chosen)
    spec = DataSpec("rating", 0, 1, users=USERS, items=ITEMS, lowest=1.0, highest=5.0, **public)
    return RatingTask(spec, **chosen)


def sites_of(kind: str, *, alike: bool = False, clients: int = CLIENTS) -> list[Site]:
    """Return sites with data of their own, or all with the same."""
    make = {"node": _node, "graph": _graph, "rating": _rating}[kind]
    return [
        Site(make(np.random.default_rng(0 if alike else client)), seed=client)
        for client in range(clients)
    ]
