"""One noised release as a function: with a worst-case record, and without it.

The project's own samplers, clipping and rounding are called, as the gateway and private training
call them. Their draws come from the audit's chance, so that a report can be repeated; they protect
nothing here. What protects data is never seeded.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from crypto.noise import MIN_SCALE
from crypto.samplers import Stream
from protocols.privacy.noising import SAMPLERS, on_grid

__all__ = ["GAUSSIAN", "LAPLACE", "PLANTED", "WIDEST", "Release"]

Array = npt.NDArray[np.float64]
LAPLACE, GAUSSIAN = "discrete_laplace", "discrete_gaussian"
PLANTED = 10.0
"""The planted violation: noise so many times too small."""

WIDEST = 64
"""Entries of the record that is spread over several."""
_BLOCK = 1 << 21  # draws at a time


@dataclass(frozen=True)
class Release:
    """One noised vector and what is claimed of it.

    Attributes:
        payload: ``P01`` to ``P21``.
        text: the claim in words.
        unit: whose presence it is about.
        epsilon, delta: what the accountant says of one release.
        mechanism: the sampler.
        scale: of one share of noise, grid steps.
        shares: of noise that nobody who looks knows.
        norm: the largest L2 norm of what a record adds, grid steps.
        entries: of the vector.
        rate: with which probability the record is in it; 1 for a client.
        cost: how many draws one run takes the time of, beyond its own.
    """

    payload: str
    text: str
    unit: str
    epsilon: float
    delta: float
    mechanism: str
    scale: float
    shares: int
    norm: float
    entries: int
    rate: float = 1.0
    cost: int = 1

    @property
    def gaussian(self) -> bool:
        """Tell whether its trade-off is a Gaussian's: no sampling, and Gaussian noise."""
        return self.mechanism == GAUSSIAN and self.rate == 1.0

    def widths(self, draws: int) -> tuple[int, ...]:
        """Return over how many entries the record is spread: over one, and over many.

        Noise that repeats itself from entry to entry shows in the second case only.
        """
        most, width = min(self.entries, WIDEST), 1
        while 2 * width <= most and 2 * width * self.shares <= draws:
            width *= 2
        return (1,) if width == 1 else (1, width)

    def record(self, width: int) -> Array:
        """Return what a worst-case record adds, (width,): its norm is the sensitivity.

        Signs alternate, so that noise common to all entries cancels and hides nothing.
        """
        signs = self.signs(width)
        if self.unit == "graph":
            return on_grid(1e6 * signs, 1.0).astype(np.float64)
        return np.asarray(max(1.0, float(np.floor(self.norm / np.sqrt(width)))) * signs)

    def signs(self, width: int) -> Array:
        """Return 1, -1, 1, ..., (width,)."""
        return np.asarray(1.0 - 2.0 * (np.arange(width) % 2), dtype=np.float64)

    def scores(
        self, record: Array, runs: int, stream: Stream, *, present: bool, weaker: float = 1.0
    ) -> Array:
        """Return the log-likelihood ratio of so many releases, up to a rising function, (runs,).

        Args:
            record: from :meth:`record`.
            runs: independent releases.
            stream: of the draws.
            present: whether the record is there.
            weaker: noise so many times too small.
        """
        sampler = SAMPLERS[self.mechanism](max(MIN_SCALE, self.scale / weaker))
        found, width = np.empty(runs), record.size
        block = max(1, _BLOCK // width)
        for start in range(0, runs, block):
            count = min(block, runs - start)
            values = np.zeros((count, width))
            for _ in range(self.shares):
                values += sampler.sample(stream, count * width).reshape(count, width)
            if present:
                drawn = stream.unit(count) < self.rate
                values += drawn[:, None] * record
            found[start : start + count] = self._ratio(values, record)
        return found

    def _ratio(self, values: Array, record: Array) -> Array:
        """Return ln P(x | record) - ln P(x | none), or what rises with it.

        Discrete Laplace of one share: ∑ (|x| - |x - v|)/t. Discrete Gaussian: <x, v>, as the
        normaliser is the same for every integer v. Sampling (rate < 1) keeps the order.
        """
        if self.mechanism == LAPLACE:
            gains = np.abs(values) - np.abs(values - record)
            return np.asarray(gains.sum(axis=1) / self.scale)
        return np.asarray(values @ record)
