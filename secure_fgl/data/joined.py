"""PyG objects, one or several a client, as one data set whose owners the clients are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fgl.data.records import Graph, GraphSet, Masks
from secure_fgl.data.sources._shared.graphs import proper_masks, undirected
from secure_fgl.errors import UsageError

__all__ = ["joined"]

_WANTED = "a torch_geometric.data.Data with x (N, F), y (N,) and edge_index (2, E)"
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
    if not sites:
        raise UsageError("from_pyg was given no client.", fix=_FIX)
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
        x: float32 (N, F).
        y: int64, as it stands.
        arcs: int64 (2, E).
        data: the object.
    """

    def __init__(self, site: str, data: Any) -> None:
        self.site, self.data = site, data
        self.x = self._array("x", "fiu").astype(np.float32)
        self.y = self._array("y", "iu").astype(np.int64).reshape(-1)
        self.arcs = self._array("edge_index", "iu").astype(np.int64)
        if self.x.ndim != 2 or not len(self.x) or not np.isfinite(self.x).all():
            raise self.wrong("x", "is no table of finite numbers (N, F)")
        if self.arcs.ndim != 2 or self.arcs.shape[0] != 2:
            raise self.wrong("edge_index", "is not of the shape (2, E)")
        if self.arcs.size and not 0 <= self.arcs.min() <= self.arcs.max() < len(self.x):
            raise self.wrong("edge_index", "names a node that is not there")
        if self.y.size and self.y.min() < -1:
            raise self.wrong("y", "holds a label below -1 (-1: no label)")

    def _array(self, what: str, kinds: str) -> npt.NDArray[Any]:
        tensor = getattr(self.data, what, None)
        if tensor is None:
            raise self.wrong(what, "is missing")
        array: npt.NDArray[Any] = np.asarray(tensor.detach().cpu().numpy())
        if array.dtype.kind not in kinds:
            raise self.wrong(what, "holds numbers of another kind")
        return array

    def mask(self, role: str) -> npt.NDArray[np.bool_] | None:
        """Return one of its masks, bool (N,); None without."""
        if getattr(self.data, f"{role}_mask", None) is None:
            return None
        found = self._array(f"{role}_mask", "b")
        if found.shape != self.y.shape:
            raise self.wrong(f"{role}_mask", "has not one entry a node")
        return found

    def wrong(self, what: str, why: str) -> UsageError:
        """Return the error about one attribute."""
        return UsageError(f"The data of {self.site} cannot be used: {what} {why}.", fix=_FIX)


def _together(found: Sequence[_Part]) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    """Return features (N, F) and pairs (2, M) of all parts, nodes numbered one after the other."""
    for part in found:
        if part.x.shape[1] != found[0].x.shape[1]:
            raise part.wrong("x", f"has not as many columns as that of {found[0].site}")
    starts = np.cumsum([0, *(len(part.x) for part in found)])
    arcs = np.concatenate(
        [part.arcs + start for part, start in zip(found, starts[:-1], strict=True)], axis=1
    )
    return np.concatenate([part.x for part in found]), undirected(arcs, int(starts[-1]))


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
        if len(part.y) != len(part.x):
            raise part.wrong("y", "has not one label a node")
    x, edges = _together(found)
    y = np.concatenate([part.y for part in found])
    owner = np.repeat(np.arange(len(found)), [len(part.x) for part in found])
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
        np.array([len(part.x) for part in found], np.int64),
        edges,
        x,
        np.concatenate([part.y for part in found]),
        _classes(found, classes),
        multilabel=False,
        synthetic=False,
        owner=owner,
    )
