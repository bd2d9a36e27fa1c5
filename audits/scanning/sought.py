"""What is sought: a site's identifiers, texts and rows as keyed digests, its keys and paths.

Of a table's values only digests under a key of this process are held, so that neither a memory
dump nor an error shows a table, and the filter is of no use anywhere else. A short or frequent
value ("4", "yes", a category) says nothing about anybody and would be found everywhere: it is left
out, and counted. Keys and paths are few; they are compared as they are.
"""

from __future__ import annotations

import re
import unicodedata
from base64 import b64encode
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from crypto.samplers import entropy

__all__ = ["LONGEST", "NUMBERS", "Sought", "numbers", "tokens"]

LONGEST = 8  # tokens of a text that are compared; of a longer one, its first
NUMBERS = 4  # of a row, in their order, that are compared
_FREQUENT = 3  # a text that so many records share is a category
_TOKEN = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?![\w.]*\w)")
_SECRET = 16  # bytes; shorter ones are found by chance


def tokens(text: str) -> list[tuple[int, int]]:
    """Return where each run of letters and digits begins and ends."""
    return [found.span() for found in _TOKEN.finditer(text)]


def numbers(text: str) -> Iterator[tuple[int, str]]:
    """Yield where each number stands, and the number in one spelling, of six digits."""
    for found in _NUMBER.finditer(text):
        yield found.start(), f"{float(found[0]):.6g}"


class Sought:
    """What must not be found. Printed, it says how much there is and never what.

    Attributes:
        short: how many values were left out, because they are short or frequent.
    """

    def __init__(self) -> None:
        self._key = entropy(32)
        self._words: dict[int, dict[bytes, str]] = {}
        self._first: set[bytes] = set()
        self._rows: set[bytes] = set()
        self._arrays: dict[int, set[bytes]] = {}
        self._secrets: list[tuple[bytes, str]] = []
        self._known: dict[str, bool] = {}
        self.short = 0

    def __repr__(self) -> str:
        """Return how much is sought."""
        return f"<Sought: {len(self)} values>"

    def __len__(self) -> int:
        """Return how many things are sought."""
        texts = sum(map(len, self._words.values()))
        return texts + len(self._rows) + len(self._secrets) + sum(map(len, self._arrays.values()))

    @property
    def sizes(self) -> Sequence[int]:
        """How many tokens texts and identifiers have that are sought."""
        return sorted(self._words)

    @property
    def secrets(self) -> Sequence[tuple[bytes, str]]:
        """Bytes that are compared as they are, with their kind."""
        return self._secrets

    def identifiers(self, values: Iterable[str]) -> None:
        """Seek values that name somebody or something each."""
        for value in set(values):
            self._word(value, "identifier", long=_telling(value))

    def texts(self, values: Iterable[str]) -> None:
        """Seek what people wrote, where it is long enough and not shared by many records."""
        for value, often in Counter(values).items():
            wordy = len(tokens(value)) >= 3 or len(value.strip()) >= 12
            self._word(value, "text", long=wordy and often <= _FREQUENT)

    def _word(self, value: str, kind: str, *, long: bool) -> None:
        text = plain(value)
        places = tokens(text)[:LONGEST]
        if not places or not long:
            self.short += bool(value.strip())
            return
        whole = text[places[0][0] : places[-1][1]]
        self._words.setdefault(len(places), {})[self._digest(whole)] = kind
        self._first.add(self._digest(text[slice(*places[0])]))

    def rows(self, values: npt.NDArray[np.floating]) -> None:
        """Seek records by their numbers, float (records, columns), as text and as bytes.

        Of a record's numbers, in the order of their columns, the first and the last that tell
        enough are compared as text: `NUMBERS` of them, at least three different and neither 0 nor
        1. In arrays whole rows are compared, as float32, where they hold that many.
        """
        counted: Counter[bytes] = Counter()
        for row in values:
            # A gap is written as a blank or a word, so the numbers beside it follow each other.
            spelt = [f"{float(number):.6g}" for number in row if np.isfinite(number)]
            places = [n for n in range(len(spelt) - NUMBERS + 1) if _many(spelt[n : n + NUMBERS])]
            for place in {*places[:1], *places[-1:]}:
                counted[self._digest(" ".join(spelt[place : place + NUMBERS]))] += 1
            self.short += not places
            if _many(spelt) or sum(text != "0" for text in spelt) > 8:
                found = self._arrays.setdefault(len(row), set())
                found.add(self._raw(row.astype(np.float32).tobytes()))
        self._rows |= {digest for digest, often in counted.items() if often <= _FREQUENT}

    def secret(self, value: bytes, kind: str = "key") -> None:
        """Seek bytes: as they are, in hexadecimal digits and in base 64."""
        if len(value) < _SECRET:
            return
        spelt = {value, value.hex().encode(), value.hex().upper().encode()}
        # What stands before it shifts base 64 by up to two bytes; what is beside is left out.
        for shift in range(3):
            text = b64encode(bytes(shift) + value)
            spelt.add(text[4 if shift else 0 : -4])
        self._secrets += [(text, kind) for text in sorted(spelt)]

    def path(self, value: str) -> None:
        """Seek a path of this machine, where it has two parts at least."""
        if value.count("/") >= 2:
            self._secrets.append((value.rstrip("/").encode(), "path"))

    def begins(self, token: str) -> bool:
        """Tell whether something sought begins with this token."""
        if token not in self._known:
            if len(self._known) > 1 << 20:
                self._known.clear()
            self._known[token] = self._digest(token) in self._first
        return self._known[token]

    def word(self, size: int, text: str) -> str:
        """Return of which kind a text of so many tokens is; empty: it is not sought."""
        return self._words.get(size, {}).get(self._digest(text), "")

    def row(self, spelt: Sequence[str]) -> bool:
        """Tell whether these numbers are those of a row."""
        return self._digest(" ".join(spelt)) in self._rows

    def array(self, values: npt.NDArray[np.generic]) -> int:
        """Return the first row of an array that is sought, from 1; 0: none is."""
        wanted = self._arrays.get(values.shape[-1]) if values.ndim else None
        if not wanted or values.dtype.kind not in "fiub":
            return 0
        with np.errstate(over="ignore"):
            rows = values.reshape(-1, values.shape[-1]).astype(np.float32)
        found = (n for n, row in enumerate(rows, 1) if self._raw(row.tobytes()) in wanted)
        return next(found, 0)

    def _digest(self, text: str) -> bytes:
        return self._raw(text.encode("utf-8", "surrogatepass"))

    def _raw(self, data: bytes) -> bytes:
        return blake2b(data, key=self._key, digest_size=16).digest()


def plain(text: str) -> str:
    """Return a text as it is compared: composed letters, no capitals, single blanks."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def _telling(value: str) -> bool:
    """Tell whether an identifier is one that is not met by chance."""
    text = value.strip()
    alphabetic, digits = (any(map(test, text)) for test in (str.isalpha, str.isdigit))
    return len(text) >= (4 if alphabetic and digits else 5 if alphabetic else 6)


def _many(spelt: Sequence[str]) -> bool:
    """Tell whether numbers are of many kinds, as measurements are."""
    said = [text for text in spelt if text not in ("0", "1", "-1", "nan")]
    counting = all(text.lstrip("-").isdigit() for text in said) and all(
        abs(float(b) - float(a)) == 1 for a, b in pairwise(said)
    )
    return len(set(said)) >= 3 and not counting  # 2, 3, 4, 5 counts, and measures nothing
