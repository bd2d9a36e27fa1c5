"""What a site has that must not be handed on, and files that are looked through for it.

Everything is read for this alone and held as keyed digests (`audits.scanning.sought`). Of a table
every column is read, also those that no spec names: what a log quotes need not be a feature.
"""

from __future__ import annotations

import csv
import io
import json
import math
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from audits.scanning.search import LIMIT, Hit, NotSearched, search
from audits.scanning.sought import Sought
from secure_fgl.errors import SiteData, UsageError
from secure_fgl.store.files import content

__all__ = ["Scanned", "at_hand", "refuse_found", "scan", "seek_party", "seek_tables"]

_NAMING = ("id", "source", "target", "user", "item", "smiles", "name")
_TABLES = (".csv", ".parquet", ".npz", ".npy", ".pt")
_KEYS = ("tags.key",)
_HEX = re.compile(r"[0-9a-f]{32,}")
_SHOWN = 3  # places that a refusal names


class Scanned:
    """What came of a scan.

    Attributes:
        files: how many were looked through.
        hits: what was found.
        left: what was not searched, and why.
    """

    def __init__(self) -> None:
        self.files, self.hits, self.left = 0, list[Hit](), list[str]()

    def look(self, place: str, data: bytes, sought: Sought) -> None:
        """Search one file's content."""
        self.files += 1
        try:
            self.hits.extend(search(place, data, sought))
        except NotSearched as why:
            self.left.append(str(why))


def scan(paths: Iterable[Path], sought: Sought) -> Scanned:
    """Look through files, and all files of folders; names count too.

    What lies in a folder and is no plain file (a link, a pipe) counts as not searched.

    Raises:
        UsageError: one of the paths is not there, or is neither a file nor a folder.
    """
    found = Scanned()
    for path in paths:
        if not path.exists():
            raise UsageError(f"There is no {path}.", fix="check the path")
        if not path.is_file() and not path.is_dir():
            raise UsageError(
                f"{path} is neither a file nor a folder, so it cannot be searched.",
                why="a pipe or a device has no content that could be looked at twice",
                fix="save what it gives as a file, and search that",
            )
        for file in _entries(path):
            place = str(file)
            if not file.is_file() or (file != path and file.is_symlink()):
                found.left.append(f"{place}: it is no plain file")
                continue
            try:
                data = content(file, LIMIT)
            except OSError as error:
                found.left.append(f"{place}: {error.strerror}")
                continue
            if data is None:
                found.left.append(f"{place}: more than {LIMIT} bytes")
                continue
            name = place if file == path else str(file.relative_to(path))
            found.look(place, data, sought)
            found.hits += [Hit(place, 0, hit.kind) for hit in search("", os.fsencode(name), sought)]
    return found


def _files(path: Path) -> Iterator[Path]:
    for file in _entries(path):
        if file.is_file() and (file == path or not file.is_symlink()):
            yield file


def _entries(path: Path) -> Iterator[Path]:
    """Yield a file, or all that lies in a folder and below and is no folder; links are none."""
    if not path.is_dir():
        yield path
        return
    for folder, folders, names in os.walk(path):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        yield from (Path(folder, name) for name in sorted([*names, *links]))


def refuse_found(place: str, data: bytes, sought: Sought | None) -> None:
    """Raise SiteData if what is about to be written holds what is sought; None: nothing is."""
    if sought is None or not len(sought):
        return
    found = Scanned()
    found.look(place, data, sought)
    if not found.hits and not found.left:
        return
    told = [f"{hit.kind} in {hit.place}, line {hit.line}" for hit in found.hits[:_SHOWN]]
    told += found.left[:1]
    rest = len(found.hits) - _SHOWN
    raise SiteData(
        f"{place} was not written: it holds what is the site's own, or cannot be searched for it.",
        why="; ".join(told) + (f"; and {rest} more" if rest > 0 else ""),
        fix="find out how it came there; a value that is no secret may be taken out of the tables "
        "that --data names",
    )


