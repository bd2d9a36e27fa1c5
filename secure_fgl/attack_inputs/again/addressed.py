"""What one client read of a total that is for it alone, computed again.

The aggregator opens such a total under its reader's blind, so its capture holds noise, and the
blind is gone. The reader got the sum of what all others said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from protocols.plan.plan import Item
from secure_fgl.attack_inputs.again.generators import noised

__all__ = ["read_total"]

Arrays = Mapping[str, np.ndarray[Any, np.dtype[np.float64]]]


def read_total(said: Sequence[Arrays], item: Item) -> Arrays:
    """Return the total, field by field; noise is of the planned size and drawn anew.

    Args:
        said: by every client that counts, rounded; the reader is none of them.
        item: of the plan.
    """
    steps = {f.name: f.step for m in item.messages for f in m.fields}
    found = {}
    for name in said[0] if said else ():
        total = np.sum([one[name] for one in said], axis=0)
        found[name] = noised(total, item, len(said), float(steps[name] or 1.0))
    return found
