"""Tables of the user's own: CSV and Parquet as columns, and what is wrong in them."""

from __future__ import annotations

import csv
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fgl.data.own.spec import OwnSpec
from secure_fgl.data.records import Dataset, Masks
from secure_fgl.errors import UsageError

# --- What is wrong with a file of the user's own: where, never what stands there ---


class OwnDataError(UsageError):
    """A file or folder of the user's own data that cannot be used.

    The text names file, row and column. It holds no value, id or label: it may end up in a log that
    others read. Column names are those of `spec.yaml` and of the layout, which all sites know.

    Args:
        path: the file or folder.
        what: what is wrong there, a sentence without its full stop.
        row: for example ``line 7`` (CSV, as a text editor counts) or ``row 5`` (from 0).
        column: the column's name, or the tensor's.
        why: the likely cause.
        fix: what to do.
    """

    def __init__(
        self,
        path: Path,
        what: str,
        *,
        row: str = "",
        column: str = "",
        why: str = "",
        fix: str = "",
    ) -> None:
        self.path, self.row, self.column = path, row, column
        place = [str(path), row, f"column {column!r}" if column else ""]
        super().__init__(f"{', '.join(part for part in place if part)}: {what}.", why=why, fix=fix)


def no_tables(folder: Path, what: str) -> OwnDataError:
    """The error for a folder beside ``spec.yaml`` that is no site's, or not yet."""
    why = "every folder beside spec.yaml counts as a site's"
    fix = "put the site's tables there (docs/own-data.md), or take the folder away"
    return OwnDataError(folder, what, why=why, fix=fix)


# --- What was put right on the way in ---

_WORDS = {
    "self_loops": "edges from a node to itself, dropped",
    "repeated_edges": "exact repeats of an edge, merged",
    "both_directions": "pairs given in both directions, one edge each",
    "edge_data": "columns or tensors of edges (weights, types, times), not read",
}


@dataclass(repr=False)
class Tally:
    """Counts of what one site's files held that is no error and yet is not kept as it stood.

    The counts are private, like the data: they are for the site's own eyes. The representation is
    mute.

    Attributes:
        self_loops: edges from a node to itself; dropped.
        repeated_edges: exact repeats of an edge; merged.
        both_directions: pairs of nodes given as (u, v) and as (v, u); one edge each.
        edge_data: what the files hold of edges besides their ends; nothing here learns from it.
    """

    self_loops: int = 0
    repeated_edges: int = 0
    both_directions: int = 0
    edge_data: int = 0

    def __repr__(self) -> str:
        return "<Tally>"

    def sentences(self) -> list[str]:
        """What to tell the site's owner, one line for each count above 0."""
        counts = ((field.name, getattr(self, field.name)) for field in fields(self))
        return [f"{_WORDS[name]}: {count}" for name, count in counts if count]


# --- Columns of one file in plain numpy, each value with its place ---

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


# --- One reader for CSV and Parquet, by pyarrow ---
#
# Only the named columns are parsed, so what a file holds besides stays on the disk. Everything that
# cannot be read is an `OwnDataError` with file, row and column; the reader's own messages quote
# values and are therefore never passed on.

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


# --- What a site's folder holds, before roles are drawn ---

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


# --- Edges as sites write them made edges as records hold them: each pair once, no self-loops ---


def undirected(
    ends: npt.NDArray[np.int64], nodes: int, tally: Tally | None = None
) -> npt.NDArray[np.int64]:
    """Each undirected pair once with u < v, in ascending order, int64 (2, m).

    Args:
        ends: int64 (2, M), node numbers below `nodes`, in any direction, repeated or not.
        nodes: number of nodes.
        tally: counts self-loops, repeats and pairs given in both directions, if it is wanted.
    """
    loops = ends[0] == ends[1]
    kept = ends[:, ~loops]
    both = np.unique(np.sort(kept, axis=0).T @ np.array([max(nodes, 1), 1]))
    if tally is not None:
        directed = len(np.unique(kept[0] * max(nodes, 1) + kept[1]))
        tally.self_loops += int(loops.sum())
        tally.repeated_edges += kept.shape[1] - directed
        tally.both_directions += directed - len(both)
    return np.stack(np.divmod(both, max(nodes, 1))).astype(np.int64)
