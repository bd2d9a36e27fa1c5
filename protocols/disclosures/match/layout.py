"""What a client says under the guard ``match``: which items it holds, and one vector of integers.

A MATCH message has two fields. The key field is a public list, the catalogue with its most popular
items first: at each place 1 + that place where the client holds the item, 0 elsewhere. The real
field is the client's vector. Neither leaves: items become tags, and the vector becomes shares, or
in the form `published` one noised vector. What comes back is a message of two fields, too: ``row``,
1 + the place that something was found for (0: padding; a place stands once a vector), and beside it
vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray

from crypto.noise import MIN_SCALE
from crypto.quantiser import Grid
from crypto.samplers import Stream
from protocols.disclosures.match.guards import Match
from protocols.disclosures.noised.decoys import noised_steps
from protocols.disclosures.noised.guards import LEVELS, Laplace
from protocols.disclosures.sum.layout import Column
from protocols.errors import UnfitMessage
from protocols.messages import Message
from protocols.policy.guard import Guard, find
from protocols.policy.guards import Clip, Quantise
from protocols.wire.codec import as_array

__all__ = ["FOUND", "MatchLayout", "found_message", "planned_found"]

TAIL = 40.0
"""How many scales of its noise a number of an honest vector stays within, but with e^-40."""
FOUND = "found"
"""Dimension of what a client is told of others; the plan sizes it."""


def planned_found(chain: Sequence[Guard], dims: Mapping[str, int]) -> dict[str, int]:
    """Return the plan's dimension `FOUND`, where an algorithm has ``items`` and a policy matches.

    Args:
        chain: of MATCH.
        dims: of the algorithm.
    """
    if "items" not in dims or not chain:
        return {}
    match = find(tuple(chain), "match")
    return {FOUND: match.found(dims["items"]) if isinstance(match, Match) else dims["items"]}


class MatchLayout:
    """Where a matched message's fields stand.

    Args:
        kind: the message type, see the file's head; the policy admitted it.
        chain: the policy's guards of MATCH.
        dims: sizes of named dimensions.

    Attributes:
        catalogue: how many places the public list has.
        length: d, entries of the vector.
        grid: on which the vector is rounded; None in the form `published`, whose noise has its own.
        step: of the grid, in the unit of the vector.
        levels: steps to the bound.
        widest: steps that no number of an honest vector exceeds, its noise included, but with a
            chance of `e**-TAIL`; without noise the bound's.
        columns: the two fields, as plans print them.
    """

    def __init__(
        self, kind: type[Message], chain: tuple[Guard, ...], dims: Mapping[str, int]
    ) -> None:
        clip, quantise, noise = (find(chain, name) for name in ("clip", "quantise", "laplace"))
        grid = isinstance(quantise, Quantise)
        if not isinstance(clip, Clip) or grid is (noise is not None):  # the policy checks it too
            raise ValueError("a MATCH chain needs clip, and quantise or laplace")
        (key,) = (field for field in kind.fields if field.key)
        (real,) = (field for field in kind.fields if not field.key)
        self.kind, self.clip, self._noise = kind, clip, noise
        self.grid = Grid(clip.bound, quantise.bits) if isinstance(quantise, Quantise) else None
        self.step = self.grid.step if self.grid else clip.bound / LEVELS
        self.levels = self.grid.levels if self.grid else LEVELS
        self.widest = self.levels + _tail(noise, clip.bound)
        self._key = Column(kind.__name__, key, key.sizes(dims), None)
        self._real = Column(kind.__name__, real, real.sizes(dims), self.grid)
        self.columns = [self._key, self._real]
        self.catalogue, self.length = self._key.entries, self._real.entries

    def encode(self, message: Message, stream: Stream) -> tuple[list[int], NDArray[np.int64], bool]:
        """Return which places a client holds, its integers, (d,), and whether it was clipped.

        Args:
            message: of this layout's type.
            stream: decides the rounding; of noise it decides nothing (O15).

        Raises:
            UnfitMessage: wrong shape, NaN or Inf, or keys that are not places of the list.
        """
        keys = self._array(message, self._key)
        numbers = np.arange(1, self.catalogue + 1)
        if keys.dtype.kind not in "iu" or not bool(np.all((keys == numbers) | (keys == 0))):
            raise UnfitMessage(
                f"{self._key.message}.{self._key.field.name} holds other numbers than 1 + its "
                "places, or 0.",
                fix="correct what the algorithm's answer returns; nothing was sent",
            )
        values = self._array(message, self._real)
        if values.dtype.kind not in "fiu" or not bool(np.all(np.isfinite(values))):
            raise UnfitMessage(
                f"{self._real.message}.{self._real.field.name} holds NaN or Inf, or no numbers.",
                why="training diverged, or the data holds such values",
                fix="lower the learning rate; nothing was sent",
            )
        bounded, clipped = self._clipped(values.astype(np.float64).ravel())
        steps = (
            self.grid.quantise(bounded, stream)
            if self.grid
            else noised_steps(bounded, self.clip.bound, self._noise)
        )
        return np.flatnonzero(keys).tolist(), steps, clipped

    def _array(self, message: Message, column: Column) -> NDArray[np.generic]:
        name = f"{column.message}.{column.field.name}"
        found = as_array(getattr(message, column.field.name), name)
        if found.shape != column.shape:
            raise UnfitMessage(
                f"{name} does not have the planned shape {column.shape}.",
                fix="plan again with this model and data",
            )
        return found

    def _clipped(self, values: NDArray[np.float64]) -> tuple[NDArray[np.float64], bool]:
        bound = self.clip.bound
        largest = float(np.max(np.abs(values), initial=0.0))
        if self.clip.norm == "l2" and largest > 0.0:
            norm = largest * float(np.linalg.norm(values / largest))  # no overflow
            return (values * (bound / norm), True) if norm > bound else (values, False)
        return np.clip(values, -bound, bound), largest > bound


def _tail(noise: Guard | None, bound: float) -> int:
    """Return how many steps an honest draw stays within."""
    if not isinstance(noise, Laplace):
        return 0
    scale = noise.scale * (bound if noise.how == "dynamic" else 1.0)  # a mean is within the bound
    return ceil(TAIL * max(scale * LEVELS / bound, MIN_SCALE))


def found_message(
    kind: type[Message],
    dims: Mapping[str, int],
    found: Iterable[tuple[int, NDArray[np.float64]]],
) -> Message:
    """Return what was found as the message that an algorithm's answer is given.

    Args:
        kind: with the field ``row`` and one real field.
        dims: sizes of named dimensions.
        found: places of the public list, each with a vector, (d,).

    Raises:
        UnfitMessage: the message has fewer places than there are vectors.
    """
    (row,) = (field for field in kind.fields if field.wire == "u8")
    (real,) = (field for field in kind.fields if field is not row)
    places, shape, found = row.sizes(dims)[0], real.sizes(dims), list(found)
    if len(found) > places:
        raise UnfitMessage(
            f"{kind.__name__} has {places} places, and more was found.",
            fix="plan at least as many places as the policy's cap",
        )
    numbers, vectors = np.zeros(places, dtype=np.int64), np.zeros(shape)
    for place, (item, vector) in enumerate(found):
        numbers[place], vectors[place] = 1 + item, vector.reshape(shape[1:])
    return kind(**{row.name: numbers, real.name: vectors})
