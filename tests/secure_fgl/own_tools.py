"""A site's folder, written in a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import parquet

from secure_fgl.data.own import OwnSpec, Tally, load_site
from secure_fgl.data.records import Part

SECRET = "Mallory-7731"
"""Stands wherever a value is wrong; no error may repeat it."""

NODE = {
    "name": "pilot",
    "task": "node",
    "features": ["age", "income"],
    "classes": ["fine", "risky"],
    "records": 64,
    "split": [0.6, 0.2, 0.2],
}
GRAPH = {
    "name": "pilot",
    "task": "graph",
    "classes": ["active", "toxic"],
    "multilabel": True,
    "records": 64,
    "split": [0.6, 0.2, 0.2],
}
RATING = {
    "name": "pilot",
    "task": "rating",
    "users": 10,
    "items": 20,
    "lowest": 1,
    "highest": 5,
    "records": 64,
    "split": [0.6, 0.2, 0.2],
}

NODES = "id,label,age,income\na,fine,1,2.5\nb,risky,3,4\nc,,5,6\n"
EDGES = "source,target\na,b\nb,c\n"
MOLECULES = "smiles,active,toxic\nCCO,1,0\nc1ccccc1,0,\nCC(=O)O,,1\n"
RATINGS = "user,item,rating\n0,1,5\n0,2,3.5\n9,19,1\n"


def spec(base: Mapping[str, Any], **changes: Any) -> OwnSpec:
    """A valid spec with some keys changed; None takes a key away."""
    merged = {**base, **changes}
    return OwnSpec.model_validate({k: v for k, v in merged.items() if v is not None})


def site(root: Path, **texts: str | bytes) -> Path:
    """A folder ``root/site`` with CSV files, ``nodes="…"`` for ``nodes.csv``."""
    folder = root / "site"
    folder.mkdir(parents=True, exist_ok=True)
    for stem, text in texts.items():
        data = text if isinstance(text, bytes) else text.encode()
        (folder / f"{stem}.csv").write_bytes(data)
    return folder


def to_parquet(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    parquet.write_table(pa.table(dict(columns)), path)


def load(folder: Path, wanted: OwnSpec, tally: Tally | None = None) -> Any:
    """The part, with the split of seed 0."""
    return load_site(folder, wanted, np.random.default_rng(0), tally)


def same(one: Part, other: Part) -> bool:
    """Whether two parts are the same record, bit for bit."""
    ours, theirs = vars(one), vars(other)
    return ours.keys() == theirs.keys() and all(_alike(ours[k], theirs[k]) for k in ours)


def _alike(one: Any, other: Any) -> bool:
    if one is None or other is None:
        return one is other
    floats = one.dtype.kind == "f"
    equal = np.array_equal(np.asarray(one), np.asarray(other), equal_nan=floats)
    return equal and one.dtype == other.dtype
