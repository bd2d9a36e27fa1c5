"""Where the numbers of a sum stand, on which grid, and in which ring they are added."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crypto.errors import OutOfRange
from crypto.homomorphic.he import Scheme
from crypto.masks import container
from crypto.quantiser import Grid, Packing, from_limbs, limbs
from crypto.samplers import Stream
from crypto.sum_check import check_words
from protocols.disclosures.sum.guards import encryption
from protocols.errors import UnfitMessage
from protocols.messages import Field, Message
from protocols.policy.admission import bounded
from protocols.policy.guard import Guard, find
from protocols.policy.guards import Clip, Quantise
from protocols.wire.codec import as_array

# How the integers of a sum stand in what is summed: residues mod t, packed under encryption.
#
# Encrypted: several integers share one coefficient mod t. Masks alone: one integer per residue mod
# 2^16, 2^32 or 2^64, whichever is the smallest that holds the cohort's total and its noise. In
# clear: the same residues without masks. Where clients compute the model from the total, the words
# of a check follow as residues of their own (`crypto.sum_check`).

Words = NDArray[np.unsignedinteger[Any]]
_WIDTHS = (16, 32, 64)


@dataclass(frozen=True)
class Ring:
    """Residues mod `modulus`, `size` of them, for `length` integers of `bits` bits.

    Attributes:
        length: integers of one client's vector.
        bits: width of one integer before noise.
        clients: how many vectors are summed at most.
        margin: head-room of a total on either side, for noise (O19).
        modulus: t.
        size: residues that are masked, encrypted and summed.
        packing: how integers share residues; None where each has one of its own.
        words: of a check, behind the integers' residues; 0 without one.
    """

    length: int
    bits: int
    clients: int
    margin: int
    modulus: int
    size: int
    packing: Packing | None = None
    words: int = 0

    @classmethod
    def of(
        cls,
        length: int,
        bits: int,
        clients: int,
        *,
        margin: int = 0,
        scheme: Scheme | None = None,
        checked: bool = False,
    ) -> Ring:
        """Return the ring for a sum, packed if it is encrypted.

        Raises:
            OutOfRange: the total and its noise do not fit.
        """
        needed = (clients * (2**bits - 1) + 2 * margin).bit_length()
        if scheme is not None:
            packing, modulus = (
                Packing(bits, clients, scheme.plain_bits, margin),
                scheme.plain_modulus,
            )
            words = check_words(modulus, needed) if checked else 0
            whole = -(-(packing.coefficients(length) + words) // scheme.degree) * scheme.degree
            return cls(length, bits, clients, margin, modulus, whole, packing, words)
        for width in _WIDTHS:
            if needed <= width:
                words = check_words(1 << width, needed) if checked else 0
                return cls(length, bits, clients, margin, 1 << width, length + words, None, words)
        raise OutOfRange("A total with its noise needs more than 64 bits; use fewer bits.")

    @property
    def total_bits(self) -> int:
        """Bits of the largest total above the smallest one."""
        most: int = self.clients * (2**self.bits - 1) + 2 * self.margin
        return most.bit_length()

    @property
    def wire_bytes(self) -> int:
        """Bytes of one client's residues on the wire, where they are not encrypted."""
        return self.size * container(self.modulus).itemsize

    @property
    def _used(self) -> int:
        """Residues of the integers."""
        return self.length if self.packing is None else self.packing.coefficients(self.length)

    def residues(self, integers: NDArray[np.int64], check: Words | None = None) -> Words:
        """Return one client's integers, shape (length,), as residues, shape (size,).

        Args:
            integers: of one client.
            check: its words, shape (words,); zeros if None.
        """
        if self.packing is None:
            # Two's complement: what is below zero becomes the residue of the same number.
            found: Words = integers.astype(container(self.modulus))
        else:
            given = integers if self.margin else integers.view(np.uint64)
            found = self.packing.pack(given, self.modulus)
        if found.size == self.size:
            return found
        whole = np.zeros(self.size, dtype=found.dtype)
        whole[: found.size] = found
        if check is not None:
            whole[found.size : found.size + self.words] = check
        return whole

    def check(self, total: Words) -> Words:
        """Return the words of a check that stand in summed residues, shape (words,)."""
        found = total[self._used : self._used + self.words]
        return found.astype(container(self.modulus), copy=False)

    def integers(self, total: Words) -> NDArray[np.int64]:
        """Return the totals, shape (length,), of summed residues.

        Raises:
            OutOfRange: this is not the sum of so many vectors: a mask or blind is still on it.
        """
        if total[self._used + self.words :].any():  # padding is zero: masks left on show here
            raise OutOfRange("This is not the total of the cohort that was asked.")
        total = total[: self._used]
        if self.packing is not None:
            words = total.astype(np.uint64, copy=False)
            return self.packing.unpack(words, self.length, self.modulus)
        kind = total.dtype.type
        lifted = total + kind(self.margin % self.modulus)  # wraps, as it should
        if np.any(lifted > kind(self.clients * (2**self.bits - 1) + 2 * self.margin)):
            raise OutOfRange("This is not the total of the cohort that was asked.")
        return lifted.astype(np.int64) - self.margin


