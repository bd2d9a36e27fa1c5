"""What a site's folder holds, before roles are drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fgl.data.own._table import Table
from secure_fgl.data.own.errors import OwnDataError
from secure_fgl.data.own.spec import OwnSpec
from secure_fgl.data.records import Dataset, Masks

__all__ = ["SPLIT", "Found", "find", "labels_of", "optional_split", "stated"]

SPLIT = "split"
"""The column that says every record's role."""

WORDS = ("train", "val", "test", "")
"""What may stand in it; a blank leaves the record out of all three."""


class Found(NamedTuple):
    """A site's records, and the roles that its file states.

    Attributes:
        whole: the records as a data set of their own.
        masks: the stated roles, or None if they are to be drawn.
        path: the file that holds one record a row, for errors.
        ids: columns that say which record is which, pyarrow arrays by name; none for a data.pt.
    """

    whole: Dataset
    masks: Masks | None
    path: Path
    ids: Mapping[str, Any] = {}


def find(folder: Path, stem: str) -> Path | None:
    """The file ``stem.csv`` or ``stem.parquet`` of a folder, or None.

    Raises:
        OwnDataError: both are there.
    """
    there = [path for end in ("csv", "parquet") if (path := folder / f"{stem}.{end}").is_file()]
    if len(there) == 2:
        what = f"{stem}.csv and {stem}.parquet are both there, and only one can be meant"
        raise OwnDataError(folder, what, fix="take one of them away")
    return there[0] if there else None


def optional_split(spec: OwnSpec) -> tuple[str, ...]:
    """The column of roles as an optional one, unless the spec asks for it."""
    return () if spec.split == "column" else (SPLIT,)


def labels_of(table: Table, labels: Sequence[str], *, blank: bool) -> npt.NDArray[np.int64]:
    """Numbers of the labels in the column ``label``, int64 (rows,), -1 where it is not known.

    Raises:
        OwnDataError: a label that is not among `labels`, or a blank one that may not be.
    """
    if "label" not in table:  # records that are to be predicted
        return np.full(table.rows, -1, dtype=np.int64)
    number = _index(table, "label", ("", *labels), blank=blank) - 1
    fix = (
        "write the labels of spec.yaml letter by letter, or numbers from 0 if it gives a number "
        "(1, not 1.0)" + ("; leave it blank where there is none" if blank else "")
    )
    table.refuse(number < -1, "label", "the label is not in spec.yaml", fix=fix)
    return number


def stated(table: Table, labelled: npt.NDArray[np.bool_] | None = None) -> Masks | None:
    """Masks as the column ``split`` says, one entry a row; None without the column.

    Args:
        table: the file.
        labelled: bool (rows,), the records that may have a role; all, if None.

    Raises:
        OwnDataError: another word than train, val and test, or a role for a record without label.
    """
    if SPLIT not in table:
        return None
    role = _index(table, SPLIT, WORDS, blank=True)
    fix = "write train, val or test, or leave it blank"
    table.refuse(role < 0, SPLIT, "the word is not known", fix=fix)
    if labelled is not None:
        what = "a record without a label has a role"
        table.refuse((role < 3) & ~labelled, SPLIT, what, fix="leave its split blank")
    return Masks(role == 0, role == 1, role == 2)


def _index(
    table: Table, column: str, words: Sequence[str], *, blank: bool
) -> npt.NDArray[np.int64]:
    """Each text's place among `words`, -1 for one that is not there."""
    import pyarrow as pa

    return table.places(column, pa.array(words, pa.large_string()), blank=blank)
