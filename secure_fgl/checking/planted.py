"""A distinctive value and label, planted in the data, and the search for them in what was left."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import cast

import numpy as np

from secure_fgl.checking.small import BANKS, CLIENTS, RATINGS
from secure_fgl.data import Graph, Ratings, read_dataset

__all__ = ["CLASSES", "LABEL", "LONG", "SHORT", "VALUE", "banks", "places", "ratings"]

VALUE, LABEL, CLASSES = 1234.56789, 4321, 5000
TEXT = re.compile(  # however many digits were printed
    rb"1234[.,][56]|1[.,]234[.,]?[56]|1\.234?[56]\d*e|(?<![0-9A-Za-z.])4321(?![0-9A-Za-z.])"
)
SHORT = [np.array([VALUE], kind).tobytes() for kind in ("<f4", ">f4")]
LONG = [np.array([VALUE], kind).tobytes() for kind in ("<f8", ">f8")] + [
    np.array([LABEL], kind).tobytes() for kind in ("<i8", ">i8")
]


def banks() -> Graph:
    """Return synthetic banks with the value and the label at every third node."""
    graph = cast(Graph, read_dataset("synthetic_banks", None, **BANKS["options"]))
    x, y = np.array(graph.x), np.array(graph.y)
    x[::3, 7] = VALUE
    y[::3] = LABEL
    return dataclasses.replace(graph, x=x, y=y, classes=CLASSES)


def ratings() -> Ratings:
    """Return ratings where every user rated the item of the label, with the value."""
    found = cast(Ratings, read_dataset("synthetic_ratings", None, **RATINGS["options"]))
    first = np.searchsorted(found.user, np.arange(CLIENTS))
    item, rating = found.item.copy(), found.rating.copy()
    item[first], rating[first] = LABEL, VALUE
    return dataclasses.replace(found, item=item, rating=rating, items=CLASSES, highest=2000.0)


def places(everything: Mapping[str, bytes]) -> list[str]:
    """Return where the value or the label is seen, as bytes or as text.

    Args:
        everything: by name: ``wire``, for what travelled, files of a run folder, printed texts.
    """
    seen = []
    for place, data in everything.items():
        # What travels and captured rounds are megabytes of random bytes, in which four given ones
        # turn up once by chance. A leak would repeat them: the value stands in every third row.
        least = 2 if place == "wire" or place.startswith("captured/") else 1
        if place != "wire" and len(TEXT.findall(data)) >= least:
            seen.append(f"{place}: text")
        found = any(data.count(needle) >= least for needle in SHORT)
        if found or any(needle in data for needle in LONG):
            seen.append(f"{place}: bytes")
    return seen
