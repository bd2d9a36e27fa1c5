"""PyG's classes with our readers in place of whatever unpickles.

Three things of PyG run what a file says: `process` of Planetoid and of Twitch; `_process`, for
every class, where `pre_transform.pt` or `pre_filter.pt` lies beside a processed set; and the
fall-back of `fs.torch_load`, if a processed set holds more than weights. The first two are replaced
here, the third is stopped by `pyg.py` and by the guard.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from secure_fgl.data.sources._shared import files
from secure_fgl.data.sources._shared.planetoid import read_planetoid
from secure_fgl.data.sources._shared.raw import check_raw
from secure_fgl.data.sources._shared.refusing import fetches, nothing_unpickled
from secure_fgl.data.sources._shared.source import Shape

__all__ = ["opened"]

Arrays = dict[str, Any]


def opened(kind: str, folder: Path, settings: dict[str, Any], shape: Shape) -> Any:
    """Return a data set of PyG's class `kind`, fetched into `folder` if it is not there.

    Raises:
        RawRefused: a file of it would run code, or declares sizes that are not its own.
        Exception: whatever else PyG raises.
    """
    from torch_geometric import datasets
    from torch_geometric.data import Data
    from torch_geometric.io import fs

    own = _READERS.get(kind)

    def _process(self: Any) -> None:
        if all(Path(path).exists() for path in self.processed_paths):
            return
        fs.makedirs(self.processed_dir, exist_ok=True)
        self.process()

    def _download(self: Any) -> None:
        if fetches():
            found._download(self)
        elif not all(Path(path).exists() for path in self.raw_paths):
            raise FileNotFoundError("the set is not there, and an audit fetches none")

    def process(self: Any) -> None:
        raw = Path(self.raw_dir)
        check_raw(kind, raw, getattr(self, "name", ""), shape)
        if own is None:
            found.process(self)
            return
        arrays = own(raw, self.name, shape)
        self.save([Data(**_tensors(arrays))], self.processed_paths[0])

    found = getattr(datasets, kind)
    changed = {"_download": _download, "_process": _process, "process": process}
    with nothing_unpickled():
        return type(kind, (found,), changed)(str(folder), **settings)


def _tensors(arrays: Arrays) -> Arrays:
    import torch

    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _twitch(folder: Path, name: str, shape: Shape) -> Arrays:
    """MUSAE's countries (Rozemberczki et al., 2021), as PyG lays them out."""

    def reader(arrays: files.Arrays) -> Arrays:
        edges = files.integers(arrays, "edges")
        return {
            "x": files.dense_features(arrays, "features"),
            "y": files.integers(arrays, "target"),
            "edge_index": edges.T.copy(),
        }

    return files.read(folder / f"{name}.npz", "Twitch", reader)


_READERS: dict[str, Callable[[Path, str, Shape], Arrays]] = {
    "Planetoid": read_planetoid,
    "Twitch": _twitch,
}
