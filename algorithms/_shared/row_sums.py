"""Rows of neighbours' features over edges between clients: a client's terms, and what it makes of
the rows that it is told (FedGCN, Yao et al., NeurIPS 2023; of embeddings see `algorithms.fed_gnn`).

With d_u the degree of u in the whole graph, itself counted, the term of a node is x_u / sqrt(d_u),
and the row of v is the sum of the terms of v and its neighbours. Each client adds up its own nodes'
terms, whoever is told a row multiplies by 1 / sqrt(d_v): its own degree, or, of another client's
node, the row's last column, in which every term is 1.

**Where rows are missing** a client uses what it has. A node's degree *in force* is that in the
whole graph if its row was told, or if all its neighbours are the client's own; else that in the
client's own graph. The input of a node whose row was told is that of GCN on the whole graph; of any
other it is the client's own propagation by the degrees in force. In the second layer a node hears
its own neighbours and those of others whose rows are here, and its degree counts exactly these. So
with all rows told logits are those of GCN on the whole graph, and with none those of GCN on the
client's own graph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import scipy.sparse as sp
    from torch import Tensor

    from algorithms.tasks import Site
    from algorithms.tasks.inputs import NodeData

__all__ = [
    "Linked",
    "aggregated",
    "check_numbers",
    "features",
    "look",
    "meet",
    "own_inputs",
    "sorted_rows",
    "staged",
]

Numbers = npt.NDArray[np.int64]
Reals = npt.NDArray[np.float32]
_LOCAL, _TOLD = "local", "told"
"""Under these names `NodeData.kept` holds the client's own graph, and how many rows it was told."""


class Linked:
    """What one client's nodes say to rows.

    Args:
        data: the client's graph, with its edges to other clients' nodes.
        hops: 1: rows are asked for own nodes; 2: for others' neighbours of them, too.
        values: (n, D), what stands for own nodes in the place of their features.

    Attributes:
        ids: (n,) public numbers of own nodes.
        tells: (N,), whether this client tells the terms of a node; all of its own ones, unless
            others hold some, too. N counts nodes of a common test as well, which come last.
        degree: (N,) degrees in the whole graph, the node itself counted.
        terms: (N, F + 1) CSR, or (N, D + 1), the nodes' terms; the last column is 1.
        links: (2, m), place of an own node, and number of the row that its term enters.
        wanted: (r,) numbers of rows that the client asks for, ascending.

    Raises:
        ValueError: the client does not know such edges.
    """

    def __init__(self, data: NodeData, hops: int, values: Any = None) -> None:
        import scipy.sparse as sp

        if data.ids is None or data.beyond is None:
            raise ValueError(
                "this client knows no edges to other clients' nodes; rows of neighbours need a "
                "partition that gives them: dirichlet_linked, METIS with linked: true; or set hops "
                "of fed_gcn, nodes of fed_gnn to 0"
            )
        self.ids, (here, there) = data.ids, data.beyond
        own, nodes = data.edges.numpy(), data.nodes
        self.tells = np.arange(nodes) < len(self.ids)
        if data.tells is not None:
            self.tells[: len(self.ids)] = data.tells
        self.degree: Numbers = 1 + np.bincount(np.hstack([*own, here]), minlength=nodes)
        root = 1.0 / np.sqrt(self.degree)
        held = features(data) if values is None else sp.csr_array(values)
        if held.shape[0] < nodes:  # of a common test's nodes nothing is told
            held = sp.vstack([held, sp.csr_array((nodes - held.shape[0], held.shape[1]))])
        scaled = sp.csr_array(sp.diags_array(root) @ held)
        ones = sp.csr_array(np.ones((nodes, 1)))
        self.terms: sp.csr_array = sp.csr_array(sp.hstack([scaled, ones]))
        inner = np.stack([here, there])
        self.wanted: Numbers = np.unique(self.ids[here])
        if hops > 1:
            self.wanted = np.union1d(self.wanted, there)
        if hops > 1 or data.tells is not None:  # who tells a node may hold its neighbour, too
            own = own[:, own[1] < len(self.ids)]
            mine = np.stack([np.arange(len(self.ids)), self.ids])
            both = [np.stack([own[a], self.ids[own[b]]]) for a, b in ((0, 1), (1, 0))]
            inner = np.hstack([inner, mine, *both])
        self.links: Numbers = inner[:, self.tells[inner[0]]]

    def sums(self, rows: Numbers) -> sp.csr_array:
        """Return this client's sums of some rows, (len(rows), F + 1) CSR; rows ascend."""
        import scipy.sparse as sp

        node, row = self.links
        place = np.minimum(np.searchsorted(rows, row), len(rows) - 1)
        hit = rows[place] == row
        ones = np.ones(int(hit.sum()))
        shape = (len(rows), len(self.tells))
        adding = sp.csr_array((ones, (place[hit], node[hit])), shape=shape)
        return sp.csr_array(adding @ self.terms)


