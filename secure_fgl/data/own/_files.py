"""One reader for CSV and Parquet, by pyarrow.

Only the named columns are parsed, so what a file holds besides stays on the disk. Everything that
cannot be read is an `OwnDataError` with file, row and column; the reader's own messages quote
values and are therefore never passed on.
"""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from secure_fgl.data.own._table import NUMBERS, Kind, Table
from secure_fgl.data.own.errors import OwnDataError

__all__ = ["read_bytes", "read_table"]

BLOCK = 1 << 24  # bytes; a line must fit in one, and pyarrow's 1 MB is 100,000 columns of numbers
_BREAK = re.compile(rb"\r\n|\r|\n")
_PLACE = re.compile(r"CSV column #(\d+): Row #(\d+)")


def read_table(path: Path, wanted: Mapping[str, Kind], optional: Collection[str] = ()) -> Table:
    """Read the wanted columns of a CSV (UTF-8, commas, a header) or Parquet file.

    Args:
        path: ends in ``.csv`` or ``.parquet``.
        wanted: columns and what they hold.
        optional: those of them that may be absent.

    Raises:
        OwnDataError: the file cannot be read, is empty, is in another encoding, or lacks a column;
            or pyarrow is not installed.
    """
    _need_pyarrow(path)
    return (_read_csv if path.suffix == ".csv" else _read_parquet)(path, wanted, optional)


def _need_pyarrow(path: Path) -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError as missing:
        raise OwnDataError(
            path,
            "CSV and Parquet are read by pyarrow, which is not installed",
            why="Secure-FGL was installed without its extra 'data'",
            fix="pip install 'secure-fgl[data]'",
        ) from missing


_FEATURES = "; features are named in spec.yaml"
_OTHERWISE = {
    **dict.fromkeys(("id", "label", "smiles", "source", "target", "user", "item", "rating"), ""),
    "split": "; or have roles drawn by shares, in spec.yaml: split: [0.6, 0.2, 0.2]",
}
"""What else helps where a column of the layout is missing; any other column is a feature."""


def _choose(
    path: Path, there: Sequence[str], wanted: Mapping[str, Kind], optional: Collection[str]
) -> list[str]:
    """The wanted columns that are there; raises for one that is missing or there twice."""
    for name in wanted:
        if there.count(name) > 1:
            raise OwnDataError(path, "two columns have this name", column=name)
        if name not in there and name not in optional:
            why = "the file's first line spells it otherwise, or lacks it"
            fix = "name it there as here, letter by letter" + _OTHERWISE.get(name, _FEATURES)
            if path.suffix != ".csv":
                why = "the file names it otherwise, or lacks it"
            elif len(there) == 1 and any(mark in there[0] for mark in ";\t"):
                why = "its columns are parted by semicolons or tabs, not by commas"
                fix = "save it with commas between values and points in numbers"
            raise OwnDataError(path, "the column is missing", column=name, why=why, fix=fix)
    return [name for name in wanted if name in there]


