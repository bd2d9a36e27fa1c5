"""Published ratings as plain `.npz` files in a folder that the user names.

A file `<root>/<name>/<name>.npz` holds one entry a rating in `user`, `item` (from 0) and `rating`;
some also `category` and the test rows of a published split.

Cleaned in this order: ratings of 0 are no ratings and are dropped (34 in `ciao`); of several rows
of one user and item the last is kept, so exact duplicates go too. Items of `ciao` are numbered anew
without the 1683 numbers that never occur, which gives the 105,114 items of the literature.

* `split: published`: the set's own test rows, in the sets of `TEST`: u1 of `ml100k`, and those of
  Monti et al. (NeurIPS 2017) for `flixster` and `yahoo_music`. They name no validation rows.
* `lastfm` counts plays, 1 to 352,698; its rating is log(1 + plays).
* Trust and friendship between users, and features of users and items, are left unread.
* `ml1m_implicit` says who rated what and not how: every rating would be 1 and a constant would be
  right. It needs sampled negatives, which nothing here draws, so it has no name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from secure_fgl.data.records import Masks, Ratings
from secure_fgl.data.sources._shared.files import (
    Arrays,
    Shape,
    another_file,
    check_known,
    integers,
    locate,
    published,
    read,
)

__all__ = ["CATEGORIES", "NAMES", "TEST", "describe", "load"]


def _shape(records: int, users: int, items: int, lowest: float, highest: float) -> Shape:
    return Shape("rating", 0, 1, records, False, False, users, items, lowest, highest)


NAMES: Mapping[str, Shape] = {
    "ciao": _shape(282619, 7375, 105114, 1.0, 5.0),
    "epinions": _shape(912441, 22166, 296277, 1.0, 5.0),
    "filmtrust": _shape(35494, 1508, 2071, 0.5, 4.0),
    "flixster": _shape(26173, 3000, 3000, 0.5, 5.0),
    "lastfm": _shape(92834, 1892, 17632, 0.5, 13.0),  # of log(1 + plays), rounded outwards
    "ml100k": _shape(100000, 943, 1682, 1.0, 5.0),
    "yahoo_music": _shape(5335, 3000, 3000, 1.0, 100.0),
}
"""Public sizes after cleaning; loading checks that the file agrees."""

CATEGORIES: Mapping[str, int] = {"ciao": 28, "epinions": 27}
"""Categories of items, where the set has them."""

TEST: Mapping[str, tuple[str, int]] = {
    "flixster": ("test_mask", 2617),
    "ml100k": ("u1_test_mask", 20000),
    "yahoo_music": ("test_mask", 533),
}
"""Array and number of the published test rows."""


class _Rows(NamedTuple):
    user: npt.NDArray[np.int64]
    item: npt.NDArray[np.int64]
    rating: npt.NDArray[np.float32]
    category: npt.NDArray[np.int64] | None
    test: npt.NDArray[np.bool_] | None


def describe(name: str, options: Mapping[str, Any]) -> Shape:
    """Public sizes from the table.

    Raises:
        ValueError: an option that the set does not know, or another split than the published.
    """
    check_known(name, options, ("split",) if name in TEST else ())
    published(name, options)
    return NAMES[name]


def load(name: str, root: Path | None, options: Mapping[str, Any]) -> Ratings:
    """Read one set.

    Raises:
        FileNotFoundError: no folder was named, or the file is not in it.
        ValueError: an option is wrong, or the file is not what the table says.
    """
    shape = describe(name, options)
    path = locate(name, root, f"{name}/{name}.npz")
    rows = read(path, "rating", lambda arrays: _rows(arrays, name, options))
    _check(path, name, rows)
    return Ratings(
        name,
        rows.user,
        rows.item,
        rows.rating,
        shape.users,
        shape.items,
        shape.lowest,
        shape.highest,
        synthetic=False,
        category=rows.category,
        public=None if rows.test is None else _public(rows.test),
    )


def _rows(arrays: Arrays, name: str, options: Mapping[str, Any]) -> _Rows:
    user, item = integers(arrays, "user"), integers(arrays, "item")
    if name == "ciao":
        item = np.unique(item, return_inverse=True)[1]
    if name == "lastfm":
        rating = np.log1p(integers(arrays, "weight")).astype(np.float32)
    else:
        rating = arrays["rating"].astype(np.float32)
    category = integers(arrays, "category") if name in CATEGORIES else None
    test = arrays[TEST[name][0]] if published(name, options) else None
    rows = (user, item, rating, category, test)
    if any(column is not None and column.shape != (user.size,) for column in rows):
        raise ValueError("columns of different lengths")
    keep = _kept(user, item, rating)
    return _Rows(
        user[keep],
        item[keep],
        rating[keep],
        None if category is None else category[keep],
        None if test is None else test[keep],
    )


def _kept(
    user: npt.NDArray[np.int64], item: npt.NDArray[np.int64], rating: npt.NDArray[np.float32]
) -> npt.NDArray[np.int64]:
    """Rows that stay, ascending: of each pair the last whose rating is not 0."""
    rated = np.flatnonzero(rating != 0)[::-1]
    pairs = np.stack([user[rated], item[rated]])
    order = np.lexsort(pairs)  # stable, so of each pair the last row of the file comes first
    first = np.ones(len(order), bool)
    first[1:] = (np.diff(pairs[:, order], axis=1) != 0).any(axis=0)
    return np.sort(rated[order[first]])


def _check(path: Path, name: str, rows: _Rows) -> None:
    shape, (user, item, rating, category, test) = NAMES[name], rows
    agrees = (
        len(user) == shape.records
        and user.min() >= 0
        and user.max() < shape.users
        and item.min() >= 0
        and item.max() < shape.items
        and bool(((rating >= shape.lowest) & (rating <= shape.highest)).all())  # and no NaN
        and (category is None or (category.min() == 0 and category.max() == CATEGORIES[name] - 1))
        and (test is None or (test.dtype == np.bool_ and test.sum() == TEST[name][1]))
    )
    if not agrees:
        raise another_file(
            path,
            f"{shape.records} ratings from {shape.lowest:g} to {shape.highest:g} after cleaning, "
            f"by {shape.users} users of {shape.items} items at most",
        )


def _public(test: npt.NDArray[np.bool_]) -> Masks:
    return Masks(train=~test, val=np.zeros_like(test), test=test)
