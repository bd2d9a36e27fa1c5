"""Where mixed records stand in a message, how groups of them are drawn, and their boxes."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crypto.hpke import SEAL_OVERHEAD, SealingKey
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

# How a MIXED message stands in a body: a number of mixtures, then every field, padded to the plan.
#
# Protected, entries are levels of a grid, as small as they come; under an Unsafe chain the fields
# stand as they are. Places beyond the number of mixtures hold zeros.

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


# Who stands in which mixture: drawn once, so that no two mixtures tell a single record (O15, O22).
#
# A member is one row of records, its centre first. Every member is in one group; the mixture of a
# group has, at each position, the mean over the distinct records that its members bring there. So a
# record counts once, however many members share it: an isolated node that repeats itself makes no
# crowd, and a hub is not half of a mixture.

Numbers = NDArray[np.int64]

_DEALS = 3  # before groups become fewer


def incidence(records: Numbers, groups: Numbers) -> tuple[Numbers, Numbers]:
    """Return who stands where: (cell, record) pairs, each once, in ascending order.

    Args:
        records: (members, P), numbers of records.
        groups: (members,), the group of each.

    Returns:
        Two vectors. A cell is group times P plus position.
    """
    positions, width = records.shape[1], int(records.max()) + 1
    cells = groups[:, None] * positions + np.arange(positions)
    pairs = np.unique(cells * width + records)
    return pairs // width, pairs % width


def draw(records: Numbers, size: int, most: int, mix: Mix | None, stream: Stream) -> Numbers | None:
    """Return each member's group, (members,), numbered from 0; None if nothing may leave.

    Members are dealt at random into as many groups as give each `size` of them; nobody is left
    over. If a position of a group has fewer distinct records than the floor, or two mixtures would
    differ by too few, they are dealt again, at last into fewer and larger groups.

    Args:
        records: (members, P), numbers of records; equal records have equal numbers.
        size: members of a group, at least; if there are fewer in all, they are one group.
        most: groups, at most.
        mix: what must hold; None: nothing.
        stream: from the operating system, where a privacy claim rests on it.

    Returns:
        None if not even one group of all members holds, or there are no members.
    """
    bucket = mix.bucket if mix is not None else 1
    count = whole(min(len(records) // size, most), bucket)
    while len(records):
        for _ in range(_DEALS):
            order = np.argsort(stream.words(len(records)), kind="stable")
            groups = np.empty(len(records), dtype=np.int64)
            groups[order] = np.arange(len(records)) * count // len(records)
            if mix is None or _hold(records, groups, mix):
                return groups
        if count == 1:
            break
        count = whole(count - 1, bucket)
    return None


def standing(records: Numbers, drawn: Numbers, groups: Numbers, mix: Mix) -> Numbers:
    """Return the groups whose mixtures may leave by now, numbered anew; -1: withheld.

    A model may send records to one point that differed when the groups were drawn. A mixture stays
    away while its positions do not hold just as many records as then: it would rest on too few of
    them, or the difference to another round's would tell those few that became the same. Neither
    may two mixtures differ by too few records by now. As many leave as tell a bucket.

    Args:
        records: (members, P), numbers of records as they are by now.
        drawn: (members, P), those that the groups were drawn with.
        groups: (members,), as drawn.
        mix: what must hold.
    """
    if np.array_equal(records, drawn):
        return groups
    there, changed = _there(records, groups), _changed(records, drawn, groups)
    kept: list[int] = []
    for group in np.flatnonzero(~changed).tolist():
        if not _near(there, group, [*kept, group], mix):
            kept.append(group)
    del kept[whole(len(kept), mix.bucket) :]
    number = np.full(changed.size, -1, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    return number[groups]


def _changed(records: Numbers, drawn: Numbers, groups: Numbers) -> NDArray[np.bool_]:
    """Tell of each group whether records at one of its positions became one, or no longer are."""
    _, both = np.unique(drawn * (int(records.max()) + 1) + records, return_inverse=True)
    shape = int(groups.max()) + 1, records.shape[1]
    before, now, joint = (
        np.bincount(incidence(numbers, groups)[0], minlength=shape[0] * shape[1]).reshape(shape)
        for numbers in (drawn, records, both.reshape(records.shape))
    )
    changed: NDArray[np.bool_] = ((before != joint) | (now != joint)).any(axis=1)
    return changed


def _hold(records: Numbers, groups: Numbers, mix: Mix) -> bool:
    """Tell whether all mixtures hold enough records, and no two differ by too few."""
    there, count = _there(records, groups), int(groups.max()) + 1
    if min(cells.sum(axis=1).min() for cells in there) < mix.floor:
        return False
    return not any(_near(there, group, range(group, count), mix) for group in range(count))


def _there(records: Numbers, groups: Numbers) -> list[Any]:
    """Return by group which record stands at which of its positions, sparse (P, records)."""
    from scipy.sparse import csr_array

    cell, record = incidence(records, groups)
    positions, count = records.shape[1], int(groups.max()) + 1
    shape = (count * positions, int(records.max()) + 1)
    there = csr_array((np.ones(cell.size, dtype=np.float32), (cell, record)), shape=shape)
    return [there[group * positions : (group + 1) * positions] for group in range(count)]


def _near(there: Sequence[Any], group: int, others: Sequence[int], mix: Mix) -> bool:
    """Tell whether a mixture of a group differs by too few records from one of others'."""
    from scipy.sparse import vstack

    own, rest = there[group], vstack([there[other] for other in others], format="csr")
    differ = own.sum(axis=1)[:, None] + rest.sum(axis=1) - 2 * (own @ rest.T).toarray()
    return bool(np.any((differ > 0) & (differ < mix.apart)))


