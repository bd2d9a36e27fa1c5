"""Generated ratings of films by people. Nothing in it is real.

A rating is the scale's middle, plus how strict the user is and how good the item is, plus the
product of their tastes, and noise; rounded and kept within 1 to 5. Popular items are rated more
often. It exists so that recommenders can be tried without anybody's data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from secure_fgl.data._folder import unknown
from secure_fgl.data.records import Ratings
from secure_fgl.data.sources._shared.files import Shape

__all__ = ["NAMES", "OPTIONS", "describe", "load"]

NAMES: Mapping[str, str] = {"synthetic_ratings": "generated users, items and ratings (synthetic)"}

OPTIONS: Mapping[str, int] = {"seed": 7, "users": 60, "items": 80, "each": 20}
"""Options and their defaults; `each` is how many items a user rates."""

_TASTES, _NOISE = 2, 0.4


def describe(name: str, options: Mapping[str, Any]) -> Shape:
    """Public sizes, from the options alone.

    Raises:
        ValueError: an unknown option, or one that is out of range.
    """
    given = _options(options)
    users, items = given["users"], given["items"]
    return Shape("rating", 0, 1, users * given["each"], True, False, users, items, 1.0, 5.0)


def load(name: str, root: object, options: Mapping[str, Any]) -> Ratings:
    """Generate the ratings; the same options give the same bits. `root` is not looked at.

    Raises:
        ValueError: an unknown option, or one that is out of range.
    """
    given = _options(options)
    users, items, each = given["users"], given["items"], given["each"]
    rng = np.random.default_rng(given["seed"])
    popular = 1.0 / (5.0 + np.arange(items))
    item = np.stack(
        [rng.choice(items, each, replace=False, p=popular / popular.sum()) for _ in range(users)]
    ).ravel()
    user = np.repeat(np.arange(users), each)
    strict, good = rng.normal(0.0, 0.4, users), rng.normal(0.0, 0.6, items)
    taste = rng.normal(0.0, 0.7, (users, _TASTES)), rng.normal(0.0, 0.7, (items, _TASTES))
    liked = (taste[0][user] * taste[1][item]).sum(axis=1)
    drawn = 3.0 + strict[user] + good[item] + liked + rng.normal(0.0, _NOISE, len(user))
    rating = np.clip(np.rint(drawn), 1.0, 5.0).astype(np.float32)
    return Ratings(name, user, item, rating, users, items, 1.0, 5.0, synthetic=True)


def _options(options: Mapping[str, Any]) -> dict[str, int]:
    for option in options:
        if option not in OPTIONS:
            raise unknown("option of synthetic_ratings", option, OPTIONS)
    given = {**OPTIONS, **options}
    whole = all(isinstance(v, int) and not isinstance(v, bool) for v in given.values())
    if not whole or given["seed"] < 0 or min(given["users"], given["each"]) < 1:
        raise ValueError("options of synthetic_ratings are whole numbers, seed 0 or more, others 1")
    if given["each"] > given["items"]:
        raise ValueError("a user rates an item once: each must be no more than items")
    return given
