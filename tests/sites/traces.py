"""Searching what was left on the disk for secrets, however they may have been written down."""

from __future__ import annotations

import base64
import io
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

_HEAD = 8  # bytes of a form by which places are found; then the whole of it is compared


def of_bytes(secret: bytes) -> set[bytes]:
    """Return the forms of a key: raw, hex, base64 wherever it begins, Python's and JSON's way."""
    numbers = str(list(secret))[1:-1]
    found = {
        secret,
        repr(secret)[2:-1].encode(),
        numbers.encode(),
        numbers.replace(" ", "").encode(),
    }
    for spelled in (secret.hex(), secret.hex().upper()):
        found.add(spelled.encode())
    for ahead in range(3):  # in something longer, base64 begins in any of three ways
        start, end = (ahead * 4 + 2) // 3, (len(secret) + ahead) * 4 // 3
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            found.add(encode(bytes(ahead) + secret)[start:end])
    return found


def of_text(text: str) -> set[bytes]:
    """Return the forms of a passphrase or an id."""
    return of_bytes(text.encode()) | {text.encode("utf-16-le"), text.encode("utf-16-be")}


def of_row(values: Sequence[str]) -> set[bytes]:
    """Return the forms of numbers that stand beside one another in a table: each, and in a row."""
    found = {value.encode() for value in values}
    for order in "<>":
        found |= {struct.pack(f"{order}d", float(value)) for value in values}
        found.add(struct.pack(f"{order}{len(values)}f", *map(float, values)))
    found |= {say(np.float32(value)).encode() for value in values for say in (_printed, str)}
    return found


def _printed(value: np.float32) -> str:
    return repr(float(value))


class Wanted:
    """What is looked for, by a name that may be printed.

    Raises:
        ValueError: a form is so short, or so plain, that it is met by chance.
    """

    def __init__(self, forms: Mapping[str, Iterable[bytes]]) -> None:
        self._by_head: dict[int, list[tuple[str, bytes]]] = {}
        for name, spelled in forms.items():
            for form in spelled:
                if len(form) < _HEAD or len(set(form)) < _HEAD // 2:
                    raise ValueError(name)
                head = int.from_bytes(form[:_HEAD], "little")
                self._by_head.setdefault(head, []).append((name, form))
        self._heads = np.array(sorted(self._by_head), "<u8")

    def found(self, data: bytes) -> set[str]:
        """Return the names of what stands anywhere in these bytes."""
        names: set[str] = set()
        for ahead in range(min(_HEAD, len(data))):
            words = np.frombuffer(data[ahead : ahead + (len(data) - ahead) // _HEAD * _HEAD], "<u8")
            for place in np.flatnonzero(np.isin(words, self._heads)):
                at = ahead + int(place) * _HEAD
                for name, form in self._by_head[int(words[place])]:
                    if data.startswith(form, at):
                        names.add(name)
        return names

    def below(self, places: Iterable[Path]) -> set[tuple[str, str]]:
        """Return the files that hold something, archives' members included, and what they hold."""
        return {
            (file, name)
            for place in places
            for file, data in contents(place)
            for name in self.found(data)
        }


def contents(place: Path) -> Iterator[tuple[str, bytes]]:
    """Yield every file of a folder, its name included, and every member of an archive in it."""
    files = [place] if place.is_file() else sorted(place.rglob("*"))
    for file in files:
        yield str(file), str(file).encode()
        if file.is_file() and not file.is_symlink():
            yield from _opened(str(file), file.read_bytes())


def _opened(name: str, data: bytes) -> Iterator[tuple[str, bytes]]:
    yield name, data
    if zipfile.is_zipfile(io.BytesIO(data)):
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            for member in archive.namelist():
                yield from _opened(f"{name}:{member}", archive.read(member))
