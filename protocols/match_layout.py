"""What a client says under the guard ``match``: which items it holds, and one vector of integers.

A MATCH message has two fields. The key field is a public list, the catalogue with its most popular
items first: at each place 1 + that place where the client holds the item, 0 elsewhere. The real
field is the client's vector. Neither leaves: items become tags, and the vector becomes shares.
What comes back is a message of two fields, too: ``row``, 1 + the place that something was found
for (0: padding), and beside it vectors.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from crypto.quantiser import Grid
from crypto.samplers import Stream
from protocols.codec import as_array
from protocols.errors import UnfitMessage
from protocols.guards import Clip, Guard, Quantise, find
from protocols.messages import Message
from protocols.sums import Column

__all__ = ["MatchLayout", "found_message"]


class MatchLayout:
    """Where a matched message's fields stand.

    Args:
        kind: the message type, see the file's head; the policy admitted it.
        chain: the policy's guards of MATCH.
        dims: sizes of named dimensions.

    Attributes:
        catalogue: how many places the public list has.
        length: d, entries of the vector.
        grid: on which the vector is rounded.
        columns: the two fields, as plans print them.
    """

    def __init__(
        self, kind: type[Message], chain: tuple[Guard, ...], dims: Mapping[str, int]
    ) -> None:
        clip, quantise = find(chain, "clip"), find(chain, "quantise")
        if not isinstance(clip, Clip) or not isinstance(quantise, Quantise):
            raise ValueError("a MATCH chain needs clip and quantise")  # the policy checks it too
        (key,) = (field for field in kind.fields if field.key)
        (real,) = (field for field in kind.fields if not field.key)
        self.kind, self.clip, self.grid = kind, clip, Grid(clip.bound, quantise.bits)
        self._key = Column(kind.__name__, key, key.sizes(dims), None)
        self._real = Column(kind.__name__, real, real.sizes(dims), self.grid)
        self.columns = [self._key, self._real]
        self.catalogue, self.length = self._key.entries, self._real.entries

    def encode(self, message: Message, stream: Stream) -> tuple[list[int], NDArray[np.int64], bool]:
        """Return which places a client holds, its integers, (d,), and whether it was clipped.

        Args:
            message: of this layout's type.
            stream: decides the rounding.

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
        return np.flatnonzero(keys).tolist(), self.grid.quantise(bounded, stream), clipped

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


def found_message(
    kind: type[Message], dims: Mapping[str, int], found: Mapping[int, NDArray[np.float64]]
) -> Message:
    """Return what was found as the message that an algorithm's answer is given.

    Args:
        kind: with the field ``row`` and one real field.
        dims: sizes of named dimensions.
        found: by place of the public list, a vector, (d,).

    Raises:
        UnfitMessage: the message has fewer places than there are vectors.
    """
    (row,) = (field for field in kind.fields if field.wire == "u8")
    (real,) = (field for field in kind.fields if field is not row)
    places, shape = row.sizes(dims)[0], real.sizes(dims)
    if len(found) > places:
        raise UnfitMessage(
            f"{kind.__name__} has {places} places, and more was found.",
            fix="plan at least as many places as the policy's cap",
        )
    numbers, vectors = np.zeros(places, dtype=np.int64), np.zeros(shape)
    for place, (item, vector) in enumerate(sorted(found.items())):
        numbers[place], vectors[place] = 1 + item, vector.reshape(shape[1:])
    return kind(**{row.name: numbers, real.name: vectors})
