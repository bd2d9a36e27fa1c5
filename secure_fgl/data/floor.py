"""The policy's floor on persons: a site with few of them takes part as one that has none.

A total over four sites says most of a site whose model rests on three patients. So the masks of
such a site are emptied before anything is computed: it trains, is scored and is tested on nothing,
and sends what a site without labels sends.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from secure_fgl.data.records import ClientRatings, Part

__all__ = ["TOO_FEW", "above_floor", "persons", "trains_on_few"]

TOO_FEW = (
    "training records of fewer than {} persons (the policy's minimum_records), so this site "
    "trains on nothing"
)


def persons(part: Part, mask: npt.NDArray[np.bool_]) -> int:
    """Return of how many persons the records of a mask are: users of ratings, else records."""
    if isinstance(part, ClientRatings):
        return len(np.unique(part.user[mask]))
    return int(mask.sum())


def trains_on_few(part: Part, least: int) -> bool:
    """Tell whether a site has training records, and of fewer than `least` persons."""
    return 0 < persons(part, part.train) < least


def above_floor(part: Part, least: int) -> Part:
    """Return a site's part with no record in those masks that hold fewer than `least` persons."""
    emptied = {
        name: np.zeros_like(mask)
        for name in ("train", "val", "test")
        if persons(part, mask := getattr(part, name)) < least
    }
    return replace(part, **emptied) if emptied else part
