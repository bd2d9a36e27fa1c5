"""The time of ledger entries."""

from __future__ import annotations

import time
from functools import lru_cache


def clock() -> str:
    """Return the time (UTC, to the second)."""
    return _written(int(time.time()))


@lru_cache(maxsize=1)  # thousands of entries are of one second
def _written(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
