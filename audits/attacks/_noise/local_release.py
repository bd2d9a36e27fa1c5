"""One message under a client's own noise, as attack A10 takes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from audits.accounting.rows import Tally
from audits.attacks._noise.release import GAUSSIAN, LAPLACE, Release
from audits.attacks._noise.told import scores_of
from crypto.ldp import (
    MAX_EPSILON,
    DrawnCategory,
    FiniteRandomiser,
    Piecewise,
    RandomisedResponse,
    UnaryEncoding,
)
from crypto.ldp_vectors import Sqkr, on_grid
from crypto.samplers import Stream
from protocols.disclosures._base.rules import Chain
from protocols.disclosures.noised.randomiser import (
    planned_parts,
    randomised,
    randomiser_of,
    teller,
    tells,
)
from protocols.messages import NoisedMessage, Vector, real
from protocols.plan.plan import Item, NoisePlan
from protocols.policy.guard import guard_of
from protocols.policy.guards import Clip

__all__ = ["CanaryRelease", "ToldRelease", "local_releases"]

Array = npt.NDArray[np.float64]
_CANARY = 1e9
_COST = 2_000  # draws of a sampler in the time that one message takes through a client


@dataclass(frozen=True)
class ToldRelease(Release):
    """What one value is told by: given which entries SQKR tells, a symbol; a category; a number.

    `scale` is epsilon of it; `norm` is not used.

    Attributes:
        told: ``symbol``, ``category`` or ``bounded``.
        symbols: how many symbols, or categories, there are.
    """

    told: str = "symbol"
    symbols: int = 2

    def widths(self, draws: int) -> tuple[int, ...]:
        """Return one: a symbol has no entries."""
        return (1,)

    def record(self, width: int) -> Array:
        """Return that there is a record: its value is told, and without it another is."""
        return np.ones(1)

    def made(self, epsilon: float) -> tuple[FiniteRandomiser, tuple[Any, Any]]:
        """Return the mechanism at an epsilon, and the two values furthest apart.

        Of unary encoding two bits stand for all: every other is drawn alike for both values.
        """
        exact = Fraction(min(epsilon, float(MAX_EPSILON)))
        if self.told == "symbol":
            return RandomisedResponse(self.symbols, exact), (1, 0)
        found = teller(self.told, self.symbols, exact)
        if isinstance(found, Piecewise):
            return found, (found.levels, -found.levels)
        planned = teller(self.told, self.symbols, Fraction(self.scale))  # a weaker one is its like
        if isinstance(planned, DrawnCategory) and isinstance(planned.told, UnaryEncoding):
            return UnaryEncoding(2, exact), ((0,), (1,))
        return RandomisedResponse(self.symbols, exact), (1, 0)

    def scores(
        self, record: Array, runs: int, stream: Stream, *, present: bool, weaker: float = 1.0
    ) -> Array:
        """Return the log-likelihood ratio of so many messages, (runs,); see `Release`."""
        (claimed, pair), (real, _) = self.made(self.scale), self.made(self.scale * weaker)
        return scores_of(claimed, real, pair, runs, stream, present=present)


class Canary(NoisedMessage):
    """A message of the audit's own, far longer than any clip."""

    values: Vector = real("d", unit="weight", meaning="an input of the audit's own")


@dataclass(frozen=True, kw_only=True)
class CanaryRelease(Release):
    """One message through a whole client: clip, noise and packing, by the gateway's own code.

    Both runs send a canary: with the record a vector, without it its negative, as far apart as the
    clip lets any two be.

    Attributes:
        item: of the plan, with its noise.
        chain: of the policy, with its clip.
    """

    item: Item
    chain: Chain

    def record(self, width: int) -> Array:
        """Return by how much the two canaries differ, in grid steps, (width,)."""
        clip = guard_of(self.chain, Clip)
        if clip is None or clip.norm == "linf":
            raise TypeError("a randomised message has a clip in L1 or L2")
        canary = _CANARY * self.signs(width)
        levels = on_grid(canary, clip.bound, int(self.norm) // 2, clip.norm)
        return 2.0 * levels.astype(np.float64)

    def scores(
        self, record: Array, runs: int, stream: Stream, *, present: bool, weaker: float = 1.0
    ) -> Array:
        """Return the log-likelihood ratio of so many messages, (runs,); see `Release`."""
        item, dims = _weaker(self.item, weaker), {"d": record.size}
        clip = guard_of(self.chain, Clip)
        if clip is None or item.noise is None:
            raise TypeError("a randomised message has a clip and a noise plan")
        said = [Canary(values=np.copysign(_CANARY, record) * (1.0 if present else -1.0))]
        reader = randomiser_of(item.noise, record.size, clip.bound, item.label)
        found = np.empty((runs, record.size))
        for run in range(runs):
            found[run] = reader.unpack(randomised(said, dims, item, self.chain, stream))
        return self._ratio(found + record / 2.0, record)


def _weaker(item: Item, weaker: float) -> Item:
    """Return an item whose noise is so many times too small."""
    noise = item.noise
    if noise is None or weaker == 1.0:
        return item
    facts = {"sigma": repr(float(noise.sigma) / weaker)}
    if noise.pure:
        facts["pure"] = repr(float(noise.pure) * weaker)
    return item.model_copy(update={"noise": noise.model_copy(update=facts)})


def local_releases(
    noise: NoisePlan, items: Sequence[Item], tally: Tally, payload: str, chain: Chain
) -> Iterator[Release]:
    """Yield what one message of a local randomiser tells, and what is claimed of it.

    Args:
        noise: as planned.
        items: that have it.
        tally: of the run.
        payload: of the items.
        chain: that protects them.
    """
    vectors = [item for item in items if not tells(planned_parts(item))]
    if vectors:
        yield _of_vectors(noise, vectors, tally, payload, chain)
    several = {item.id: planned_parts(item) for item in items if item not in vectors}
    shares = {(*part, len(parts)) for parts in several.values() for part in parts}
    for told, size, parts in sorted(shares):
        names = ", ".join(id for id, found in several.items() if (told, size) in found)[:120]
        epsilon = float(Fraction(noise.pure or "0") / parts)
        one = f"one of {size} categories" if told == "category" else "one bounded number"
        yield ToldRelease(
            payload=payload,
            text=f"{one} in a message of {names}: epsilon {epsilon:.4g} at delta 0 for one client "
            f"(replace-one, local), a share of {noise.pure} of the message",
            unit="client",
            epsilon=epsilon,
            delta=0.0,
            shares=1,
            mechanism=told,
            scale=epsilon,
            norm=1.0,
            entries=1,
            told=told,
            symbols=size,
        )


def _of_vectors(
    noise: NoisePlan, items: Sequence[Item], tally: Tally, payload: str, chain: Chain
) -> Release:
    """Return one message that is a vector, by the mechanism that the plan names."""
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
    return CanaryRelease(
        **facts,
        item=items[0],
        chain=chain,
        cost=_COST,
        mechanism=LAPLACE if laplace else GAUSSIAN,
        scale=float(noise.sigma),
        norm=noise.apart * float(noise.l2),
        entries=1 if laplace else noise.coordinates,  # the clip of Laplace is in L1
    )