def at_hand(data: Path | None, party: Path | None = None) -> Sought | None:
    """Return what is sought before something is written: a site's tables, a party's keys.

    Args:
        data: the folder with the site's tables, if it is given.
        party: the party's folder, if it is one party's side.
    """
    if data is None and party is None:
        return None
    sought = Sought()
    if data is not None:
        seek_tables(sought, data)
    if party is not None:
        seek_party(sought, party)
    return sought


def seek_party(sought: Sought, party: Path) -> None:
    """Seek a party's secret keys and its folder's path.

    An identity under a passphrase is not opened: its seed is in no memory that could have been
    written anywhere.
    """
    sought.path(str(party.resolve()))
    for file in (party / "identity.json", *(party / name for name in _KEYS)):
        if file.is_file() and not file.is_symlink():
            _keys(sought, file.read_bytes())
    for file in _files(party / "keys"):
        sought.secret(file.read_bytes()[:4096])


def _keys(sought: Sought, data: bytes) -> None:
    try:
        document = json.loads(data)
        text = str(document.get("seed", "")) if isinstance(document, dict) else ""
    except ValueError:
        text = data.decode("utf-8", "replace")
    for digits in _HEX.findall(text):
        sought.secret(bytes.fromhex(digits[: len(digits) // 2 * 2]))


def seek_tables(sought: Sought, folder: Path) -> None:
    """Seek what the tables of a folder, and of the folders in it, hold, and the folder's path.

    Raises:
        UsageError: there is no table, or one cannot be read.
    """
    sought.path(str(folder.resolve()))
    files = [file for file in _files(folder) if file.suffix.lower() in _TABLES]
    if not files:
        raise UsageError(
            f"There is no table in {folder}.",
            why=f"tables end in {', '.join(_TABLES)}",
            fix="give the folder that holds the site's own data",
        )
    for file in files:
        try:
            _table(sought, file)
        except (OSError, ValueError, csv.Error) as error:
            raise UsageError(
                f"{file} cannot be read, so it cannot be searched for.",
                why=type(error).__name__,  # the reader's own words quote values
                fix="give a folder whose tables are whole",
            ) from None


def _table(sought: Sought, file: Path) -> None:
    kind = file.suffix.lower()
    if kind == ".csv":
        with file.open(encoding="utf-8-sig", newline="") as opened:
            head, *rows = list(csv.reader(opened)) or [[]]
        _columns(
            sought, {name: [row[n] for row in rows if n < len(row)] for n, name in enumerate(head)}
        )
    elif kind == ".parquet":
        import pyarrow.parquet as pq

        table = pq.read_table(file)
        found = {name: table.column(name).to_pylist() for name in table.column_names}
        _columns(sought, {n: ["" if v is None else str(v) for v in vs] for n, vs in found.items()})
    elif kind == ".pt":
        from secure_fgl.data.own._saved import _load

        loaded = _load(file)
        for one in loaded if isinstance(loaded, list) else [loaded]:
            _arrays(sought, {n: v.numpy() for n, v in one.items() if hasattr(v, "numpy")})
    else:
        with io.BytesIO(file.read_bytes()) as opened:
            loaded = np.load(opened, allow_pickle=False)
            _arrays(sought, loaded if kind == ".npz" else {"": loaded})


def _columns(sought: Sought, columns: Mapping[str, list[str]]) -> None:
    measured = []
    for name, values in columns.items():
        numbers = [_number(value) for value in values]
        if name.lower() in _NAMING:
            sought.identifiers(values)
        elif None not in numbers and len(numbers) == len(next(iter(columns.values()))):
            measured.append(numbers)
        else:
            sought.texts(values)
    if measured:
        sought.rows(np.array(measured, dtype=np.float64).T)


def _arrays(sought: Sought, arrays: Mapping[str, np.ndarray]) -> None:
    for name in arrays:
        found = np.asarray(arrays[name])
        if found.ndim == 2 and found.dtype.kind in "fiub" and found.shape[1] >= 4:
            sought.rows(found)
        elif found.dtype.kind in "US":
            sought.texts(map(str, found.ravel().tolist()))


def _number(text: str) -> float | None:
    try:
        return float(text) if text.strip() else math.nan  # a gap is no text
    except ValueError:
        return None