def features(data: NodeData) -> sp.csr_array:
    """Return a client's features as CSR, float64."""
    import scipy.sparse as sp

    from algorithms.nn._shared.sparse import Sparse

    if not isinstance(data.x, Sparse):
        return sp.csr_array(data.x.numpy().astype(np.float64))
    matrix = data.x.matrix
    parts = (matrix.values(), matrix.col_indices(), matrix.crow_indices())
    values, columns, starts = (part.numpy() for part in parts)
    shape = (int(matrix.shape[0]), int(matrix.shape[1]))
    return sp.csr_array((values.astype(np.float64), columns, starts), shape=shape)


def meet(site: Site, nodes: Any, sums: Any) -> None:
    """Remember rows that were told: 1 + their numbers, 0 for padding, and sums, (r, F + 1)."""
    there = np.asarray(nodes) > 0
    rows = {"nodes": np.asarray(nodes)[there] - 1, "sums": np.asarray(sums)[there]}
    if (before := site.memory.get("rows")) is not None:
        rows = {name: np.concatenate([before[name], rows[name]]) for name in rows}
    site.memory["rows"] = rows


def local(data: NodeData) -> NodeData:
    """Return a client's own graph, whatever it was told."""
    found: NodeData = data.kept.get(_LOCAL, data)
    return found


def look(site: Site, made: Callable[[NodeData, Mapping[str, Any]], NodeData]) -> None:
    """Give the site's graph the rows that are remembered; with none it is the client's own.

    Args:
        site: the client's.
        made: from its own graph and the rows, as `aggregated`.
    """
    rows = site.memory.get("rows")
    if rows is None or not len(rows["nodes"]):
        site.data = local(site.data)
    elif site.data.kept.get(_TOLD) != len(rows["nodes"]):
        site.data = made(local(site.data), rows)


def check_numbers(numbers: Numbers, nodes: int) -> None:
    """Raise ValueError if a node has a number that there is not."""
    if numbers.size and int(numbers.max()) >= nodes:
        raise ValueError(
            f"a node has the public number {int(numbers.max())}, and there are {nodes}; say in "
            "algorithm.options how many there are (nodes)"
        )


def aggregated(data: NodeData, rows: Mapping[str, Any]) -> NodeData:
    """Return a client's graph whose two layers see the rows that were told; see the module's head.

    Its first N nodes are the client's own and those of a common test. Behind them stand the inputs
    of the first layer, of these nodes and of others', each of which hears itself alone; in the
    second layer the first N nodes hear these. One propagation matrix does both.

    Args:
        data: the client's own graph.
        rows: ``nodes``, (r,) numbers, and ``sums``, (r, F + 1): what other clients' terms add
            up to.
    """
    import scipy.sparse as sp

    mine = Linked(data, 2)
    told, sums = sorted_rows(rows)
    of_own = np.isin(told, mine.ids)
    own_place = np.searchsorted(mine.ids, told[of_own])
    others = told[~of_own]
    first = own_inputs(data, mine, own_place, sums[of_own])
    whole = mine.sums(others) + sp.csr_array(sums[~of_own]) if len(others) else None
    parts, outer = [first], np.zeros(0)
    if whole is not None:
        outer = np.rint(whole[:, [-1]].toarray().ravel())
        parts.append(sp.diags_array(1.0 / np.sqrt(outer)) @ whole[:, :-1])
    second = _second_layer(data, mine, others, outer)
    return staged(data, sp.csr_array(sp.vstack(parts)), second, len(told))


