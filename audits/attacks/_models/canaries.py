"""What attack A11 is given: made-up records, which of them trained, and models to ask of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audits.attacks._shared.models import Claim

__all__ = ["TRIED", "Canaries", "noted", "of_canaries"]

Array = npt.NDArray[np.float64]
Floats = npt.NDArray[np.float32]
Bools = npt.NDArray[np.bool_]


TRIED = " canaries"
"""Ends the text of each claim that is held against canaries."""

_CLOSED = "Not looked at, as the coins of its canaries were never opened: {}. {}"
_SHOWN = 4


@dataclass(frozen=True, repr=False)
class Canaries:
    """All canaries of a run; those that did not train are as if they had never been.

    Attributes:
        coins: client -> (m,), which of its canaries trained.
        features: client -> (m, F), where a canary is a node; empty otherwise.
        model: gives the model of a flat vector of weights; None if that is no whole model.
        confidence: gives how sure a model is of the truth of each canary of a client, (m,).
        alone: gives the model that a client makes of its own records, canaries that train among
            them; the number decides all chance in it.
        arrived: clients of which an update counted in some model; the others' canaries are in none
            that was handed out.
        controls: clients without canaries whose messages and models are null controls alone: at
            one site, those that were drawn.
        unopened: clients that have not opened their coins; nothing is known of their canaries.
    """

    coins: Mapping[str, Bools]
    features: Mapping[str, Floats]
    model: Callable[[Array], object | None]
    confidence: Callable[[object, str], Array]
    alone: Callable[[str, int], object]
    arrived: frozenset[str]
    controls: tuple[str, ...] = ()
    unopened: tuple[str, ...] = ()


def noted(given: Canaries, note: str) -> str:
    """Return a row's note, after the names of those whose coins were never opened."""
    if not given.unopened:
        return note
    more = ", …" if len(given.unopened) > _SHOWN else ""
    return _CLOSED.format(", ".join(given.unopened[:_SHOWN]) + more, note)


def of_canaries(claim: Claim) -> bool:
    """Tell whether a claim was held against a bound that canaries prove."""
    return claim.text.endswith(TRIED)
