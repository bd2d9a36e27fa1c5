"""Sharing a data set of any kind out among clients."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from numbers import Real
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fgl.data import partitions
from secure_fgl.data._folder import member_names, members, unknown
from secure_fgl.data.partitions._shared import Cut, Records, groups, of_all, of_homes, with_roles
from secure_fgl.data.records import (
    ClientGraph,
    ClientGraphs,
    ClientRatings,
    Dataset,
    Graph,
    GraphSet,
    Masks,
    Part,
    Ratings,
)

__all__ = [
    "check_partition",
    "gives_test",
    "induce",
    "is_even",
    "linkable_names",
    "links",
    "makes_split",
    "partition",
    "partition_names",
    "remarks",
]

_LINKED = "linked"
KINDS = {Graph: "node", GraphSet: "graph", Ratings: "rating"}


def partition_names(kind: str | None = None) -> tuple[str, ...]:
    """Names of all partitions, or of those that can share out "node", "graph" or "rating" data.

    Sorted.
    """
    if kind is None:
        return member_names(partitions)
    return tuple(name for name, rule in members(partitions).items() if kind in rule.KINDS)


def partition(
    whole: Dataset,
    name: str,
    clients: int,
    masks: Masks,
    rng: np.random.Generator,
    options: Mapping[str, Any] | None = None,
) -> list[Part]:
    """What each client holds.

    Of a graph the induced subgraphs: edges between clients are dropped, but for rules that are
    `LINKED`, or `LINKABLE` with the option `linked`, which leave each end's client the number of
    the other end. Of a set of graphs whole graphs, renumbered; of ratings the rows, users and items
    keeping their numbers.

    Args:
        whole: the whole data set.
        name: one of `partition_names()`.
        clients: number of clients.
        masks: training, validation and test records of the whole set, see `split_masks`. Rules
            that belong to a paper's own split (label_skew_major, graphs_one_dataset,
            graphs_multi_dataset) draw roles themselves.
        rng: the partition's randomness.
        options: the partition's own options, for example `delta` of `louvain_balanced`.

    Raises:
        ImportError: the rule needs a package that is not installed.
        ValueError: unknown name or option, an option of another type, fewer than one client, a
            partition for another kind of data, or data that the rule cannot share out.
    """
    rule = _rule(name)
    options = check_partition(name, KINDS[type(whole)], options)
    linked = _links(rule, options)
    options.pop(_LINKED, None)
    if clients < 1:
        raise ValueError("a partition needs at least one client")
    if hasattr(rule, "cut"):
        cuts: list[Cut] = rule.cut(whole, masks, clients, rng, **options)
    else:
        owner: Records = rule.assign(whole, clients, rng, **options)
        cuts = with_roles(groups(owner, clients), masks)
    induce = _inducer(whole)
    parts = [induce(cut) for cut in cuts]
    if not (linked and isinstance(whole, Graph)):
        return parts
    graphs = [part for part in parts if isinstance(part, ClientGraph)]
    return [*(of_homes if getattr(rule, "LINKABLE", False) else of_all)(graphs, whole)]


def check_partition(name: str, kind: str, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the options, after checking without data that they and the kind of task fit.

    Raises:
        ValueError: it does not.
    """
    rule = _rule(name)
    if kind not in rule.KINDS:
        fit = ", ".join(partition_names(kind))
        raise ValueError(
            f"the partition {name!r} shares out {' or '.join(rule.KINDS)} data and this is {kind} "
            f"data; choose one of: {fit}"
        )
    return _checked(name, rule, options)


def makes_split(name: str) -> bool:
    """Tell whether a partition gives records roles of its own, whatever the split of the whole.

    Raises:
        ValueError: unknown name.
    """
    return bool(getattr(_rule(name), "OWN_SPLIT", False))


def is_even(name: str) -> bool:
    """Tell whether a partition gives clients about as many records each, and each to one of them.

    Raises:
        ValueError: unknown name.
    """
    return bool(getattr(_rule(name), "EVEN", False))


def gives_test(name: str) -> bool:
    """Tell whether a partition gives every client one and the same test graph to be scored on.

    Raises:
        ValueError: unknown name.
    """
    return bool(getattr(_rule(name), "COMMON_TEST", False))


def links(name: str, options: Mapping[str, Any] | None = None) -> bool:
    """Tell whether a partition leaves clients their nodes' edges to other clients' nodes.

    Raises:
        ValueError: unknown name.
    """
    return _links(_rule(name), options or {})


def linkable_names() -> tuple[str, ...]:
    """Return the names of partitions that do, by themselves or with the option `linked`; sorted."""
    known = members(partitions).items()
    words = ("LINKED", "LINKABLE")
    return tuple(name for name, rule in known if any(getattr(rule, w, False) for w in words))


