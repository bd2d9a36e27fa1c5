"""Bytes are searched: as text in several spellings, and what is packed in them.

Text is looked at as it stands and as JSON, HTML, addresses and base 64 spell it; ZIP archives
(bundles, hand-overs, saved arrays) and NumPy's arrays are opened, as deep as `DEPTH`. What is
compressed otherwise, encrypted, split over lines or reworded is not found.
"""

from __future__ import annotations

import html
import io
import lzma
import re
import zipfile
import zlib
from base64 import b64decode
from binascii import Error
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

import numpy as np

from audits.scanning.sought import NUMBERS, Sought, numbers, plain, tokens

__all__ = ["LIMIT", "Hit", "NotSearched", "search"]

LIMIT = 1 << 28  # bytes of one file, and of all that is packed in it
DEPTH = 3  # archives within archives
_ZIP, _NUMPY = b"PK\x03\x04", b"\x93NUMPY"
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))")
_BASE64 = re.compile(rb"[A-Za-z0-9+/]{24,}={0,2}")
_MEANT = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}  # others are themselves


@dataclass(frozen=True)
class Hit:
    """Something was found: where, and of which kind; never what.

    Attributes:
        place: the file, and behind ``!`` what is packed in it.
        line: of the text, or row of an array, from 1; 0 where neither counts.
        kind: identifier, text, row, key or path.
    """

    place: str
    line: int
    kind: str


class NotSearched(Exception):
    """Something cannot be searched; its text says what and why."""


def search(place: str, data: bytes, sought: Sought) -> Iterator[Hit]:
    """Yield what is found in a file, each kind once a line.

    Args:
        place: its name.
        data: its content.
        sought: what must not be there.

    Raises:
        NotSearched: it, or what is packed in it, is too large, or cannot be unpacked.
    """
    yield from _search(place, data, sought, DEPTH, [LIMIT])


def _search(place: str, data: bytes, sought: Sought, depth: int, left: list[int]) -> Iterator[Hit]:
    left[0] -= len(data)
    if left[0] < 0:
        raise NotSearched(f"{place}: more than {LIMIT} bytes, with what is packed in it")
    for secret, kind in sought.secrets:
        if (at := data.find(secret)) >= 0:
            yield Hit(place, data.count(b"\n", 0, at) + 1, kind)
    if data.startswith(_ZIP):
        yield from _members(place, data, sought, depth, left)
        return
    if data.startswith(_NUMPY):
        yield from _array(place, data, sought)
        return
    yield from _texts(place, _decoded(data), sought)
    if depth:
        for found in _BASE64.finditer(data):
            inner = _unpacked(found[0])
            if inner:
                line = data.count(b"\n", 0, found.start()) + 1
                for hit in _search(place, inner, sought, 0, left):
                    yield Hit(place, line, hit.kind)


def _members(place: str, data: bytes, sought: Sought, depth: int, left: list[int]) -> Iterator[Hit]:
    if not depth:
        raise NotSearched(f"{place}: an archive more than {DEPTH} deep")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            yield from _texts(place, _decoded(archive.comment), sought)
            for member in archive.infolist():
                name = f"{place}!{member.filename}"
                yield from _texts(name, member.filename, sought)
                yield from _texts(name, _decoded(member.comment), sought)
                with archive.open(member) as file:
                    inner = file.read(max(0, left[0]) + 1)
                yield from _search(name, inner, sought, depth - 1, left)
    except (zipfile.BadZipFile, zlib.error, lzma.LZMAError, OSError) as error:
        raise NotSearched(f"{place}: an archive that cannot be opened") from error
    except (NotImplementedError, RuntimeError, EOFError, ValueError):
        raise NotSearched(f"{place}: an archive that cannot be opened") from None


def _array(place: str, data: bytes, sought: Sought) -> Iterator[Hit]:
    try:
        found = np.lib.format.read_array(io.BytesIO(data), allow_pickle=False)
    except (ValueError, EOFError, MemoryError):
        raise NotSearched(f"{place}: an array that cannot be read without running code") from None
    if found.dtype.kind in "US":
        yield from _texts(place, "\n".join(map(str, found.ravel().tolist())), sought)
    elif row := sought.array(found):
        yield Hit(place, row, "row")


def _decoded(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8", "replace")


def _unpacked(found: bytes) -> bytes:
    """Return what base 64 holds, if that is mostly text; digests and keys are not."""
    try:
        inner = b64decode(found + b"=" * (-len(found) % 4), validate=True)
    except (Error, ValueError):
        return b""
    head = inner[:256].decode("utf-8", "replace")  # letters of any alphabet
    written = sum((char.isprintable() and char != "\ufffd") or char in "\t\n\r" for char in head)
    return inner if written > len(head) * 0.9 else b""


def _texts(place: str, text: str, sought: Sought) -> Iterator[Hit]:
    """Search a text line by line in every spelling that it may be in."""
    for number, line in enumerate(text.split("\n"), 1):
        kinds = {kind for spelt in _spellings(line) for kind in _found(spelt, sought)}
        yield from (Hit(place, number, kind) for kind in sorted(kinds))


def _spellings(line: str) -> Iterator[str]:
    yield line
    if "\\" in line:
        meant = _ESCAPE.sub(_meant, line)
        # JSON spells letters beyond the first 65,536 as two halves.
        yield meant.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if "&" in line:
        yield html.unescape(line)
    if "%" in line:
        yield unquote(line)


def _meant(found: re.Match[str]) -> str:
    return chr(int(found[1], 16)) if found[1] else _MEANT.get(found[2], found[2])


def _found(line: str, sought: Sought) -> Iterator[str]:
    text = plain(line)
    places = tokens(text)
    for at, (start, end) in enumerate(places):
        if not sought.begins(text[start:end]):
            continue
        for size in sought.sizes:
            if at + size <= len(places):
                kind = sought.word(size, text[start : places[at + size - 1][1]])
                if kind:
                    yield kind
    spelt = [number for _, number in numbers(line)]
    for at in range(len(spelt) - NUMBERS + 1):
        if sought.row(spelt[at : at + NUMBERS]):
            yield "row"
            return
