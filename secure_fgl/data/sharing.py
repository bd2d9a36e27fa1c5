"""Sharing a graph out among clients."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Protocol, cast

import numpy as np
import numpy.typing as npt

from secure_fgl.data import partitions
from secure_fgl.data._folder import member_names, members, unknown
from secure_fgl.data.graph import ClientGraph, Graph, Masks

__all__ = ["partition", "partition_names"]


class _Rule(Protocol):
    def assign(
        self, graph: Graph, clients: int, rng: np.random.Generator, **options: Any
    ) -> npt.NDArray[np.int64]: ...


def partition_names() -> tuple[str, ...]:
    """Names of all partitions, sorted."""
    return member_names(partitions)


def partition(
    graph: Graph,
    name: str,
    clients: int,
    masks: Masks,
    rng: np.random.Generator,
    options: Mapping[str, Any] | None = None,
) -> list[ClientGraph]:
    """Induced subgraphs, one a client; edges between clients are dropped.

    Args:
        graph: the whole graph.
        name: one of `partition_names()`.
        clients: number of clients.
        masks: training, validation and test nodes of the whole graph, see `split_masks`.
        rng: the partition's randomness.
        options: the partition's own options, for example `delta` of `louvain_balanced`.

    Raises:
        ValueError: unknown name or option, fewer than one client, or a graph that the rule cannot
            share out.
    """
    if name not in partition_names():
        raise unknown("partition", name, partition_names())
    if clients < 1:
        raise ValueError("a partition needs at least one client")
    rule, options = cast(_Rule, members(partitions)[name]), dict(options or {})
    _check_options(name, rule, options)
    owner = rule.assign(graph, clients, rng, **options)
    return [_induced(graph, masks, np.flatnonzero(owner == client)) for client in range(clients)]


def _check_options(name: str, rule: _Rule, options: dict[str, Any]) -> None:
    known = list(inspect.signature(rule.assign).parameters)[3:]  # after graph, clients, rng
    for option in options:
        if option not in known:
            raise unknown(f"option of the partition {name!r}", option, known)


def _induced(graph: Graph, masks: Masks, nodes: npt.NDArray[np.int64]) -> ClientGraph:
    local = np.full(graph.nodes, -1, dtype=np.int64)
    local[nodes] = np.arange(len(nodes))
    edges = local[graph.edges]  # ascending numbering keeps u < v
    train, val, test = (mask[nodes] for mask in masks)
    return ClientGraph(
        edges=np.ascontiguousarray(edges[:, (edges >= 0).all(axis=0)]),
        x=graph.x[nodes],
        y=graph.y[nodes],
        train=train,
        val=val,
        test=test,
        nodes=nodes,
    )
