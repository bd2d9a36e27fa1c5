"""Where the parts of a model lie in what is said of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from audits.attacks import Layers

__all__ = ["layers_of"]


def layers_of(layout: Any, spec: Any, size: int) -> Layers:
    """Return where first and last layer lie in the first `size` values of a flat vector.

    Args:
        layout: name and shape of every parameter, in the vector's order.
        spec: of the data.
        size: of what is said; FedPer leaves the head out.
    """
    first, first_bias, weight, bias, start = None, None, None, None, 0
    for _, shape in layout:
        part = slice(start, start + int(np.prod(shape)))
        start = part.stop
        if start > size:
            break
        if first is None and len(shape) == 2 and shape[0] == spec.features:
            first = (part, shape)
        elif first is not None and first_bias is None and first[0].stop == part.start:
            first_bias = (part, shape) if len(shape) == 1 else None
        if len(shape) == 2 and shape[1] == spec.classes:
            weight = (part, shape)
        if len(shape) == 1 and shape[0] == spec.classes:
            bias = (part, shape)
    return Layers(first=first, first_bias=first_bias, last_weight=weight, last_bias=bias)
