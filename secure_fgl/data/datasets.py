"""Data sets by name."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, cast

from algorithms.tasks import DataSpec
from secure_fgl.data import sources
from secure_fgl.data._folder import members, unknown
from secure_fgl.data.graph import Graph
from secure_fgl.data.sources._source import Source

__all__ = ["dataset_names", "load_dataset", "spec_of"]

ROOT_VARIABLE = "SECURE_FGL_DATA"
"""Environment variable that names the data folder when no root is given."""


@cache
def _sources() -> dict[str, Source]:
    found = (cast(Source, module) for module in members(sources).values())
    return {name: source for source in found for name in source.NAMES}


def _source(name: str) -> Source:
    by_name = _sources()
    if name not in by_name:
        raise unknown("data set", name, by_name)
    return by_name[name]


def dataset_names() -> tuple[str, ...]:
    """Names of all data sets, sorted."""
    return tuple(sorted(_sources()))


def load_dataset(name: str, root: str | Path | None = None, **options: Any) -> Graph:
    """Read or generate a data set.

    Args:
        name: one of `dataset_names()`.
        root: folder of the data files; without it the environment variable SECURE_FGL_DATA.
            Generated sets need none.
        options: the source's own options, for example `seed` of `synthetic_banks`.

    Raises:
        FileNotFoundError: the folder or the file is not there; says which path was looked for.
        ValueError: unknown name or option, or a file that is not the published set.
    """
    folder = root if root is not None else os.environ.get(ROOT_VARIABLE) or None
    return _source(name).load(name, None if folder is None else Path(folder).expanduser(), options)


def spec_of(
    name: str,
    *,
    clients: int,
    train_share: float = 0.2,
    options: Mapping[str, Any] | None = None,
) -> DataSpec:
    """What a plan may know of a data set; no file is opened.

    `records`, the bound of the training records at one site, is the next power of two at or above
    ceil(train_share x nodes): one site might hold them all, and the true counts stay private.

    Raises:
        ValueError: unknown name or option, fewer than one client, or a share outside (0, 1].
    """
    if not 0.0 < train_share <= 1.0:
        raise ValueError("train_share must be above 0 and at most 1")
    shape = _source(name).describe(name, options or {})
    # Rounded first, so that 0.2 x 2560, in binary a little above 512, stays 512.
    most = max(1, math.ceil(round(train_share * shape.nodes, 6)))
    return DataSpec(
        task="node",
        features=shape.features,
        classes=shape.classes,
        records=1 << (most - 1).bit_length(),
        clients=clients,
        synthetic=shape.synthetic,
        name=name,
    )
