"""How a MIXED message stands in a body: a number of mixtures, then every field, padded to the plan.

Protected, entries are levels of a grid, as small as they come; under an Unsafe chain the fields
stand as they are. Places beyond the number of mixtures hold zeros.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crypto.noise import DiscreteGaussian, sampler
from crypto.quantiser import Grid
from crypto.samplers import Stream
from protocols.disclosures.mixed.guards import Blur, Mix
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.layout import Column
from protocols.errors import BadEnvelope, UnfitMessage
from protocols.forms import Form
from protocols.messages import Field, Message, MixedMessage
from protocols.policy.guard import Guard, find
from protocols.policy.guards import Clip
from protocols.wire.codec import WIRE_DTYPE

Reals = NDArray[np.float64]

COUNT = struct.Struct("<Q")  # of mixtures, before the fields
_WORD_BITS = 16  # levels of so many bits stand in two bytes


def mixed_fields(kind: type[Message]) -> tuple[Field, Field | None]:
    """Return the field of features and that of labels, if there is one.

    Raises:
        ValueError: the message does not declare what can be mixed.
    """
    labels = [field for field in kind.fields if field.label]
    features = [field for field in kind.fields if not field.label]
    real = all(field.wire in ("f4", "f8") for field in kind.fields)
    first = all(field.shape[:1] == ("mixtures",) for field in kind.fields)
    if not (real and first and len(features) == 1 and len(labels) <= 1):
        raise ValueError(
            f"{kind.__name__} needs one real field of features and may have one of labels, both "
            "with 'mixtures' as their first dimension"
        )
    if len(features[0].shape) not in (2, 3) or any(len(field.shape) != 2 for field in labels):
        raise ValueError(
            f"{kind.__name__}: features are (mixtures, positions, width) or (mixtures, width), "
            "labels (mixtures, classes)"
        )
    return features[0], labels[0] if labels else None


def group_size(chain: Sequence[Guard], dims: Mapping[str, int]) -> int:
    """Return how many members a mixture has at least: what the algorithm wants, or the floor."""
    mix = find(tuple(chain), "mix")
    return max(dims.get("group", 1), mix.floor if isinstance(mix, Mix) else 1)


def whole(count: int, bucket: int) -> int:
    """Return the largest number of mixtures up to `count` that tells no more than a bucket.

    A multiple of the bucket; below one bucket a power of two, and at least 1.
    """
    if count >= bucket:
        return count - count % bucket
    return 1 << max(count.bit_length() - 1, 0)


def planned_mixtures(
    form: Form[Any], chain: Sequence[Guard], dims: Mapping[str, int], records: int
) -> dict[str, int]:
    """Return the plan's dimension ``mixtures``, where a form mixes and its algorithm names none.

    Args:
        form: the admitted form.
        chain: of MIXED.
        dims: of the algorithm.
        records: public bound of one client's training records.
    """
    if "mixtures" in dims or all(k.disclosure is not Disclosure.MIXED for k in form.messages()):
        return {}
    mix = find(tuple(chain), "mix")
    bucket = mix.bucket if isinstance(mix, Mix) else 1
    return {"mixtures": whole(records // group_size(chain, dims), bucket)}


class MixLayout:
    """Where the fields of one MIXED message stand.

    Args:
        kind: the message type.
        chain: the policy's guards.
        dims: sizes of named dimensions, ``mixtures`` among them.

    Raises:
        ValueError: the message cannot be mixed, or there is no room for one mixture.

    Attributes:
        mix, clip, blur: guards of the chain; None under an Unsafe chain.
        most: mixtures that there is room for.
        positions, width, classes: of one mixture; 0 classes where no labels are said.
        size: members that a mixture has at least.
    """

    def __init__(
        self, kind: type[Message], chain: tuple[Guard, ...], dims: Mapping[str, int]
    ) -> None:
        features, label = mixed_fields(kind)
        mix, clip, blur = (find(chain, name) for name in ("mix", "clip", "blur"))
        self.mix = mix if isinstance(mix, Mix) else None
        self.clip = clip if isinstance(clip, Clip) else None
        self.blur = blur if isinstance(blur, Blur) else None
        self.kind, self.labelled = kind, label is not None
        self.most, *inner = features.sizes(dims)
        if self.most < 1:
            raise ValueError(f"{kind.__name__}: the plan has no room for a mixture")
        self.positions, self.width = (1, *inner)[-2:]
        self.classes = label.sizes(dims)[1] if label is not None else 0
        self.size = group_size(chain, dims)
        self.columns = [
            Column(kind.__name__, field, field.sizes(dims), self._grid(field))
            for field in kind.fields
        ]

    def _grid(self, field: Field) -> Grid | None:
        if self.mix is None or self.clip is None:
            return None
        return Grid(1.0 if field.label else self.clip.bound, self.mix.bits)

    @property
    def features_grid(self) -> Grid | None:
        """The grid of features; None under an Unsafe chain."""
        return next(column.grid for column in self.columns if not column.field.label)

    @property
    def bucket(self) -> int:
        """The number of mixtures is a whole number of so many."""
        return self.mix.bucket if self.mix is not None else 1

    def _wire(self, column: Column) -> np.dtype[Any]:
        if self.mix is None:
            return np.dtype(WIRE_DTYPE[column.field.wire])
        return np.dtype("<i2" if self.mix.bits <= _WORD_BITS and self.blur is None else "<i4")

    @property
    def parts(self) -> tuple[int, ...]:
        """Bytes that one mixture takes of each field."""
        each = ((c.entries // self.most, self._wire(c).itemsize) for c in self.columns)
        return tuple(entries * size for entries, size in each)

    @property
    def body_bytes(self) -> int:
        """Size of every body."""
        return COUNT.size + self.most * sum(self.parts)

    def encode(
        self,
        found: Mapping[str, NDArray[Any]],
        noise: Stream,
        rounding: Stream,
        labels: NDArray[Any] | None = None,
    ) -> bytes:
        """Return the body of these mixtures.

        Args:
            found: by field, (mixtures, ...), each mixture within the grid.
            noise: what is added comes from here, if the chain says so.
            rounding: decides the rounding.
            labels: (mixtures, classes), what `labels` returned; None: drawn now.

        Raises:
            UnfitMessage: a value does not fit the wire.
        """
        count, parts = 0, []
        for column in self.columns:
            given = np.asarray(found[column.field.name])
            count = len(given)
            if labels is not None and column.field.label:
                values: NDArray[Any] = labels.ravel()
            else:
                values = self._levels(column, given, noise, rounding)
            padded = np.zeros(column.entries, dtype=self._wire(column))
            with np.errstate(over="ignore"):  # Inf is refused below
                padded[: values.size] = values
            if not np.all(np.isfinite(padded)):
                raise UnfitMessage(f"{self.kind.__name__} holds values too large to be sent.")
            parts.append(padded.tobytes())
        return COUNT.pack(count) + b"".join(parts)

    def labels(self, found: Mapping[str, NDArray[Any]], chance: Stream) -> NDArray[Any] | None:
        """Return mixtures' labels as they leave, (mixtures, classes); None if none are said."""
        for column in self.columns:
            if column.field.label:
                given = np.asarray(found[column.field.name])
                return self._levels(column, given, chance, chance).reshape(given.shape)
        return None

    def _levels(
        self, column: Column, given: NDArray[Any], noise: Stream, rounding: Stream
    ) -> NDArray[Any]:
        """Return a field's entries as they leave: levels with their noise, or the values."""
        values: NDArray[Any] = np.asarray(given, dtype=np.float64).ravel()
        if column.grid is not None:
            bound = column.grid.bound
            values = column.grid.quantise(np.clip(values, -bound, bound), rounding)
        if self.blur is not None and self.mix is not None:
            law = sampler(DiscreteGaussian, self.blur.steps(self.mix))
            values = values + law.sample(noise, values.size)
        return values

    def decode(self, data: bytes) -> Message:
        """Return the mixtures of a body, without its padding.

        Raises:
            BadEnvelope: no mixtures of this layout.
        """
        if len(data) != self.body_bytes:
            raise BadEnvelope("A message does not have the planned length.")
        (count,) = COUNT.unpack_from(data)
        if count > self.most:
            raise BadEnvelope("A client's number of mixtures is not one that was planned.")
        place, values = COUNT.size, {}
        for column in self.columns:
            wire = self._wire(column)
            flat = np.frombuffer(data, dtype=wire, count=column.entries, offset=place)
            place += flat.nbytes
            used = count * (column.entries // self.most)
            if np.any(flat[used:]):
                raise BadEnvelope("There is something behind a client's mixtures.")
            shape = (count, *column.shape[1:])
            values[column.field.name] = self._restored(column, flat[:used]).reshape(shape)
        return self.kind(**values)

    def _restored(self, column: Column, flat: NDArray[Any]) -> NDArray[Any]:
        if column.grid is None:
            if not np.all(np.isfinite(flat)):
                raise BadEnvelope("A message holds NaN or Inf.")
            return flat
        top = column.grid.levels
        if self.blur is not None and self.mix is not None:
            top += sampler(DiscreteGaussian, self.blur.steps(self.mix)).largest
        levels = flat.astype(np.int64)
        if np.any(np.abs(levels) > top):
            raise BadEnvelope("A mixture lies outside its grid.")
        if column.field.label and self.blur is None:
            rows = levels.reshape(-1, self.classes)  # each entry was rounded by less than a step
            if np.any(rows < 0) or np.any(np.abs(rows.sum(axis=1) - top) >= self.classes):
                raise BadEnvelope("A mixture's labels are no shares.")
        return column.grid.restore(levels).astype(WIRE_DTYPE[column.field.wire])

    def nothing(self) -> dict[str, NDArray[Any]]:
        """Return the fields of no mixture at all."""
        return {c.field.name: np.zeros((0, *c.shape[1:])) for c in self.columns}

    def ready(self, message: Message) -> dict[str, NDArray[Any]]:
        """Return the fields of a message that holds mixtures already: under an Unsafe chain only.

        Raises:
            UnfitMessage: the chain mixes, or a field is not of a planned shape, or not finite.
        """
        name = self.kind.__name__
        if self.mix is not None or not isinstance(message, MixedMessage):
            raise UnfitMessage(
                f"{name} was not mixed by the gateway.",
                why="its fields were set by the algorithm, and may be single records",
                fix=f"return {name}.unmixed(...) from the answer; nothing was sent",
            )
        found = {}
        for column in self.columns:
            value = np.asarray(getattr(message, column.field.name))
            rows = len(value) if value.ndim else 0
            if value.shape[1:] != column.shape[1:] or rows > self.most:
                raise UnfitMessage(f"{name}.{column.field.name} does not have the planned shape.")
            if value.dtype.kind not in "fiu" or not np.all(np.isfinite(value)):
                raise UnfitMessage(f"{name}.{column.field.name} is not finite.")
            found[column.field.name] = value
        if len({len(value) for value in found.values()}) != 1:
            raise UnfitMessage(f"{name} has not as many labels as mixtures.")
        return found
