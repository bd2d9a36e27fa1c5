"""One message under a client's own noise, as attack A10 takes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from audits.accounting.tally import Tally
from audits.attacks._noise.release import GAUSSIAN, LAPLACE, Release
from audits.attacks._noise.told import scores_of
from crypto.ldp.odds import MAX_EPSILON
from crypto.ldp.randomised_response import RandomisedResponse
from crypto.ldp.sqkr import Sqkr
from crypto.samplers import Stream
from protocols.plan.noise import NoisePlan
from protocols.plan.plan import Item

__all__ = ["ToldRelease", "local_release"]

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ToldRelease(Release):
    """One message of SQKR, given which entries it tells: a symbol by randomised response.

    `scale` is epsilon of one message; `norm` is not used.
    """

    symbols: int = 2

    def widths(self, draws: int) -> tuple[int, ...]:
        """Return one: a symbol has no entries."""
        return (1,)

    def record(self, width: int) -> Array:
        """Return the symbol that the record's vector is told by; without it, symbol 0 is."""
        return np.ones(1)

    def scores(
        self, record: Array, runs: int, stream: Stream, *, present: bool, weaker: float = 1.0
    ) -> Array:
        """Return the log-likelihood ratio of so many messages, (runs,); see `Release`."""
        claimed = RandomisedResponse(self.symbols, self.scale)
        real = RandomisedResponse(self.symbols, min(self.scale * weaker, float(MAX_EPSILON)))
        return scores_of(claimed, real, (1, 0), runs, stream, present=present)


def local_release(noise: NoisePlan, items: Sequence[Item], tally: Tally, payload: str) -> Release:
    """Return one message of a local randomiser and what is claimed of it.

    Args:
        noise: as planned.
        items: that have it.
        tally: of the run.
        payload: of the items.
    """
    names = ", ".join(item.id for item in items)[:120]
    pure = float(noise.pure) if noise.pure else 0.0
    epsilon = pure or tally.planned_message(items[0])
    delta = 0.0 if pure else tally.delta
    facts: dict[str, Any] = {
        "payload": payload,
        "text": f"one message of {names}: epsilon {epsilon:.4g} at delta {delta:g} for one client "
        f"(replace-one, local), by {noise.mechanism}",
        "unit": "client",
        "epsilon": epsilon,
        "delta": delta,
        "shares": 1,
    }
    if noise.mechanism == "sqkr":
        symbols = 1 << Sqkr(2, 1.0, pure, bytes(16)).length
        return ToldRelease(
            **facts, mechanism="sqkr", scale=pure, norm=1.0, entries=1, symbols=symbols
        )
    laplace = noise.mechanism == "laplace_vector"
    return Release(
        **facts,
        mechanism=LAPLACE if laplace else GAUSSIAN,
        scale=float(noise.sigma),
        norm=noise.apart * float(noise.l2),
        entries=1 if laplace else noise.coordinates,  # the clip of Laplace is in L1
    )
