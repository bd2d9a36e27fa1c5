"""What attack A11 is given: made-up records, which of them trained, and models to ask of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

__all__ = ["Canaries"]

Array = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, repr=False)
class Canaries:
    """All canaries of a run; those that did not train are as if they had never been.

    Attributes:
        coins: client -> (m,), which of its canaries trained.
        features: client -> (m, F), where a canary is a node; empty otherwise.
        doubt: why the coins prove nothing: another seed than was committed to, or one that can be
            guessed; empty: nothing speaks against them.
        model: gives the model of a flat vector of weights; None if that is no whole model.
        confidence: gives how sure a model is of the truth of each canary of a client, (m,).
        alone: gives the model that a client makes of its own records, canaries that train among
            them; the number decides all chance in it.
    """

    coins: Mapping[str, Bools]
    features: Mapping[str, Floats]
    model: Callable[[Array], object | None]
    confidence: Callable[[object, str], Array]
    alone: Callable[[str, int], object]
    doubt: str = ""