def staged(
    data: NodeData, inputs: sp.csr_array, second: sp.csr_array, told: int, *given: Tensor
) -> NodeData:
    """Return a graph whose first layer hears inputs, and whose second layer hears the first's.

    Args:
        data: the client's own graph, n nodes.
        inputs: (s, F), each heard by a node of its own in the first layer.
        second: (n, s), what own nodes hear of these in the second.
        told: how many rows it was made of.
        given: what the last of these s nodes say to the second layer whatever their inputs are.
    """
    import scipy.sparse as sp
    import torch

    from algorithms.nn._shared.sparse import Sparse

    size, nodes = inputs.shape[0], second.shape[0]
    x = sp.vstack([sp.csr_array((nodes, inputs.shape[1])), inputs])
    blocks: Any = [[None, second], [sp.csr_array((size, nodes)), sp.eye_array(size)]]
    pad = torch.zeros(size, dtype=torch.bool)
    roles = {"train": data.train, "val": data.val, "test": data.test, "tune": data.tune}
    masks: dict[str, Any] = {
        n: torch.cat([m, pad]) for n, m in {**roles, "common": data.common}.items()
    }
    y = torch.cat([data.y, torch.full((size,), -1)])
    seen = {"symmetric": Sparse.of(sp.csr_array(sp.block_array(blocks)))}
    made = replace(
        data,
        x=Sparse.of(sp.csr_array(x)),
        y=y,
        **masks,
        given=given,
        kept={_LOCAL: data, _TOLD: told},
    )
    return replace(made, _propagation=seen)


def sorted_rows(rows: Mapping[str, Any]) -> tuple[Numbers, npt.NDArray[np.float64]]:
    """Return numbers of rows, ascending, and their sums, (r, F + 1)."""
    order = np.argsort(rows["nodes"], kind="stable")
    return np.asarray(rows["nodes"], np.int64)[order], np.asarray(rows["sums"], np.float64)[order]


def own_inputs(data: NodeData, mine: Linked, told: Numbers, sums: Any) -> sp.csr_array:
    """Return the first layer's inputs of own nodes, (n, F).

    Args:
        data: the client's own graph.
        mine: what it says to rows.
        told: (r,), places of own nodes whose rows were told.
        sums: (r, F + 1), these.
    """
    import scipy.sparse as sp

    own, nodes = data.edges.numpy(), data.nodes
    inside = np.bincount(np.hstack(list(own)), minlength=nodes)
    known = inside + 1 == mine.degree
    known[told] = True
    degree = np.where(known, mine.degree, inside + 1)
    pairs = np.hstack([own, own[::-1], np.tile(np.arange(nodes), (2, 1))])
    links = sp.csr_array((np.ones(pairs.shape[1]), tuple(pairs)), shape=(nodes, nodes))
    x = features(data)
    root = sp.diags_array(1.0 / np.sqrt(degree))
    alone = sp.csr_array(root @ links @ root @ x)
    if not len(told):
        return alone
    # Of a row that was told all terms have degrees in the whole graph, the client's own ones too.
    telling = sp.diags_array(mine.tells.astype(np.float64))
    whole = sp.csr_array(links[told] @ telling @ mine.terms) + sp.csr_array(sums)
    exact = sp.diags_array(1.0 / np.sqrt(mine.degree[told])) @ whole[:, :-1]
    keep = np.ones(nodes)
    keep[told] = 0.0
    put = sp.csr_array((np.ones(len(told)), (told, np.arange(len(told)))), (nodes, len(told)))
    return sp.csr_array(sp.diags_array(keep) @ alone + put @ exact)


def _second_layer(data: NodeData, mine: Linked, others: Numbers, outer: Any) -> sp.csr_array:
    """Return what own nodes hear in the second layer, (n, n + others)."""
    import scipy.sparse as sp

    own, nodes, (here, there) = data.edges.numpy(), data.nodes, _beyond(data)
    heard = np.isin(there, others)
    here, column = here[heard], nodes + np.searchsorted(others, there[heard])
    degree = 1 + np.bincount(np.hstack([*own, here]), minlength=nodes)
    both = np.hstack([degree, outer])
    pairs = np.hstack([own, own[::-1], np.tile(np.arange(nodes), (2, 1)), [here, column]])
    pairs = pairs.astype(np.int64)
    weight = 1.0 / np.sqrt(degree[pairs[0]] * both[pairs[1]])
    return sp.csr_array((weight, tuple(pairs)), shape=(nodes, nodes + len(others)))


def _beyond(data: NodeData) -> tuple[Numbers, Numbers]:
    if data.beyond is None:
        raise ValueError("this client knows no edges to other clients' nodes")
    return data.beyond[0], data.beyond[1]