# SUM messages as one vector of non-negative integers, and totals back as messages.
#
# All backends work on this vector and so give bit-equal totals. Real fields stand on a symmetric
# grid of `bits` bits (offset by its number of levels), exact counts in limbs of `bits` bits of
# their own that are never rounded.

COUNT_BITS = 32  # exact counts are below 2^32
_REDRAWS = 200  # each fails with probability at most exp(-1/2) by the choice of the limit


@dataclass(frozen=True)
class Column:
    """One field of one message type inside the vector."""

    message: str
    field: Field
    shape: tuple[int, ...]
    grid: Grid | None  # None: a count
    limbs: int = 1  # of an exact count; one number where noise is added, or of a grid
    noised: bool = False  # a count of single records, which gets noise

    @property
    def entries(self) -> int:
        """Number of values of this field."""
        return int(np.prod(self.shape, dtype=np.int64))


def _largest(values: NDArray[Any]) -> float:
    """Return the largest magnitude without a copy of them; NaN if there is one."""
    if not values.size:
        return 0.0
    # As Python's numbers: the smallest of numpy's integers has no negative in its own type.
    low, high = float(values.min()), float(values.max())
    return math.nan if math.isnan(low) else max(-low, high)


def _are_counts(values: NDArray[np.integer[Any]]) -> bool:
    return not values.size or (int(values.min()) >= 0 and int(values.max()) < 2**COUNT_BITS)


def _norm(values: NDArray[Any]) -> float:
    """Return the Euclidean norm without overflow for values up to the largest double."""
    largest = _largest(values)
    return largest * float(np.linalg.norm(values / largest)) if largest > 0 else 0.0


