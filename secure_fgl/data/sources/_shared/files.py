"""Finding and reading files of published sets, and saying what is wrong with one.

Errors name the path, why, and what to do; never a value of the data.
"""

from __future__ import annotations

import struct
import tokenize
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import scipy.sparse as sp

__all__ = [
    "BROKEN",
    "Arrays",
    "RawRefused",
    "another_file",
    "dense_features",
    "integers",
    "locate",
    "read",
    "sparse_features",
]

Arrays = Mapping[str, npt.NDArray[Any]]
"""The arrays of one file, by name."""

_Read = TypeVar("_Read")

BROKEN = (
    BadZipFile,
    EOFError,
    KeyError,
    MemoryError,  # a damaged header asks for any amount
    OSError,  # a damaged directory of the archive points before its start
    OverflowError,
    RuntimeError,  # a damaged flag says encrypted, or packed in an unknown way
    SyntaxError,
    TypeError,
    ValueError,
    struct.error,
    tokenize.TokenError,
    zlib.error,
)
"""What numpy, scipy and the zip reader raise on a file that is damaged or laid out otherwise."""


class RawRefused(ValueError):
    """A file of a data set is not opened, or not further.

    Args:
        path: which; None where only a library knows.
        what: what is wrong with it.
    """

    def __init__(self, path: Path | None, what: str) -> None:
        super().__init__(
            f"{path or 'a file of the data set'} is refused: {what}; most likely somebody changed "
            "or planted it, it was cut short, or the options state other sizes: delete the set's "
            "folder and let it be fetched again, or correct the options"
        )


def locate(name: str, root: Path | None, file: str) -> Path:
    """Path of a set's file, `root`/`file`.

    Raises:
        FileNotFoundError: no folder was named, or the file is not in it.
    """
    path, told = (root / file if root else None), f"the data set {name!r} needs a data folder"
    if path is not None and path.is_file():
        return path
    if path is not None:
        missing = (
            "no such file is there" if root and root.is_dir() else "that folder does not exist"
        )
        told = f"looked for {path}: {missing}"
    error = FileNotFoundError(told)
    error.add_note(
        "What to do: set data.root, or the environment variable SECURE_FGL_DATA, to the folder "
        f"that holds {file}"
    )
    raise error


def read(path: Path, kind: str, reader: Callable[[Arrays], _Read]) -> _Read:
    """What `reader` makes of the arrays of the file.

    Raises:
        OSError: the file cannot be opened.
        ValueError: it is damaged, or `reader` did not find what it needs.
    """
    with path.open("rb") as file:  # outside the try: a missing permission is no damage
        try:
            with np.load(file, allow_pickle=False) as arrays:
                return reader(arrays)
        except BROKEN as broken:
            raise ValueError(
                f"{path} cannot be read as a {kind} set; most likely it is damaged or "
                "was written in another layout: fetch or convert it again"
            ) from broken


def another_file(path: Path, expected: str) -> ValueError:
    """The error for a file that can be read and is not the set that its name says."""
    return ValueError(
        f"{path} is not the published set: expected {expected}; check the file's origin and its "
        "SHA-256"
    )


def integers(arrays: Arrays, name: str) -> npt.NDArray[np.int64]:
    """An array of whole numbers as int64.

    Raises:
        KeyError: there is none of that name.
        TypeError: it holds something else; rounding would hide a wrong file.
    """
    found = arrays[name]
    if found.dtype.kind not in "iu":
        raise TypeError(f"{name} does not hold whole numbers")
    return found.astype(np.int64)


def dense_features(arrays: Arrays, name: str) -> npt.NDArray[np.float32]:
    """An array of features (N, F), float32, row-major.

    Raises:
        KeyError: there is none of that name.
        ValueError: it has another number of dimensions, or an entry is not finite.
    """
    x = np.ascontiguousarray(arrays[name], dtype=np.float32)
    if x.ndim != 2 or not np.isfinite(x).all():
        raise ValueError(f"{name} is not a table of finite numbers")
    return x


def sparse_features(arrays: Arrays, prefix: str = "") -> sp.csr_array:
    """CSR features from `x_indptr`, `x_indices`, `x_data`, `x_shape`; never made dense.

    Raises:
        KeyError: one of the four is missing.
        ValueError: they do not fit together, or an entry is not finite.
    """
    import scipy.sparse as sp

    rows, columns = integers(arrays, f"{prefix}x_shape").tolist()
    data = arrays[f"{prefix}x_data"].astype(np.float32)
    indices, indptr = arrays[f"{prefix}x_indices"], arrays[f"{prefix}x_indptr"]
    x = sp.csr_array((data, indices, indptr), shape=(rows, columns))
    x.check_format(full_check=True)
    if not np.isfinite(x.data).all():
        raise ValueError("features hold NaN or infinity")
    return x
