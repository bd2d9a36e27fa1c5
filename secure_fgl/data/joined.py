"""PyG objects, one or several a client, as one data set whose owners the clients are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fgl.data.records import Features, Graph, GraphSet, Masks
from secure_fgl.data.sources._shared.files import proper_masks, undirected
from secure_fgl.errors import UsageError

__all__ = ["ignored_edge_data", "joined"]

_WANTED = "a torch_geometric.data.Data with x (N, F), y (N,) and edge_index (2, E)"
_NAMED = "name each client: {'north': data, 'south': other, ...}"
_FIX = f"give each client {_WANTED}, or a list of graphs with y (1,), all of one width"


def joined(sites: Mapping[str, Any], *, name: str, classes: int | None) -> Graph | GraphSet:
    """Return one data set of all sites' objects; in the order of the sites' names each is an owner.

    Arcs become undirected pairs, self-loops are dropped. Where all objects of node tasks have
    ``train_mask``, ``val_mask`` and ``test_mask``, these are the split.

    Args:
        sites: by client name a ``Data`` (nodes are classified), or a list of them (graphs are).
        name: of the data set, as plan and report print it.
        classes: how many there are; by default one more than the largest label.

    Raises:
        UsageError: an object is none of these, or the sites' objects do not fit together. It names
            the site and the attribute, never a value.
    """
    if not isinstance(sites, Mapping) or hasattr(sites, "edge_index"):
        kind = type(sites).__name__
        raise UsageError(f"A {kind} does not say who holds what.", fix=f"{_NAMED}; {_FIX}")
    if not sites:
        raise UsageError("from_pyg was given no client.", fix=_FIX)
    if not all(isinstance(site, str) for site in sites):
        raise UsageError("A client's name is no text.", fix=_NAMED)
    parts = [sites[site] for site in sorted(sites)]
    many = [isinstance(part, Sequence) for part in parts]
    if any(many) != all(many):
        raise UsageError("Some clients hold one graph, others a list of graphs.", fix=_FIX)
    if not all(many):
        found = [_Part(site, sites[site]) for site in sorted(sites)]
        return _graph(found, name, classes)
    if empty := [site for site in sorted(sites) if not sites[site]]:
        raise UsageError(f"The list of {empty[0]} holds no graph.", fix=_FIX)
    found = [_Part(site, item) for site in sorted(sites) for item in sites[site]]
    owner = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    return _graph_set(found, owner, name, classes)


class _Part:
    """One object's arrays, after checking that they agree.

    Attributes:
        site: whose it is.
        x: float32 (N, F), dense or CSR.
        y: int64, as it stands.
        arcs: int64 (2, E).
        data: the object.
    """

    def __init__(self, site: str, data: Any) -> None:
        self.site, self.data = site, data
        if not callable(getattr(data, "to_dict", None)) or not hasattr(data, "edge_index"):
            raise _no_data(site, data)
        self.x = self._features()
        self.y = self._labels()
        self.arcs = self._arcs()

    def _features(self) -> Features:
        import scipy.sparse as sp

        x = self._array("x", "fiub")
        if x.ndim != 2 or not x.shape[0]:
            raise self.wrong("x", "is no table (N, F) with a row", "one row a node: x[:, None]")
        with np.errstate(over="ignore"):  # what float32 cannot hold is not finite
            found: Features = x.astype(np.float32)
        if not np.isfinite(found.data if sp.issparse(found) else found).all():
            why = "holds NaN, infinity, or a number that float32 cannot hold"
            raise self.wrong("x", why, "fill in what is missing, and rescale the columns")
        return found

    def _labels(self) -> npt.NDArray[np.int64]:
        y = self._array("y", "iubf")
        if y.ndim > 1 and y.shape[-1] > 1:
            why = "has several columns, and one class a record is learnt"
            raise self.wrong("y", why, "of one-hot rows take y.argmax(dim=1)")
        found = y.reshape(-1)
        if found.dtype.kind == "f" and not np.array_equal(found, np.floor(found)):
            why = "holds numbers that are no whole ones, and classes are learnt, not amounts"
            raise self.wrong("y", why, "number the classes: 0, 1, 2, ...")
        if found.size and found.dtype.kind != "b" and found.min() < -1:
            raise self.wrong("y", "holds a label below -1", "-1 says that there is no label")
        labels: npt.NDArray[np.int64] = found.astype(np.int64)
        return labels

    def _arcs(self) -> npt.NDArray[np.int64]:
        if getattr(self.data, "edge_index", None) is None and hasattr(self.data, "adj_t"):
            raise self.wrong("edge_index", "is missing, and adj_t is not read", _OF_ADJ)
        arcs = self._array("edge_index", "iuf")
        if not arcs.size:
            return np.empty((2, 0), np.int64)
        if arcs.dtype.kind == "f":
            raise self.wrong("edge_index", "holds fractions", "whole numbers: edge_index.long()")
        if arcs.ndim != 2 or arcs.shape[0] != 2:
            raise self.wrong("edge_index", "is not of the shape (2, E)", "turn it: edge_index.t()")
        if not 0 <= arcs.min() <= arcs.max() < self.x.shape[0]:
            fix = "nodes are rows of x, numbered from 0; of numbers from 1 take edge_index - 1"
            raise self.wrong("edge_index", "names a node that is not there", fix)
        ends: npt.NDArray[np.int64] = arcs.astype(np.int64)
        return ends

    def _array(self, what: str, kinds: str) -> Any:
        """Return a tensor or array as numpy, of one of these kinds; a sparse one as CSR."""
        import scipy.sparse as sp
        import torch

        given = getattr(self.data, what, None)
        if given is None:
            raise self.wrong(what, "is missing")
        if isinstance(given, torch.Tensor):
            given = given.detach().cpu()
            if given.dtype is torch.bfloat16:
                given = given.float()
            if str(given.layout) != "torch.strided":
                coo = given.to_sparse_coo().coalesce()  # type: ignore[no-untyped-call]
                ends, size = coo.indices().numpy(), tuple(coo.shape)
                given = sp.coo_array((coo.values().numpy(), (ends[0], ends[1])), shape=size)
        to_rows: Any = sp.csr_array  # of scipy's own sparse formats, too
        array = to_rows(given) if sp.issparse(given) else np.asarray(given)
        if array.dtype.kind not in kinds:
            wanted = ", ".join(_KINDS[kind] for kind in kinds if kind in _KINDS)
            raise self.wrong(what, f"is of the type {array.dtype}", f"wanted are {wanted}")
        return array

    def mask(self, role: str) -> npt.NDArray[np.bool_] | None:
        """Return one of its masks, bool (N,); None without."""
        name = f"{role}_mask"
        if getattr(self.data, name, None) is None:
            return None
        found = self._array(name, "biu")
        if found.ndim == 2 and found.shape[0] == len(self.y):
            why = f"holds {found.shape[1]} splits, and one is wanted"
            raise self.wrong(name, why, f"choose one: data.{name}[:, 0]")
        if found.shape != self.y.shape or not np.isin(found, (0, 1)).all():
            raise self.wrong(name, "is not one truth value a node")
        kept: npt.NDArray[np.bool_] = found.astype(np.bool_)
        return kept

    def wrong(self, what: str, why: str, fix: str = "") -> UsageError:
        """Return the error about one attribute."""
        return UsageError(f"The data of {self.site} cannot be used: {what} {why}.", fix=fix or _FIX)


_KINDS = {"f": "real numbers", "i": "whole numbers", "b": "truth values"}
_OF_ADJ = "edge_index = torch.stack(data.adj_t.coo()[:2]), or load without ToSparseTensor"


def _no_data(site: object, given: object) -> UsageError:
    kind = type(given).__name__
    fix = _FIX
    if kind == "HeteroData":
        fix = "edges of one kind between nodes of one kind are learnt: data.to_homogeneous()"
    elif isinstance(given, Mapping):
        fix = "torch_geometric.data.Data.from_dict(...) makes one of a dict"
    return UsageError(f"What {site} holds is a {kind}, and no graph of one kind of nodes.", fix=fix)


_IGNORED = ("edge_weight", "edge_attr", "edge_type")


def ignored_edge_data(sites: Mapping[str, Any]) -> list[str]:
    """Return the attributes of edges that some object has and no model here reads."""
    objects = [o for s in sites.values() for o in (s if isinstance(s, list | tuple) else [s])]
    return [name for name in _IGNORED if any(getattr(o, name, None) is not None for o in objects)]


def _together(found: Sequence[_Part]) -> tuple[Features, npt.NDArray[np.int64]]:
    """Return features (N, F) and pairs (2, M) of all parts, nodes numbered one after the other."""
    import scipy.sparse as sp

    for part in found:
        if part.x.shape[1] != found[0].x.shape[1]:
            raise part.wrong("x", f"has not as many columns as that of {found[0].site}")
    starts = np.cumsum([0, *(part.x.shape[0] for part in found)])
    arcs = np.concatenate(
        [part.arcs + start for part, start in zip(found, starts[:-1], strict=True)], axis=1
    )
    rows: list[Any] = [part.x for part in found]
    if any(map(sp.issparse, rows)):
        x: Features = sp.csr_array(sp.vstack([sp.csr_array(row) for row in rows], format="csr"))
    else:
        x = np.concatenate(rows)
    return x, undirected(arcs, int(starts[-1]))


def _classes(found: Sequence[_Part], asked: int | None) -> int:
    most = max(int(part.y.max(initial=-1)) for part in found) + 1
    if most < 1 or (asked is not None and asked < most):
        raise UsageError(
            "No client has a label." if most < 1 else f"There are more than {asked} classes.",
            fix="give labels 0, 1, ... in y, and all classes there can be as classes=",
        )
    return asked or most


def _graph(found: Sequence[_Part], name: str, classes: int | None) -> Graph:
    for part in found:
        if len(part.y) != part.x.shape[0]:
            raise part.wrong("y", "has not one label a node")
    x, edges = _together(found)
    y = np.concatenate([part.y for part in found])
    owner = np.repeat(np.arange(len(found)), [part.x.shape[0] for part in found])
    masks = _masks(found, y)
    return Graph(
        name, edges, x, y, _classes(found, classes), synthetic=False, owner=owner, public=masks
    )


def _masks(found: Sequence[_Part], y: npt.NDArray[np.int64]) -> Masks | None:
    roles = []
    for role in Masks._fields:
        masks = [part.mask(role) for part in found]
        given = [mask for mask in masks if mask is not None]
        if given and len(given) < len(found):
            bare = next(p for p, mask in zip(found, masks, strict=True) if mask is None)
            raise bare.wrong(f"{role}_mask", "is missing, and other clients have theirs")
        roles += [np.concatenate(given)] if given else []
    if not roles:
        return None
    if len(roles) < len(Masks._fields) or not proper_masks(Masks(*roles), y):
        raise UsageError(
            "The masks of the clients are no split.",
            why="one of train, val and test is missing, two of them overlap, none trains, or an "
            "unlabelled node (-1) is in one",
            fix="correct the masks, or leave all of them out: then data.split draws a split",
        )
    return Masks(*roles)


def _graph_set(
    found: Sequence[_Part], owner: npt.NDArray[np.int64], name: str, classes: int | None
) -> GraphSet:
    for part in found:
        if part.y.shape != (1,) or part.y[0] < 0:
            raise part.wrong("y", "is not one label of its graph")
    x, edges = _together(found)
    return GraphSet(
        name,
        np.array([part.x.shape[0] for part in found], np.int64),
        edges,
        x,
        np.concatenate([part.y for part in found]),
        _classes(found, classes),
        multilabel=False,
        synthetic=False,
        owner=owner,
    )