class SumLayout:
    """Where each field of a bundle of SUM messages stands in the integer vector.

    Args:
        kinds: the message types, in order.
        clip, quantise: the policy's guards.
        dims: sizes of named dimensions; a field's `scale` names the dimension by which its bound
            grows.
        counted: messages that say of every field by how much one record moves it get noise: each
            count is one number, cut off at 2^bits - 1.
    """

    def __init__(
        self,
        kinds: Sequence[type[Message]],
        clip: Clip,
        quantise: Quantise,
        dims: Mapping[str, int],
        *,
        counted: bool = False,
    ) -> None:
        self.kinds, self.clip, self.bits = tuple(kinds), clip, quantise.bits
        self.limb_count = -(-COUNT_BITS // self.bits)
        self.columns = [
            self._column(kind, field, dims, counted and bounded(kind))
            for kind in self.kinds
            for field in kind.fields
        ]
        widths = [c.entries * c.limbs for c in self.columns]
        ends = list(accumulate(widths, initial=0))
        self.length = ends[-1]
        self._places = [slice(*ends[place : place + 2]) for place in range(len(widths))]

    def _column(self, kind: type[Message], field: Field, dims: Any, noised: bool) -> Column:
        grid = self._grid(field, dims)
        facts = field.sizes(dims), grid, 1 if grid or noised else self.limb_count, noised
        return Column(kind.__name__, field, *facts)

    def noised(self) -> Iterator[tuple[Column, slice]]:
        """Yield the counts that get noise, and where they stand."""
        for column, place in zip(self.columns, self._places, strict=True):
            if column.noised:
                yield column, place

    def _grid(self, field: Field, dims: Mapping[str, int]) -> Grid | None:
        if field.wire == "u8":
            return None
        scale = dims[field.scale] if field.scale else 1
        return Grid(self.clip.bound * scale, self.bits)

    def encode(
        self, messages: Sequence[Message], stream: Stream, *, limit: float | None = None
    ) -> tuple[NDArray[np.int64], bool]:
        """Clip, round stochastically and lay out.

        Args:
            messages: one of each kind.
            stream: decides the rounding.
            limit: with noise, the largest Euclidean norm of the rounded levels: rounding is
                repeated until it holds (O14; Kairouz et al., ICML 2021, conditional rounding).

        Returns:
            The vector of shape (length,), every value in [0, 2^bits), and whether anything was
            clipped.

        Raises:
            UnfitMessage: wrong shape, NaN or Inf, or a count outside [0, 2^32).
        """
        by_name = {type(message).__name__: message for message in messages}
        given = [self._values(by_name[c.message], c) for c in self.columns]
        shrink = self._joint_shrink([values for values, _ in given])
        bounded, clipped = [], shrink < 1.0
        for column, (values, largest) in zip(self.columns, given, strict=True):
            kept = values
            if column.grid is not None:
                kept = values if shrink == 1.0 else values * shrink
                if largest * shrink > column.grid.bound:  # rounding keeps the order of products
                    kept, clipped = np.clip(kept, -column.grid.bound, column.grid.bound), True
            bounded.append(kept)
        whole = np.empty(self.length, dtype=np.int64)
        parts = [whole[place] for place in self._places]
        for _ in range(_REDRAWS):
            self._round(bounded, stream, parts)
            if limit is None or self._level_norm(parts) <= limit:
                return whole, clipped
        raise UnfitMessage("A vector could not be rounded within its norm; nothing was sent.")

    def _round(
        self,
        bounded: Sequence[NDArray[Any]],
        stream: Stream,
        parts: Sequence[NDArray[np.int64]],
    ) -> None:
        """Write every column's rounded levels, or its limbs, to its part of the vector."""
        for column, value, part in zip(self.columns, bounded, parts, strict=True):
            if column.noised:
                part[:] = np.minimum(value.astype(np.int64), 2**self.bits - 1)
            elif column.grid is None:
                part[:] = self._limbs(value)
            else:
                column.grid.lifted(value, stream, out=part.view(np.uint64))

    def _level_norm(self, parts: Sequence[NDArray[np.int64]]) -> float:
        """Return the joint norm in grid steps; the steps of all columns span the same bound."""
        centred = (
            (part - column.grid.levels).astype(np.float64)
            for column, part in zip(self.columns, parts, strict=True)
            if column.grid is not None
        )
        return math.hypot(*(float(np.linalg.norm(part)) for part in centred))

    def _values(self, message: Message, column: Column) -> tuple[NDArray[Any], float]:
        """Return a field as a vector, and its largest magnitude (0 for counts)."""
        name = f"{column.message}.{column.field.name}"
        given = as_array(getattr(message, column.field.name), name)
        if given.shape != column.shape:
            raise UnfitMessage(
                f"{name} does not have the planned shape {column.shape}.",
                fix="plan again with this model and data",
            )
        if column.grid is None:
            if given.dtype.kind not in "iu" or not _are_counts(given):
                raise UnfitMessage(f"{name} is not an exact count below 2^{COUNT_BITS}.")
            return given.ravel(), 0.0
        if given.dtype.kind not in "fiu":
            raise UnfitMessage(f"{name} is not a real number.")
        largest = _largest(given)
        if not math.isfinite(largest):
            raise UnfitMessage(
                f"{name} holds NaN or Inf.",
                why="training diverged, or the data holds such values",
                fix="lower the learning rate, or check the features; nothing was sent",
            )
        return np.asarray(given, dtype=np.float64).ravel(), largest  # only read from here on

    def _joint_shrink(self, values: Sequence[NDArray[Any]]) -> float:
        """Return the factor that brings the scaled joint L2 norm to the bound (``l2`` only)."""
        if self.clip.norm != "l2":
            return 1.0
        norms = [
            _norm(value) * (self.clip.bound / column.grid.bound)
            for column, value in zip(self.columns, values, strict=True)
            if column.grid is not None
        ]
        return min(1.0, self.clip.bound / max(math.hypot(*norms), 1e-300))

    def _limbs(self, counts: NDArray[Any]) -> NDArray[np.int64]:
        rows = [limbs(int(value), self.limb_count, self.bits) for value in counts]
        return np.asarray(rows, dtype=np.int64).ravel()

    def decode(
        self, totals: NDArray[np.int64], members: int, *, margin: int = 0
    ) -> dict[type[Message], Message]:
        """Return the cohort's totals as messages of the same types.

        Args:
            totals: (length,) sums of the clients' vectors.
            members: how many clients were summed.
            margin: by how much noise may carry a total out of range (O19).

        Raises:
            UnfitMessage: a total that this number of members cannot have.
        """
        top = members * (2**self.bits - 1) + margin
        if totals.shape != (self.length,) or np.any(totals > top) or np.any(totals < -margin):
            raise UnfitMessage("A total is larger than this cohort can produce.")
        found: dict[str, dict[str, Any]] = {kind.__name__: {} for kind in self.kinds}
        start = 0
        for column in self.columns:
            width = column.entries * column.limbs
            part = totals[start : start + width].astype(np.int64)
            start += width
            found[column.message][column.field.name] = self._restore(column, part, members)
        return {kind: kind(**found[kind.__name__]) for kind in self.kinds}

    def _restore(self, column: Column, part: NDArray[np.int64], members: int) -> Any:
        if column.noised:
            counts = np.maximum(part, 0).reshape(column.shape)  # no count is negative
            return counts if column.shape else int(counts)
        if column.grid is None:
            rows = part.reshape(-1, self.limb_count)
            try:
                exact = [from_limbs(row, self.bits) for row in rows.tolist()]
            except OutOfRange as error:
                raise UnfitMessage("A total of exact counts is out of range.") from error
            counts = np.asarray(exact, dtype=np.int64).reshape(column.shape)
            return counts if column.shape else int(counts)
        values = column.grid.restore(part - members * column.grid.levels).reshape(column.shape)
        return values if column.shape else float(values)


def sum_layout(
    kinds: Sequence[type[Message]], chain: tuple[Guard, ...], dims: Mapping[str, int]
) -> SumLayout:
    """Return the integer layout of a SUM bundle under the policy's chain."""
    clip, quantise = find(chain, "clip"), find(chain, "quantise")
    if not isinstance(clip, Clip) or not isinstance(quantise, Quantise):
        raise ValueError("a SUM chain needs clip and quantise")  # the policy checks it too
    return SumLayout(kinds, clip, quantise, dims, counted=bool(find(chain, "record_noise")))


def sum_ring(
    layout: SumLayout,
    chain: tuple[Guard, ...],
    clients: int,
    scheme: Scheme | None,
    margin: int,
    *,
    checked: bool = False,
) -> Ring:
    """Return how a SUM bundle's integers stand in what is summed.

    Args:
        layout: of the integers.
        chain: the policy's.
        clients: how many vectors are summed at most.
        scheme: of encryption, None without it.
        margin: head-room for noise, as planned.
        checked: whether the words of a check follow.

    Raises:
        OutOfRange: the cohort's total and its noise do not fit (O19).
    """
    encrypted = scheme if encryption(chain) else None
    summed = clients if encrypted or find(chain, "mask") else 1  # in clear nothing is added mod t
    facts = layout.length, layout.bits, summed
    return Ring.of(*facts, margin=margin, scheme=encrypted, checked=checked)