def read_bytes(path: Path) -> bytes:
    """The bytes of a UTF-8 text without its byte-order mark and its last line ends.

    Raises:
        OwnDataError: the file cannot be read or is in another encoding; names the line.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise OwnDataError(path, f"the file cannot be read ({error.strerror})") from error
    try:
        if not data.isascii():  # decoding takes up to four times the file's memory
            data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        why = "a spreadsheet saved it in another encoding, or it is no CSV file"
        fix = "save it again as CSV UTF-8"
        # From nothing: the decoder's error carries the bytes.
        raise OwnDataError(
            path, "the text is not UTF-8", row=f"line {line}", why=why, fix=fix
        ) from None
    if not data.isascii():  # names of columns are compared sign by sign, as all texts are
        data = unicodedata.normalize("NFC", data.decode("utf-8")).encode()
    return data.removeprefix(b"\xef\xbb\xbf").rstrip(b"\r\n")


def _header(path: Path, data: bytes) -> list[str]:
    if not data.strip():
        raise OwnDataError(path, "the file is empty", fix="its first line names the columns")
    first = _BREAK.split(data, maxsplit=1)[0]
    return [name.strip() for name in next(csv.reader([first.decode("utf-8")]))]


def _check_quotes(path: Path, data: bytes) -> None:
    """Refuse a quoted value that holds a line break: lines would no longer be records."""
    if b'"' not in data:
        return
    for number, line in enumerate(_BREAK.split(data), start=1):
        if line.count(b'"') % 2:
            what = "a quotation mark is not closed on its line"
            fix = "take line breaks out of the values"
            raise OwnDataError(path, what, row=f"line {number}", fix=fix)


def _read_csv(path: Path, wanted: Mapping[str, Kind], optional: Collection[str]) -> Table:
    import pyarrow as pa
    from pyarrow import csv as arrow

    data = read_bytes(path)
    names = _header(path, data)
    _check_quotes(path, data)
    chosen = _choose(path, names, wanted, optional)
    types = {Kind.TEXT: pa.string(), Kind.REAL: pa.float64(), Kind.WHOLE: pa.int64()}
    ragged: list[Any] = []

    def skip(row: Any) -> str:
        ragged.append(row)
        return "skip"

    # Distinct names for pyarrow; columns that are not wanted may well be there twice.
    own = [name if name in chosen else f"\x00{place}" for place, name in enumerate(names)]
    try:
        read = arrow.read_csv(
            pa.BufferReader(data + b"\n"),
            arrow.ReadOptions(use_threads=False, block_size=BLOCK, column_names=own, skip_rows=1),
            # Empty lines count, so that places are lines; one line is one record.
            arrow.ParseOptions(ignore_empty_lines=False, invalid_row_handler=skip),
            arrow.ConvertOptions(
                column_types={name: types[wanted[name]] for name in chosen},
                include_columns=chosen,
                null_values=[""],
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid as error:
        raise _unreadable(path, names, wanted, str(error)) from None  # its text holds the value
    if ragged:
        what = f"the line has {ragged[0].actual_columns} values, the header has {len(names)}"
        fix = "put quotation marks around texts with a comma; write 2.5, not 2,5"
        raise OwnDataError(path, what, row=f"line {ragged[0].number}", fix=fix)
    return Table(path, read.num_rows, _columns(read), csv=True, others=len(names) - len(chosen))


def _unreadable(
    path: Path, names: Sequence[str], wanted: Mapping[str, Kind], told: str
) -> OwnDataError:
    found = _PLACE.search(told)
    if found is None:
        return OwnDataError(path, "the file is not a table of commas and lines")
    column = names[int(found[1])]
    kind = wanted[column].value
    real = kind == Kind.REAL.value
    fix = NUMBERS if real else "write digits alone, without a point or letters: 1, not 1.0"
    what = f"the value is not {'a number' if real else 'a whole number'}"
    return OwnDataError(path, what, row=f"line {found[2]}", column=column, fix=fix)


def _read_parquet(path: Path, wanted: Mapping[str, Kind], optional: Collection[str]) -> Table:
    import pyarrow as pa
    from pyarrow import parquet

    try:
        # ParquetFile, not read_table: the latter makes columns of folder names like "site=a".
        with parquet.ParquetFile(path) as file:
            names = file.schema_arrow.names
            chosen = _choose(path, names, wanted, optional)
            read = file.read(columns=chosen, use_threads=False).select(chosen)
    except OSError as error:
        raise OwnDataError(path, "the file cannot be read", why=error.strerror or "") from None
    except pa.ArrowException:
        fix = "write it again, or copy it again"
        raise OwnDataError(path, "the file is not Parquet, or damaged", fix=fix) from None
    return Table(path, read.num_rows, _columns(read), csv=False, others=len(names) - len(chosen))


def _columns(read: Any) -> dict[str, Any]:
    return dict(zip(read.column_names, read.columns, strict=True))
