"""Cora with few columns, a data plug-in: features by row, times a public random matrix.

Option `columns`: how many; the matrix is Gaussian, of variance 1 / columns and of seed 0, so
lengths are kept in expectation (Johnson and Lindenstrauss, 1984). Each site can do so by its own
records.
`split: published` as for `cora`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from secure_fgl.data.records import Graph
from secure_fgl.data.sources import node_npz
from secure_fgl.data.sources._shared.source import Shape

NAMES = {"narrow_cora": "Cora, features projected to few columns by a public matrix"}


def describe(name: str, options: Mapping[str, Any]) -> Shape:
    """Return public sizes; raises ValueError for an option that Cora does not know."""
    rest = {key: value for key, value in options.items() if key != "columns"}
    return node_npz.describe("cora", rest)._replace(features=int(options["columns"]))


def load(name: str, root: Path | None, options: Mapping[str, Any]) -> Graph:
    """Return the graph; raises as `node_npz.load` does."""
    rest = {key: value for key, value in options.items() if key != "columns"}
    found = node_npz.load("cora", root, rest)
    columns = int(options["columns"])
    x = np.asarray(found.x.toarray() if hasattr(found.x, "toarray") else found.x, dtype=np.float64)
    x = x / np.maximum(x.sum(axis=1, keepdims=True), 1.0)
    matrix = np.random.default_rng(0).normal(0.0, columns**-0.5, (x.shape[1], columns))
    return replace(found, name=name, x=(x @ matrix).astype(np.float32))
