"""Twitch streamers of six countries: a natural federation (Rozemberczki et al., 2021, "MUSAE").

`<root>/twitch/twitch.npz` holds for each country `<country>_edges`, `<country>_y` and CSR features
`<country>_x_indptr` and so on, as in `node_npz`. The countries share one feature space and no edge.
They are joined to one graph whose `owner` is the country, in the order of `COUNTRIES`, so that the
partition `by_owner` gives six clients. The label is 1 for mature content.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from secure_fgl.data.records import Graph
from secure_fgl.data.sources._shared.files import (
    Arrays,
    Shape,
    another_file,
    check_known,
    integers,
    locate,
    proper_edges,
    read,
    sparse_features,
)

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = ["COUNTRIES", "NAMES", "describe", "load"]

COUNTRIES: Mapping[str, int] = {
    "DE": 9498,
    "ENGB": 7126,
    "ES": 4648,
    "FR": 6549,
    "PTBR": 1912,
    "RU": 4385,
}
"""Nodes of each country."""

FEATURES, CLASSES = 3170, 2

NAMES: Mapping[str, Shape] = {
    "twitch": Shape("node", FEATURES, CLASSES, sum(COUNTRIES.values()), False)
}
"""Public sizes, from the literature; loading checks that the file agrees."""

_Country: TypeAlias = "tuple[npt.NDArray[np.int64], sp.csr_array, npt.NDArray[np.int64]]"


def describe(name: str, options: Mapping[str, Any]) -> Shape:
    """Public sizes from the table.

    Raises:
        ValueError: an option was given; this set has none.
    """
    check_known(name, options, ())
    return NAMES[name]


def load(name: str, root: Path | None, options: Mapping[str, Any]) -> Graph:
    """Read the six countries.

    Raises:
        FileNotFoundError: no folder was named, or the file is not in it.
        ValueError: an option was given, or the file is not what the table says.
    """
    import scipy.sparse as sp

    shape = describe(name, options)
    path = locate(name, root, f"{name}/{name}.npz")
    parts = read(path, "node-classification", _parts)
    for country, part in zip(COUNTRIES, parts, strict=True):
        _check(path, country, part)
    starts = [0, *accumulate(COUNTRIES.values())][:-1]
    return Graph(
        name,
        np.concatenate(
            [edges + start for (edges, _, _), start in zip(parts, starts, strict=True)], axis=1
        ),
        sp.vstack([x for _, x, _ in parts], format="csr"),
        np.concatenate([y for _, _, y in parts]),
        shape.classes,
        shape.synthetic,
        owner=np.repeat(np.arange(len(COUNTRIES)), list(COUNTRIES.values())),
    )


def _parts(arrays: Arrays) -> list[_Country]:
    return [
        (
            integers(arrays, f"{country}_edges"),
            sparse_features(arrays, f"{country}_"),
            integers(arrays, f"{country}_y"),
        )
        for country in COUNTRIES
    ]


def _check(path: Path, country: str, part: _Country) -> None:
    (edges, x, y), nodes = part, COUNTRIES[country]
    agrees = (
        x.shape == (nodes, FEATURES)
        and y.shape == (nodes,)
        and y.min() == 0
        and y.max() == CLASSES - 1
        and proper_edges(edges, nodes)
    )
    if not agrees:
        raise another_file(
            path,
            f"{nodes} nodes, {FEATURES} features and {CLASSES} classes for {country}, and each "
            "edge once with u < v",
        )
