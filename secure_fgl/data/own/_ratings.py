"""Who rated what: `ratings.csv|parquet` (user, item, rating, optional split).

Users and items mean the same at every site: they are numbers below the spec's counts, or listed in
a vocabulary file whose SHA-256 stands in the spec, so that a stale copy at one site is an error and
not a silent mix-up of items.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from secure_fgl.data.own._files import read_bytes, read_table
from secure_fgl.data.own._found import SPLIT, Found, find, optional_split, stated
from secure_fgl.data.own._table import Kind, Table
from secure_fgl.data.own.errors import OwnDataError, no_tables
from secure_fgl.data.own.spec import OwnSpec
from secure_fgl.data.own.tally import Tally
from secure_fgl.data.records import Ratings

__all__ = ["VOCABULARY", "read_ratings"]

Key = Literal["users", "items"]
_IDS: tuple[tuple[str, Key], ...] = (("user", "users"), ("item", "items"))

VOCABULARY = "vocabulary"
"""Folder beside the sites' folders that holds ``users.txt`` and ``items.txt``, one id a line."""


def read_ratings(folder: Path, spec: OwnSpec, tally: Tally, labelled: bool = True) -> Found:
    """Read a site's ratings; they keep the order of their file.

    Raises:
        OwnDataError: the file is missing or cannot be read, a user or item is missing or not among
            those agreed on, a rating is missing, not a number or off the scale, or a user rated an
            item twice.
    """
    del tally  # a repeat is an error here: which of two ratings would be meant?
    path = find(folder, "ratings")
    if path is None:
        what = "there is no ratings.csv or ratings.parquet"
        raise no_tables(folder, what)
    kinds = {column: _kind(key, spec) for column, key in _IDS}
    wanted = {**kinds, "rating": Kind.REAL} | ({SPLIT: Kind.TEXT} if labelled else {})
    table = read_table(path, wanted, optional_split(spec) if labelled else ("rating",))
    if not table.rows:
        raise table.wrong(
            "there is no rating", fix="fill the table; a site without data takes no part"
        )
    user, item = (_numbers(table, *names, spec, folder.parent) for names in _IDS)
    first = np.unique(user * spec.items + item, return_index=True)[1]
    again = np.ones(table.rows, dtype=bool)
    again[first] = False
    what = "this user rated this item in an earlier row"
    table.refuse(again, "item", what, fix="keep one of the two")
    rating = _rating(table, blank=not labelled)
    off = (rating < spec.lowest) | (rating > spec.highest)
    table.refuse(off, "rating", "the rating is off the scale of spec.yaml")
    whole = Ratings(
        name=spec.name,
        user=user,
        item=item,
        rating=rating.astype(np.float32),
        users=spec.users,
        items=spec.items,
        lowest=spec.lowest,
        highest=spec.highest,
        synthetic=spec.synthetic,
    )
    ids = {column: table.columns[column] for column, _ in _IDS}
    return Found(whole, stated(table), path, ids)


def _rating(table: Table, *, blank: bool) -> npt.NDArray[np.float64]:
    """Return the ratings; NaN for those that are to be predicted, where there may be such."""
    if "rating" not in table:
        return np.full(table.rows, np.nan)
    return table.real("rating", blank=blank)


def _kind(key: Key, spec: OwnSpec) -> Kind:
    return Kind.TEXT if key in spec.vocabulary else Kind.WHOLE


def _numbers(
    table: Table, column: str, key: Key, spec: OwnSpec, root: Path
) -> npt.NDArray[np.int64]:
    if key in spec.vocabulary:
        import pyarrow as pa

        words = _vocabulary(root / VOCABULARY / f"{key}.txt", spec, key)
        found = table.places(column, pa.array(words, pa.large_string()))
        table.refuse(found < 0, column, f"the id is not in {VOCABULARY}/{key}.txt")
        return found
    number = table.whole(column)
    fix = f"{key} are numbered from 0 to {key} - 1, alike at every site"
    off = (number < 0) | (number >= getattr(spec, key))
    table.refuse(off, column, f"the number is not below {key} of spec.yaml", fix=fix)
    return number


def _vocabulary(path: Path, spec: OwnSpec, key: Key) -> list[str]:
    """The ids of a vocabulary file in its order; the file must be the one that was agreed on."""
    data = read_bytes(path)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    if digest != spec.vocabulary[key]:
        what = "the file is not the one that spec.yaml names"
        why = f"its SHA-256 is {digest}"
        fix = "get the file that the sites agreed on, or agree on this one"
        raise OwnDataError(path, what, why=why, fix=fix)
    words = [line.strip() for line in data.decode("utf-8").split("\n")]
    seen = set[str]()
    for number, word in enumerate(words, start=1):
        if not word or word in seen:
            what = "the line is empty" if not word else "the id stands on an earlier line too"
            raise OwnDataError(path, what, row=f"line {number}", fix="one id a line")
        seen.add(word)
    if len(words) != getattr(spec, key):
        what = f"the file does not have as many lines as spec.yaml has {key}"
        raise OwnDataError(path, what, fix=f"{key}: {len(words)}")
    return words
