"""From a client's terms to the integers of a row that it adds: exact, or under its own noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from crypto.ldp.grid import on_grid
from crypto.noise import DiscreteGaussian, sampler
from crypto.quantiser import Grid
from crypto.samplers import Stream, derive
from protocols.plan.noise import CountPlan

__all__ = ["ExactRows", "NoisedRows", "RowMaker"]

Integers = NDArray[np.int64]
Terms = Sequence[NDArray[np.float64]]


class RowMaker(Protocol):
    """Makes rows, each once."""

    def row(self, tag: bytes, terms: Terms) -> tuple[Integers, bool]:
        """Return a row, (d,) integers, and whether something was clipped.

        Args:
            tag: of the row.
            terms: of own nodes, one at least, (d,) each.
        """


class ExactRows:
    """Sums, each entry clipped and rounded to the grid.

    Args:
        clip: bound of every entry.
        bits: of the grid.
        key: of the stream that decides how sums are rounded.
    """

    def __init__(self, clip: float, bits: int, key: bytes) -> None:
        self._clip, self._grid = clip, Grid(clip, bits)
        self._stream = Stream(key)

    def row(self, tag: bytes, terms: Terms) -> tuple[Integers, bool]:
        """See `RowMaker`."""
        exact: NDArray[np.float64] = np.sum(terms, axis=0)
        bounded = np.clip(exact, -self._clip, self._clip)
        return self._grid.quantise(bounded, self._stream), bool((bounded != exact).any())


class NoisedRows:
    """Sums of terms that are clipped one by one, and noise; see `protocols.privacy.row_noise`.

    Args:
        clip: L2 norm of a node's term.
        bits: of the grid, on which the clip is the largest level.
        counted: the planned noise.
        most: the largest magnitude of a number. What is beyond is cut off after the noise, which
            costs no privacy, and not refused: a refusal would tell of it.
        key: of the noise, from the operating system, for these rows alone (O15). Each row's noise
            follows from it and the row's tag: if a state is put back, a row is the same release
            again, and no two rows have one noise.
    """

    def __init__(self, clip: float, bits: int, counted: CountPlan, most: int, key: bytes) -> None:
        self._clip, self._levels, self._most = clip, (1 << (bits - 1)) - 1, most
        self._law = sampler(DiscreteGaussian, float(counted.scale) * self._levels)
        self._key = key

    def row(self, tag: bytes, terms: Terms) -> tuple[Integers, bool]:
        """See `RowMaker`."""
        total = np.zeros(len(terms[0]), dtype=np.int64)
        with np.errstate(over="ignore"):  # a norm that is no double is longer than the clip
            clipped = not all(float(np.linalg.norm(term)) <= self._clip for term in terms)
        for term in terms:
            total += on_grid(term, self._clip, self._levels)
        total += self._law.sample(Stream(derive(self._key, "row noise", tag)), len(total))
        return np.clip(total, -self._most, self._most), clipped
