"""Columns of one file in plain numpy, each value with its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from secure_fgl.data.own.errors import OwnDataError

__all__ = ["NUMBERS", "Kind", "Table"]

NUMBERS = "write 2.5, not 2,5; code words as numbers, or take the column out of spec.yaml"
_FILL = "fill it in (a mean, a column that says it is unknown) or leave the record out"
_GIVE = "fill it in, or leave the row out"


class Kind(Enum):
    """What a column holds: ids and labels, measurements, or whole numbers."""

    TEXT = "text"
    REAL = "numbers"
    WHOLE = "whole numbers"


@dataclass(frozen=True, repr=False, eq=False)
class Table:
    """Columns of one file.

    Attributes:
        path: the file.
        rows: number of records.
        columns: pyarrow arrays of the columns that were asked for and are there.
        csv: whether places are lines (the header is line 1) or rows from 0.
        others: how many more columns the file has.
    """

    path: Path
    rows: int
    columns: Mapping[str, Any]
    csv: bool
    others: int = 0

    def __contains__(self, column: str) -> bool:
        return column in self.columns

    def place(self, row: int) -> str:
        """Where a record stands: ``line 7``, or ``row 5`` of a Parquet file."""
        return f"line {row + 2}" if self.csv else f"row {row}"

    def wrong(
        self, what: str, *, row: int | None = None, column: str = "", why: str = "", fix: str = ""
    ) -> OwnDataError:
        """The error for a record of this file."""
        place = "" if row is None else self.place(row)
        return OwnDataError(self.path, what, row=place, column=column, why=why, fix=fix)

    def refuse(self, bad: npt.NDArray[np.bool_], column: str, what: str, **more: str) -> None:
        """Raise for the first record that is marked; `bad` is bool (rows,)."""
        if bad.any():
            raise self.wrong(what, row=int(bad.argmax()), column=column, **more)

    def text(self, column: str, *, blank: bool = False) -> Any:
        """A column of texts as a pyarrow string array, without spaces around; whole numbers too.

        Args:
            column: its name.
            blank: whether a value may be missing; it is then the empty text.

        Raises:
            OwnDataError: a value is missing, or the column holds neither texts nor whole numbers.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        given = self.columns[column]
        if pa.types.is_dictionary(given.type):
            given = given.cast(given.type.value_type)
        if pa.types.is_boolean(given.type):
            given = given.cast(pa.int8())
        if pa.types.is_null(given.type) or pa.types.is_integer(given.type):
            given = given.cast(pa.string())
        if not (pa.types.is_string(given.type) or pa.types.is_large_string(given.type)):
            fix = "write it as text or as whole numbers: 7, not 7.0"
            raise self.wrong("the column is neither text nor whole", column=column, fix=fix)
        texts = pc.utf8_trim_whitespace(pc.fill_null(given, "").cast(pa.large_string()))
        texts = pc.utf8_normalize(texts, "NFC")  # an umlaut may be written as one sign or as two
        if not blank:
            missing = _numpy(pc.equal(texts, ""))
            self.refuse(missing, column, "the value is missing", fix=_GIVE)
        return texts

    def places(self, column: str, words: Any, *, blank: bool = False) -> npt.NDArray[np.int64]:
        """Each text's place in a pyarrow array of large strings, int64 (rows,), -1 for none.

        Raises:
            OwnDataError: as `text`.
        """
        import pyarrow.compute as pc

        found = pc.index_in(self.text(column, blank=blank), value_set=words)
        return _numpy(pc.fill_null(found, -1)).astype(np.int64)

    def real(self, column: str, *, blank: bool = False) -> npt.NDArray[np.float64]:
        """A column of finite numbers, float64 (rows,).

        Args:
            column: its name.
            blank: whether a value may be missing; it is then NaN.

        Raises:
            OwnDataError: a value is missing, NaN or infinite, or the column is not numeric.
        """
        import pyarrow as pa

        given = self.columns[column]
        kind = given.type
        if pa.types.is_boolean(kind):
            given = given.cast(pa.int8())
        elif not (
            pa.types.is_integer(kind)
            or pa.types.is_floating(kind)
            or pa.types.is_decimal(kind)
            or pa.types.is_null(kind)
        ):
            raise self.wrong("the column does not hold numbers", column=column, fix=NUMBERS)
        missing = _numpy(given.is_null())
        # safe=False: a whole number beyond 2**53 is rounded, as it is in CSV.
        numbers = _numpy(given.cast(pa.float64(), safe=False)).astype(np.float64)
        if blank:
            missing |= np.isnan(numbers)
            numbers[missing] = np.nan
        else:
            self.refuse(missing, column, "the value is missing", fix=_FILL)
        bad = ~np.isfinite(numbers) & ~missing
        self.refuse(bad, column, "the value is not a finite number", fix=_FILL)
        return numbers

    def matrix(self, columns: Sequence[str], *, blank: bool = False) -> npt.NDArray[np.float32]:
        """Columns of numbers side by side, float32 (rows, len(columns)).

        Raises:
            OwnDataError: as `real`, or a number that float32 cannot hold.
        """
        found = np.empty((self.rows, len(columns)), dtype=np.float32)
        for place, column in enumerate(columns):
            numbers = self.real(column, blank=blank)
            with np.errstate(over="ignore"):  # told of below, with its place
                found[:, place] = numbers
            bad = np.isinf(found[:, place])
            self.refuse(bad, column, "the number is too large", fix="rescale the column")
        return found

    def whole(self, column: str) -> npt.NDArray[np.int64]:
        """A column of whole numbers, int64 (rows,).

        Raises:
            OwnDataError: a value is missing, or the column does not hold whole numbers.
        """
        import pyarrow as pa

        given = self.columns[column]
        if not (pa.types.is_integer(given.type) or pa.types.is_null(given.type)):
            raise self.wrong("the column does not hold whole numbers", column=column)
        self.refuse(_numpy(given.is_null()), column, "the value is missing", fix=_GIVE)
        if given.type == pa.uint64():  # beyond int64 it would wrap
            self.refuse(_numpy(given) > np.uint64(2**63 - 1), column, "the number is too large")
        return _numpy(given).astype(np.int64)


def _numpy(array: Any) -> npt.NDArray[Any]:
    if hasattr(array, "combine_chunks"):
        array = array.combine_chunks()
    found: npt.NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return found
