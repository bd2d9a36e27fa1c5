"""`data.pt`: a saved PyG `Data`, a list of them for graph tasks, or the same as plain dicts.

A `.pt` file is a pickle, and an ordinary load runs whatever its writer put into it. This one is
read by torch's restricted unpickler (``weights_only=True``), which knows tensors, plain containers
and, beyond PyG's own list, the four classes that a `Data` is made of; any other name in the file is
refused before it is looked up. What comes back is trusted no further: only plain tensors are taken
out of it, and each is checked. A tensor may be a forgery too: a sparse one whose places lie outside
its own shape writes where it likes when it is made dense, and a dense one may state more numbers
than it brings. torch looks at neither unless it is asked.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from secure_fgl.data.own.kinds import graph_set
from secure_fgl.data.own.spec import OwnSpec
from secure_fgl.data.own.tables import Found, OwnDataError, Tally, undirected
from secure_fgl.data.records import Features, Graph, Masks

if TYPE_CHECKING:
    import torch

__all__ = ["SAVED", "read_saved"]

SAVED = "data.pt"

_LAYOUTS = ("torch.strided", "torch.sparse_coo", "torch.sparse_csr")
_ROLES = ("train_mask", "val_mask", "test_mask")


def read_saved(path: Path, spec: OwnSpec, tally: Tally, labelled: bool = True) -> Found:
    """Read a saved graph, or saved graphs.

    Raises:
        OwnDataError: the file holds more than tensors in a `Data`, or tensors that do not fit the
            spec; names the tensor and the row.
    """
    loaded = _load(path)
    if spec.task == "node":
        return _one(_Saved(path, loaded, spec), tally, labelled)
    if spec.task == "graph" and isinstance(loaded, list | tuple) and loaded:
        return _many(path, list(loaded), spec, tally, labelled)
    what = f"a {spec.task} task cannot use what is saved here"
    fix = "a node task takes one Data, a graph task a list of them, a rating task ratings.csv"
    raise OwnDataError(path, what, fix=fix)


def _load(path: Path) -> Any:
    import torch
    from torch_geometric.data import Data
    from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
    from torch_geometric.data.storage import GlobalStorage

    # Only what is not allowed yet: all that is named is taken away again, PyG's own included.
    known = torch.serialization.get_safe_globals()
    wanted = Data, DataEdgeAttr, DataTensorAttr, GlobalStorage
    parts = [part for part in wanted if part not in known]
    try:
        _measure(path)
        with (
            torch.serialization.safe_globals(parts),
            torch.sparse.check_sparse_tensor_invariants(),  # type: ignore[no-untyped-call]
        ):
            loaded = torch.load(path, map_location="cpu", weights_only=True)
        if isinstance(loaded, list | tuple):
            return [item.to_dict() if type(item) is Data else item for item in loaded]
        return loaded.to_dict() if type(loaded) is Data else loaded
    except OSError as error:
        what = f"the file cannot be read ({error.strerror})"
        raise OwnDataError(path, what) from error
    except Exception:  # a hostile or damaged file may raise anything, and none of it is told
        raise OwnDataError(
            path,
            "the file is not a saved Data of tensors alone, and was not opened further",
            why="it is damaged, or holds other Python objects, which could run code when loaded",
            fix="save again with tensors only: torch.save(data.to_dict(), 'data.pt')",
        ) from None


def _measure(path: Path) -> None:
    """Refuse an archive that grows when it is opened; torch writes its entries as they are."""
    with zipfile.ZipFile(path) as archive:
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
            raise ValueError("compressed")


def _stated(found: torch.Tensor) -> int:
    """Return how many bytes a tensor has at least, by its own word."""
    if str(found.layout) == "torch.strided":
        return found.numel() * found.element_size()
    stated: int = max([found._nnz(), *found.shape[:1]])
    return stated


class _Saved:
    """The tensors of one graph, checked one by one; `at` is its place in a list."""

    def __init__(self, path: Path, content: Any, spec: OwnSpec, at: str = "") -> None:
        self.path, self.spec, self.at = path, spec, at
        if not isinstance(content, dict):
            raise self.wrong("this is no Data, nor a dict of tensors")
        self._content, self._size = content, path.stat().st_size

    def wrong(self, what: str, column: str = "", row: str = "", fix: str = "") -> OwnDataError:
        place = ", ".join(part for part in (self.at, row) if part)
        return OwnDataError(self.path, what, row=place, column=column, fix=fix)

    def refuse(self, bad: npt.NDArray[np.bool_], column: str, what: str, unit: str = "row") -> None:
        if bad.any():
            raise self.wrong(what, column, f"{unit} {int(bad.argmax())}")

    def has(self, name: str) -> bool:
        return self._content.get(name) is not None

    def tensor(self, name: str) -> torch.Tensor:
        import torch

        if not self.has(name):
            raise self.wrong("the tensor is missing", name)
        found = self._content[name]
        if type(found) is not torch.Tensor or found.is_quantized or found.is_complex():
            raise self.wrong("this is not a plain tensor of real numbers", name)
        if found.is_nested or str(found.layout) not in _LAYOUTS:
            raise self.wrong("this is neither a dense tensor nor a sparse one by rows", name)
        if _stated(found) > self._size:
            fix = "if it is a view of fewer numbers, save its .contiguous()"
            raise self.wrong("the tensor states more numbers than the file holds", name, fix=fix)
        return found.detach()

    def whole(self, name: str) -> npt.NDArray[np.int64]:
        found = self.tensor(name)
        if str(found.layout) != "torch.strided" or found.is_floating_point():
            raise self.wrong("this is not a dense tensor of whole numbers", name)
        return found.numpy().astype(np.int64)

    def features(self) -> Features:
        x, columns = self.tensor("x"), self.spec.feature_columns
        if x.dim() != 2 or x.shape[0] < 1 or x.shape[1] != len(columns):
            fix = f"x has one row a node and {len(columns)} columns"
            raise self.wrong("the tensor has not the shape of spec.yaml", "x", fix=fix)
        if str(x.layout) != "torch.strided":
            return self._sparse(x)
        dense = x.float().contiguous().numpy()
        bad = ~np.isfinite(dense)
        if bad.any():
            row, place = np.argwhere(bad)[0]
            raise self.wrong("the value is not a finite number", columns[place], f"row {row}")
        return dense

    def _sparse(self, x: torch.Tensor) -> Features:
        coo = x.to_sparse_coo().coalesce()  # type: ignore[no-untyped-call]
        ends, values = coo.indices().numpy(), coo.values().float().numpy()
        if values.ndim != 1 or not np.isfinite(values).all():
            raise self.wrong("a value is not a finite number", "x")
        return sp.coo_array((values, (ends[0], ends[1])), shape=(x.shape[0], x.shape[1])).tocsr()

    def edges(self, nodes: int, tally: Tally) -> npt.NDArray[np.int64]:
        tally.edge_data += sum(self.has(n) for n in ("edge_weight", "edge_attr", "edge_type"))
        ends = self.whole("edge_index")
        if ends.ndim != 2 or len(ends) != 2:
            raise self.wrong("the tensor is not of shape (2, edges)", "edge_index")
        off = np.asarray(((ends < 0) | (ends >= nodes)).any(axis=0))
        self.refuse(off, "edge_index", "an end is not a row of x", unit="edge")
        return undirected(ends, nodes, tally)

    def classes(self, records: int) -> npt.NDArray[np.int64]:
        y = self.whole("y").reshape(-1)
        if len(y) != records:
            raise self.wrong("the tensor has not one label a record", "y")
        off = (y < -1) | (y >= len(self.spec.labels))
        self.refuse(off, "y", "the label is not a class of spec.yaml")
        return y

    def answers(self) -> npt.NDArray[np.float32]:
        """The yes-or-no labels of one graph, float32 (T,)."""
        found = self.tensor("y")
        if str(found.layout) != "torch.strided":
            raise self.wrong("this is not a dense tensor", "y")
        y: npt.NDArray[np.float32] = found.float().reshape(-1).numpy()
        if len(y) != len(self.spec.label_columns):
            raise self.wrong("the tensor has not one entry a label of spec.yaml", "y")
        bad = ~(np.isnan(y) | np.isin(y, (0.0, 1.0)))
        self.refuse(bad, "y", "the label is neither 0, 1 nor NaN", unit="entry")
        return y

    def label(self) -> Any:
        """The label of one graph, or its answers."""
        if self.spec.multilabel:
            return self.answers()
        found = int(self.classes(1)[0])
        if found < 0:
            raise self.wrong("the label is missing", "y", fix="leave the graph out")
        return found

    @property
    def unknown(self) -> Any:
        """What stands for the label of a graph that is to be predicted."""
        labels = len(self.spec.label_columns)
        return np.full(labels, np.nan, np.float32) if self.spec.multilabel else -1

    def masks(self, y: npt.NDArray[np.int64]) -> Masks | None:
        there = [name for name in _ROLES if self.has(name)]
        if not there and self.spec.split != "column":
            return None
        given = []
        for name in _ROLES:
            mask = self.whole(name)
            if mask.shape != y.shape or not np.isin(mask, (0, 1)).all():
                raise self.wrong("this is not one truth value a node", name)
            self.refuse((mask == 1) & (y < 0), name, "a record without a label has a role")
            given.append(mask == 1)
        self.refuse(np.sum(given, axis=0) > 1, _ROLES[0], "the node has two roles")
        return Masks(*given)


def _one(saved: _Saved, tally: Tally, labelled: bool) -> Found:
    x, spec = saved.features(), saved.spec
    y = saved.classes(x.shape[0]) if labelled else np.full(x.shape[0], -1, dtype=np.int64)
    edges = saved.edges(x.shape[0], tally)
    whole = Graph(spec.name, edges, x, y, len(spec.labels), spec.synthetic)
    return Found(whole, saved.masks(y) if labelled else None, saved.path)


def _many(path: Path, loaded: list[Any], spec: OwnSpec, tally: Tally, labelled: bool) -> Found:
    if labelled and spec.split == "column":
        what = "saved graphs have no column that says their roles"
        raise OwnDataError(path, what, fix="give shares in spec.yaml: split: [0.6, 0.2, 0.2]")
    if not spec.feature_columns:
        what = "spec.yaml gives no features, and saved graphs have no others"
        raise OwnDataError(path, what, fix="say in spec.yaml how many columns x has")
    graphs, labels = [], list[Any]()
    for number, content in enumerate(loaded):
        saved = _Saved(path, content, spec, at=f"graph {number}")
        x = saved.features()
        if sp.issparse(x):
            raise saved.wrong("features of a graph must be a dense tensor", "x")
        graphs.append((saved.edges(x.shape[0], tally), x))
        labels.append(saved.label() if labelled else saved.unknown)
    y = np.stack(labels) if spec.multilabel else np.array(labels, dtype=np.int64)
    return Found(graph_set(graphs, y, spec), None, path)
