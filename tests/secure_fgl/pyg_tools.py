"""Raw files of PyG's sets as they are published, and what an attacker would plant in them."""

from __future__ import annotations

import copyreg
import io
import pickle
import zipfile
from collections import defaultdict
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp

FEATURES, CLASSES, NODES, TRAINED = 3, 2, 520, 2
SIZES = {"features": FEATURES, "classes": CLASSES, "records": 600}
PICKLED = ("x", "tx", "allx", "y", "ty", "ally", "graph")


class Planted:
    """What runs when it is unpickled: it makes a file."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> Any:
        return (open, (str(self.marker), "w"))


class _Python2(pickle._Pickler):
    """Writes as Python 2 did: protocol 2, texts and bytes are one thing, old names of modules."""

    dispatch: ClassVar[dict[type, Any]] = dict(pickle._Pickler.dispatch)

    def _text(self, found: str) -> None:
        self._bytes(found.encode("latin-1"))

    def _bytes(self, found: bytes) -> None:
        size = len(found)
        head = b"U" + bytes([size]) if size < 256 else b"T" + size.to_bytes(4, "little")
        self.write(head + found)

    dispatch[str], dispatch[bytes] = _text, _bytes

    def reducer_override(self, found: Any) -> Any:
        if not isinstance(found, sp.csr_matrix):
            return NotImplemented
        state = {name: getattr(found, name) for name in ("format", "indptr", "indices", "data")}
        shape = tuple(int(n) for n in getattr(found, "declared", found.shape))
        state |= {"_shape": shape, "maxprint": 50}
        return copyreg.__newobj__, (sp.csr_matrix,), state


def python2(found: Any) -> bytes:
    """Return a pickle in the form in which Planetoid's files are published."""
    file = io.BytesIO()
    _Python2(file, protocol=2).dump(found)
    old = file.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")
    return old.replace(b"cscipy.sparse._csr\n", b"cscipy.sparse.csr\n")


def planetoid_parts(*, gap: bool = False) -> dict[str, Any]:
    """Return what Planetoid's files hold: nodes in a ring, ten of them for testing.

    With a gap, one test node is in no file, as in CiteSeer.
    """
    rng = np.random.default_rng(1)
    tested, known = 10, NODES - 10
    x = sp.csr_matrix((rng.random((NODES, FEATURES)) > 0.5).astype(np.float32))
    y = np.eye(CLASSES, dtype=np.int32)[rng.integers(0, CLASSES, NODES)]
    graph = defaultdict(list)
    for node in range(NODES):
        graph[node] = [(node + 1) % NODES, (node - 1) % NODES, *([node] if node == 5 else [])]
    graph[7].append(8)  # twice, as some are in the published files
    test = [known + int(place) for place in rng.permutation(tested)]
    left = 1 if gap else 0
    test = [place for place in test if not (gap and place == known + 4)]
    return {
        "x": x[:TRAINED],
        "allx": x[:known],
        "tx": x[known : NODES - left],
        "y": y[:TRAINED],
        "ally": y[:known],
        "ty": y[known : NODES - left],
        "graph": graph,
        "test.index": test,
    }


def planetoid(root: Path, name: str = "Toy", *, gap: bool = False, **parts: bytes) -> Path:
    """Write a raw set for `pyg/Planetoid/NAME` with some files replaced; return its folder."""
    folder = root / "pyg" / "Planetoid" / name / "raw"
    folder.mkdir(parents=True)
    for part, content in planetoid_parts(gap=gap).items():
        lines = "".join(f"{place}\n" for place in content) if part == "test.index" else ""
        data = parts.get(part) or (lines.encode() if lines else python2(content))
        (folder / f"ind.{name.lower()}.{part}").write_bytes(data)
    return folder


def attributed(root: Path, **arrays: Any) -> Path:
    """Write a raw `pyg/Amazon/Photo` of four nodes with some arrays replaced; return the file."""
    x = sp.csr_array(np.eye(4, FEATURES, dtype=np.float32))
    arcs = sp.csr_array(np.roll(np.eye(4, dtype=np.float32), 1, axis=0))
    found: dict[str, Any] = {"labels": np.array([0, 1, 0, 1])}
    for name, matrix in (("attr", x), ("adj", arcs)):
        found |= {f"{name}_{p}": getattr(matrix, p) for p in ("data", "indices", "indptr", "shape")}
    path = root / "pyg" / "Amazon" / "Photo" / "raw" / "amazon_electronics_photo.npz"
    path.parent.mkdir(parents=True)
    np.savez(path, **{**found, **arrays})
    return path


def declare(path: Path, member: str, shape: tuple[int, ...]) -> None:
    """Rewrite an archive so that one array declares another shape than it has."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    file = io.BytesIO()
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    members[f"{member}.npy"] = file.getvalue() + b"\0" * 16
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
