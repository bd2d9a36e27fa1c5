"""Published node-classification sets as plain `.npz` files in a folder that the user names.

A file `<root>/<name>/<name>.npz` holds `edges` int32 (2, M), each undirected pair once with u < v;
`y` int16 (N,), -1 for no label; and features, dense `x` float32 (N, F) or CSR arrays `x_indptr`,
`x_indices`, `x_data`, `x_shape`.

Options, all public:

* `split: published`: the set's own split instead of one drawn per run, where it has one:
  Planetoid's (Yang et al., ICML 2016) or one of ten (Pei et al., ICLR 2020; Platonov et al., ICLR
  2023), chosen by `fold: 0` to `9`.
* `largest_component: true`: the largest connected component only, as FED-PUB's partitions need
  (Baek et al., ICML 2023).

Features are taken as they are; `data.features` scales them (`secure_fgl.data.features`). The
co-author sets hold counts, where other loaders set them to 0 and 1.

`pubmed_structure` has no features in its file. It gets each node's degree in the whole graph, one
column per doubling; a site that holds a part of the graph would count less, so this set is for
structure and scale, and its accuracy is not PubMed's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fgl.data.records import Features, Graph, Masks
from secure_fgl.data.sources._shared.files import (
    Arrays,
    Shape,
    another_file,
    check_known,
    degree_buckets,
    dense_features,
    flag,
    fold,
    integers,
    largest_component,
    locate,
    proper_edges,
    proper_masks,
    published,
    read,
    sparse_features,
)

__all__ = ["NAMES", "describe", "load"]

NAMES: Mapping[str, Shape] = {
    "actor": Shape("node", 932, 5, 7600, False),
    "amazon_computers": Shape("node", 767, 10, 13752, False),
    "chameleon_filtered": Shape("node", 2325, 5, 890, False),
    "citeseer": Shape("node", 3703, 6, 3327, False),
    "coauthor_cs": Shape("node", 6805, 15, 18333, False),
    "coauthor_physics": Shape("node", 8415, 5, 34493, False),
    "cora": Shape("node", 1433, 7, 2708, False),
    "cora_ml": Shape("node", 2879, 7, 2995, False),
    "dblp": Shape("node", 1639, 4, 17716, False),
    # A generated grid (Platonov et al., ICLR 2023): public, and synthetic all the same.
    "minesweeper": Shape("node", 7, 2, 10000, True),
    "pubmed_structure": Shape("node", 9, 3, 19717, False),  # degrees 0, 1, 2 to 3, ... 128 to 255
    "squirrel_filtered": Shape("node", 2089, 5, 2223, False),
    "tolokers": Shape("node", 10, 2, 11758, False),
}
"""Public sizes of each set, from the literature; loading checks that the file agrees."""

COMPONENT: Mapping[str, int] = {
    "amazon_computers": 13381,
    "citeseer": 2120,
    "cora": 2485,
    "cora_ml": 2810,
    "dblp": 16191,
}
"""Nodes of the largest component, where it is not the whole graph."""

PLANETOID: Mapping[str, int] = {"citeseer": 120, "cora": 140, "pubmed_structure": 60}
"""Training nodes of Planetoid's split, 20 a class."""

FOLDED = (
    "actor",
    "chameleon_filtered",
    "minesweeper",
    "squirrel_filtered",
    "tolokers",
)
"""Sets with ten published splits, each with half of the nodes at most for training."""

FOLDS = 10


class _Parts(NamedTuple):
    edges: npt.NDArray[np.int64]
    x: Features
    y: npt.NDArray[np.int64]
    public: Masks | None


def describe(name: str, options: Mapping[str, Any]) -> Shape:
    """Public sizes from the table.

    Raises:
        ValueError: an option that the set does not know, or a value out of range.
    """
    splits = ("split", "fold") if name in FOLDED else ("split",) if name in PLANETOID else ()
    check_known(name, options, ("largest_component", *splits))
    shape = NAMES[name]
    published(name, options)
    fold(name, options, FOLDS)
    if flag(name, options, "largest_component"):
        shape = shape._replace(records=COMPONENT.get(name, shape.records))
    return shape


def load(name: str, root: Path | None, options: Mapping[str, Any]) -> Graph:
    """Read one set.

    Raises:
        FileNotFoundError: no folder was named, or the file is not in it.
        ValueError: an option is wrong, or the file is not what the table says.
    """
    asked = describe(name, options)
    path = locate(name, root, f"{name}/{name}.npz")
    parts = read(path, "node-classification", lambda arrays: _parts(arrays, name, options))
    _check(path, name, parts)
    edges, x, y, public = parts
    graph = Graph(name, edges, x, y, asked.classes, asked.synthetic, public=public)
    if not flag(name, options, "largest_component"):
        return graph
    graph = largest_component(graph)
    if graph.nodes != asked.records:
        raise another_file(path, f"{asked.records} nodes in its largest component")
    return graph


def _parts(arrays: Arrays, name: str, options: Mapping[str, Any]) -> _Parts:
    edges, y = integers(arrays, "edges"), integers(arrays, "y")
    public = None
    if published(name, options):
        ending, row = ("s", fold(name, options, FOLDS)) if name in FOLDED else ("", ...)
        public = Masks(*(arrays[f"{role}_mask{ending}"][row] for role in Masks._fields))
    return _Parts(edges, _features(arrays, name, edges), y, public)


def _features(arrays: Arrays, name: str, edges: npt.NDArray[np.int64]) -> Features:
    if name == "pubmed_structure":
        shape = NAMES[name]
        return degree_buckets(edges, shape.records, shape.features)
    if "x" in arrays:
        return dense_features(arrays, "x")
    return sparse_features(arrays)


def _check(path: Path, name: str, parts: _Parts) -> None:
    shape, (edges, x, y, public) = NAMES[name], parts
    agrees = (
        x.shape == (shape.records, shape.features)
        and y.shape == (shape.records,)
        and y.min() >= -1
        and y.max() == shape.classes - 1
        and edges.size > 0
        and proper_edges(edges, shape.records)
    )
    if not agrees:
        raise another_file(
            path,
            f"{shape.records} nodes, {shape.features} features, {shape.classes} classes and each "
            "edge once with u < v",
        )
    most = PLANETOID.get(name, -(-shape.records // 2))
    if public is not None and not (proper_masks(public, y) and public.train.sum() <= most):
        raise another_file(
            path, f"a split with {most} training nodes at most, disjoint roles and labelled nodes"
        )
