"""Cora and Coauthor CS with few columns, a data plug-in: features by row, times a public matrix.

Option `columns`: how many; the matrix is Gaussian, of variance 1 / columns and of seed 0, so
lengths are kept in expectation (Johnson and Lindenstrauss, 1984). Each site can do so by its own
records.
Other options as for the data set itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from secure_fgl.data.records import Graph
from secure_fgl.data.sources import node_npz
from secure_fgl.data.sources._shared.files import Shape

_WIDE = "narrow_"
NAMES = {
    "narrow_cora": "Cora, features projected to few columns by a public matrix",
    "narrow_coauthor_cs": "Coauthor CS, the same",
}


def describe(name: str, options: Mapping[str, Any]) -> Shape:
    """Return public sizes; raises ValueError for an option that the data set does not know."""
    rest = {key: value for key, value in options.items() if key != "columns"}
    found = node_npz.describe(name.removeprefix(_WIDE), rest)
    return found._replace(features=int(options["columns"]))


def load(name: str, root: Path | None, options: Mapping[str, Any]) -> Graph:
    """Return the graph; raises as `node_npz.load` does."""
    rest = {key: value for key, value in options.items() if key != "columns"}
    found = node_npz.load(name.removeprefix(_WIDE), root, rest)
    columns = int(options["columns"])
    held: Any = found.x
    x = sp.csr_array(held).astype(np.float64)
    scale = sp.diags_array(1.0 / np.maximum(np.asarray(x.sum(axis=1)).ravel(), 1.0))
    x = sp.csr_array(scale @ x)
    matrix = np.random.default_rng(0).normal(0.0, columns**-0.5, (x.shape[1], columns))
    return replace(found, name=name, x=(x @ matrix).astype(np.float32))