def remarks(name: str, options: Mapping[str, Any] | None = None) -> tuple[str, ...]:
    """Return what a plan must say of data that a partition with such options shares out.

    Args:
        name: one of `partition_names()`.
        options: the partition's own.

    Raises:
        ValueError: unknown name.
    """
    if links(name, options):
        return (
            f"partition {name}: every client knows the public numbers of its own nodes and of "
            "other clients' nodes that these have edges to",
        )
    if not getattr(_rule(name), "SHARED_GRAPH", False):
        return ()
    return (
        f"partition {name}: every client holds the whole graph, all nodes, edges and features; "
        "labels alone are private",
    )


def induce(whole: Dataset, members: Records, masks: Masks) -> Part:
    """What a holder of these records holds, as in `partition`.

    Args:
        whole: the whole data set.
        members: numbers of records, int64 (n,), ascending.
        masks: training, validation and test records of the whole set.
    """
    return _inducer(whole)(with_roles([members], masks)[0])


def _rule(name: str) -> ModuleType:
    if name not in partition_names():
        raise unknown("partition", name, partition_names())
    return members(partitions)[name]


def _checked(name: str, rule: ModuleType, options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Options as the rule knows them: names, and the types of their defaults."""
    signature = inspect.signature(rule.cut if hasattr(rule, "cut") else rule.assign)
    known = {
        word: parameter.default
        for word, parameter in signature.parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    known.update({_LINKED: False} if getattr(rule, "LINKABLE", False) else {})
    given = dict(options or {})
    for option, value in given.items():
        if option not in known:
            raise unknown(f"option of the partition {name!r}", option, known)
        kind = type(known[option])
        fits = isinstance(value, Real if kind is float else kind)
        if not fits or isinstance(value, bool) is not (kind is bool):
            word = {bool: "true or false", int: "a whole number", float: "a number"}[kind]
            raise ValueError(
                f"the option {option!r} of the partition {name!r} must be {word}, like "
                f"{str(known[option]).lower()}"
            )
    return given


def _links(rule: ModuleType, options: Mapping[str, Any]) -> bool:
    """Tell whether clients know their nodes' edges to other clients' nodes."""
    return bool(getattr(rule, "LINKED", False) or options.get(_LINKED, False))


def _inducer(whole: Dataset) -> Callable[[Cut], Part]:
    if isinstance(whole, Graph):
        return lambda cut: _graph(whole, cut)
    if isinstance(whole, GraphSet):
        return _graphs(whole)
    return lambda cut: _ratings(whole, cut)


def _roles(cut: Cut) -> dict[str, npt.NDArray[np.bool_]]:
    return {role: np.isin(cut.members, getattr(cut, role)) for role in Masks._fields}


def _graph(whole: Graph, cut: Cut) -> ClientGraph:
    common = None
    if cut.common is not None and len(cut.common):
        nothing = cut.common[:0]
        common = _graph(whole, Cut(cut.common, nothing, nothing, cut.common))
    facts: dict[str, Any] = {
        "y": whole.y[cut.members] if cut.labels is None else cut.labels,
        "nodes": cut.members,
        "common": common,
        "tune": None if cut.tune is None else np.isin(cut.members, cut.tune),
        **_roles(cut),
    }
    if len(cut.members) == whole.nodes:  # one array for all who hold everything
        return ClientGraph(edges=whole.edges, x=whole.x, **facts)
    local = np.full(whole.nodes, -1, dtype=np.int64)
    local[cut.members] = np.arange(len(cut.members))
    edges = local[whole.edges]  # ascending numbering keeps u < v
    return ClientGraph(
        edges=np.ascontiguousarray(edges[:, (edges >= 0).all(axis=0)]),
        x=whole.x[cut.members],
        **facts,
    )


def _graphs(whole: GraphSet) -> Callable[[Cut], ClientGraphs]:
    first = np.cumsum(whole.sizes) - whole.sizes
    graph_of = np.repeat(np.arange(whole.records), whole.sizes)[whole.edges[0]]
    order = np.argsort(graph_of, kind="stable")
    count = np.bincount(graph_of, minlength=whole.records)
    first_edge = np.cumsum(count) - count

    def induce(cut: Cut) -> ClientGraphs:
        graphs = cut.members
        sizes, edges = whole.sizes[graphs], order[_ranges(first_edge[graphs], count[graphs])]
        moved = np.cumsum(sizes) - sizes - first[graphs]  # one shift a graph keeps u < v
        return ClientGraphs(
            sizes=sizes,
            edges=whole.edges[:, edges] + np.repeat(moved, count[graphs]),
            x=whole.x[_ranges(first[graphs], sizes)],
            y=whole.y[graphs],
            graphs=graphs,
            **_roles(cut),
        )

    return induce


def _ranges(starts: Records, lengths: Records) -> Records:
    """start, start + 1, … of every range, one after the other."""
    before = np.cumsum(lengths) - lengths
    ranges: Records = np.arange(lengths.sum()) + np.repeat(starts - before, lengths)
    return ranges


def _ratings(whole: Ratings, cut: Cut) -> ClientRatings:
    rows = cut.members
    return ClientRatings(
        user=whole.user[rows],
        item=whole.item[rows],
        rating=whole.rating[rows],
        rows=rows,
        **_roles(cut),
    )