# How many records a client's mixtures give away once it is known who is in which group (O22).
#
# Each position of each group is one equation over the client's records. A record is determined
# where some combination of equations holds it alone. Comparing the number of equations with that of
# records does not tell: a few neighbours that stand in many mixtures are determined long before all
# are.

LARGEST = 4096
"""With more equations and more records than this it is not computed: it would take seconds."""

_PROBES = 3
_ROUNDS = 6
_BLOCK = 512  # rows of a dense matrix that are filled at a time
_RIDGE = 1e-13  # above what rounding does to a Cholesky factor, far below squared singular values
_NOTHING = 1e-6


def alone(records: Numbers, groups: Numbers, chance: Stream) -> int | None:
    """Return how many records are determined by the mixtures of one round.

    A record is if every solution of "all mixtures are zero" is zero at it. So a few random vectors
    are projected onto these solutions: by repeated ridge regression, which needs one Cholesky
    factor of the smaller side and, unlike a rank, no threshold near rounding.

    Args:
        records: (members, P), numbers of records.
        groups: (members,), the group of each.
        chance: of the vectors.

    Returns:
        The number, rounded down to a power of two, so that it is no exact count of data; None
        where equations and records are both more than `LARGEST`.
    """
    from scipy.linalg import cho_factor, cho_solve
    from scipy.sparse import csr_array

    cell, record = incidence(records, groups)
    named, local = np.unique(record, return_inverse=True)
    shape = (int(cell[-1]) + 1, named.size)
    if min(shape) > LARGEST:
        return None
    there = csr_array((np.ones(cell.size), (cell, local.ravel())), shape=shape)
    wide = shape[0] <= shape[1]
    gram = _gram(there if wide else there.T.tocsr())
    ridge = _RIDGE * len(gram) * float(gram.sum(axis=1).max())
    gram[np.diag_indices(len(gram))] += ridge
    factor = cho_factor(gram, overwrite_a=True, check_finite=False)
    left = chance.words(named.size * _PROBES).astype(np.float64).reshape(-1, _PROBES) / 2**63 - 1
    for _ in range(_ROUNDS):
        if wide:
            shown = np.asarray(there @ left)
            left = left - there.T @ np.asarray(cho_solve(factor, shown))
        else:
            left = ridge * np.asarray(cho_solve(factor, left))
    found = int(np.sum(np.abs(left).max(axis=1) < _NOTHING))
    return 1 << (found.bit_length() - 1) if found else 0


def _gram(rows: Any) -> NDArray[np.float64]:
    """Return the inner products of all pairs of sparse rows, dense."""
    count = rows.shape[0]
    found = np.empty((count, count))
    for start in range(0, count, _BLOCK):
        found[start : start + _BLOCK] = (rows[start : start + _BLOCK] @ rows.T).toarray()
    return found


# Mixtures in boxes: every place of a body sealed alone, for a relay to take the sender off (O23).
#
# A box is HPKE to the aggregator over a flag and one mixture. A place without a mixture holds zeros
# and is sealed like all others, so neither the number nor the size of boxes tells how many mixtures
# a client has.

_EMPTY, _FILLED = b"\0", b"\1"


def mixture_box_bytes(layout: MixLayout) -> int:
    """Return the size of one box."""
    return len(_FILLED) + sum(layout.parts) + SEAL_OVERHEAD


def into_boxes(body: bytes, layout: MixLayout, key: SealingKey, info: bytes) -> bytes:
    """Return one box for each place of a body, sealed to `key`."""
    (count,) = COUNT.unpack_from(body)
    starts = COUNT.size + layout.most * np.cumsum([0, *layout.parts])
    boxes = []
    for place in range(layout.most):
        parts = [
            body[start + place * size : start + (place + 1) * size]
            for start, size in zip(starts, layout.parts, strict=False)
        ]
        flag = _FILLED if place < count else _EMPTY
        boxes.append(key.seal(info, b"".join((flag, *parts))))
    return b"".join(boxes)


def from_boxes(contents: Sequence[bytes], layout: MixLayout) -> bytes:
    """Return the body of one message that holds all mixtures of boxes, in the boxes' order.

    Args:
        contents: of a whole cohort's boxes.
        layout: with as many places as there are boxes.

    Raises:
        BadEnvelope: a box that holds no place.
    """
    filled = []
    for one in contents:
        flag, content = one[:1], one[1:]
        if flag == _FILLED:
            filled.append(content)
        elif flag != _EMPTY or any(content):
            raise BadEnvelope("A box holds neither a mixture nor padding.")
    columns, start = [], 0
    for size in layout.parts:
        held = b"".join(content[start : start + size] for content in filled)
        columns.append(held.ljust(layout.most * size, b"\0"))
        start += size
    return COUNT.pack(len(filled)) + b"".join(columns)
