"""Cases that take turns: some in `make test`, all in `make test-long`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

QUICK = pytest.StashKey[dict[str, bool]]()
"""By test function (``file::name``), of all that was collected: whether any case is not `long`."""


def thinned(cases: Sequence[Any], every: int = 2) -> list[Any]:
    """Return the cases of a test, all but each `every`-th of them `long`.

    For cases that differ in where one mechanism is met, not in the mechanism.
    """
    return [
        case
        if place % every == 0
        else pytest.param(*(case if isinstance(case, tuple) else (case,)), marks=pytest.mark.long)
        for place, case in enumerate(cases)
    ]
