"""Mixing: one sparse product takes a client's records to what may be seen of them (O22)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crypto.samplers import Stream, entropy
from protocols.disclosures.mixed.layout import (
    MixLayout,
    Numbers,
    Reals,
    alone,
    draw,
    incidence,
    standing,
)
from protocols.errors import UnfitMessage
from protocols.messages import Message, unmixed_of
from protocols.unready import Unmixed
from protocols.wire.codec import as_array

Facts = dict[str, dict[str, int]]
"""What the client's ledger is to say, by kind of entry."""


@dataclass(frozen=True)
class _Records:
    """A client's records after all checks.

    Attributes:
        rows: (N, D), clipped.
        index: (members, P).
        label: (members,), or None.
        clipped: whether clipping changed a row.
    """

    rows: Reals
    index: Numbers
    label: Numbers | None
    clipped: bool

    @property
    def digest(self) -> str:
        """SHA-256 (hex) over who stands where with which label."""
        parts = [np.array([len(self.rows), *self.index.shape]), self.index]
        said = hashlib.sha256(b"secure-fgl/members\0")
        for part in (*parts, *(() if self.label is None else (self.label,))):
            said.update(np.ascontiguousarray(part, dtype="<i8").tobytes())
        return said.hexdigest()


class Mixer:
    """Mixes one client's records in one run, always in the same groups.

    Who is in which group is drawn at the first release and kept with the session's state; it is
    said to nobody. So are labels' rounding and noise: labels never change, so those drawn anew in
    each round would average out. A client whose records are too few for the floor sends no mixture
    in the whole run: its bodies hold zeros, and its ledger says so. So it does of a mixture whose
    records became the same: that one stays away until they differ again, see
    `protocols.disclosures.mixed.layout.standing`.

    The receiver sees how many mixtures came, to within a bucket, and so that a model does not tell
    some records of this client apart.
    """

    def __init__(self) -> None:
        self._members = ""  # digest of who stood where in the first release
        self._groups: Numbers | None = None  # of each member; None: nothing may leave
        self._labels: NDArray[Any] | None = None  # of each group, as they leave
        self._drawn: Numbers | None = None  # of each row then, the first that was the same
        self._left: Numbers | None = None  # of each member, in the latest release

    @property
    def groups(self) -> Numbers | None:
        """The group of each member in the latest release, (members,); -1: it was withheld.

        None before groups were drawn, or if nothing leaves. A secret of the client: it goes into
        its own state and captures, and nowhere else.
        """
        return self._left

    def mixed(self, message: Message, layout: MixLayout, seed: bytes) -> tuple[bytes, bool, Facts]:
        """Return a body of mixtures, whether a record was clipped, and what the ledger is to say.

        Args:
            message: records, by `MixedMessage.unmixed`.
            layout: of the message under the policy.
            seed: of what no privacy claim rests on: the rounding without noise, and all under an
                Unsafe chain.

        Raises:
            UnfitMessage: the records are not what the message declares, or are not those of earlier
                rounds.
        """
        noise = Stream(entropy(32))
        rounding = Stream(entropy(32) if layout.blur is not None else seed)
        records = unmixed_of(message)
        if records is None:
            return layout.encode(layout.ready(message), noise, rounding), False, {}
        kept = _checked(records, layout)
        same = _identities(kept.rows, layout)
        told = self._held(kept, same, layout, rounding)
        self._left, withheld = self._leaving(kept, same, layout)
        if withheld:
            told["withheld"] = {"mixtures": withheld}
        if self._left is None or self._left.max() < 0:
            return layout.encode(layout.nothing(), noise, rounding), kept.clipped, told
        found = _means(kept, same, self._left, layout)
        labels = self._said(found, self._left, layout)
        return layout.encode(found, noise, rounding, labels), kept.clipped, told

    def _said(
        self, found: Mapping[str, NDArray[Any]], left: Numbers, layout: MixLayout
    ) -> NDArray[Any] | None:
        """Return labels of the mixtures that leave, as in the first release, when all do."""
        if self._labels is None and layout.mix is not None:
            self._labels = layout.labels(found, Stream(entropy(32)))
        if self._labels is None or self._groups is None:
            return None
        _, first = np.unique(left[left >= 0], return_index=True)
        return self._labels[self._groups[left >= 0][first]]

    def _held(self, kept: _Records, same: Numbers, layout: MixLayout, seeded: Stream) -> Facts:
        """Draw the groups of the run, if this is its first release; return facts if so."""
        mix, members = layout.mix, kept.digest
        if members == self._members:
            return {}
        if self._members and mix is not None:
            raise UnfitMessage(
                f"{layout.kind.__name__} has other members, positions or labels than before.",
                why="two mixtures that differ by one record tell that record",
                fix="keep members and labels for the whole run and change only the table; "
                "nothing was sent",
            )
        stream, placed = Stream(entropy(32)) if mix is not None else seeded, same[kept.index]
        groups = draw(placed, layout.size, layout.most, mix, stream)
        self._members, self._groups, self._drawn = members, groups, same
        if mix is None:
            return {}
        if groups is None:
            return {"mix": {"floor": mix.floor, "mixtures": 0, "alone": 0}}
        facts = {"floor": mix.floor, "mixtures": int(groups.max()) + 1}
        found = alone(placed, groups, stream)
        return {"mix": facts if found is None else {**facts, "alone": found}}

    def _leaving(
        self, kept: _Records, same: Numbers, layout: MixLayout
    ) -> tuple[Numbers | None, int]:
        """Return the group of each member that may leave by now, and how many are withheld."""
        groups, drawn = self._groups, self._drawn
        if groups is None or drawn is None or layout.mix is None:
            return groups, 0
        left = standing(same[kept.index], drawn[kept.index], groups, layout.mix)
        return left, int(groups.max() - left.max())


def remixed(message: Message, layout: MixLayout, groups: Numbers) -> Mapping[str, NDArray[Any]]:
    """Return by field, for an audit at the client itself, its mixtures before they were rounded.

    Args:
        message: the answer, computed again.
        layout: of the message under the policy.
        groups: of each member, as captured; -1: its mixture was withheld.

    Raises:
        UnfitMessage: these are no records, or not as many members as were in groups.
    """
    records = unmixed_of(message)
    if records is None:
        return layout.ready(message)
    kept = _checked(records, layout)
    _require(groups.shape == (len(kept.index),), "Other members were in groups than are here.")
    if groups.max(initial=-1) < 0:
        return layout.nothing()
    return _means(kept, _identities(kept.rows, layout), groups, layout)


def _means(
    kept: _Records, same: Numbers, groups: Numbers, layout: MixLayout
) -> Mapping[str, NDArray[Any]]:
    """Return by field the mean over each cell's records, and over each group's labels.

    Args:
        kept: the client's records.
        same: (N,), of each row the first that is the same record.
        groups: (members,), of each member; -1: it stays away.
        layout: of the message.
    """
    from scipy.sparse import csr_array

    count, positions, there = int(groups.max()) + 1, layout.positions, groups >= 0
    groups = groups[there]
    cell, record = incidence(same[kept.index[there]], groups)
    sizes = np.bincount(cell, minlength=count * positions)
    if layout.mix is not None and sizes.min() < layout.mix.floor:
        raise UnfitMessage(
            f"{layout.kind.__name__}: a mixture holds fewer records than the policy's floor.",
            why="it ought to have been withheld: the mixing is broken",
            fix="report it; nothing was sent",
        )
    starts = np.concatenate([[0], np.cumsum(sizes)])
    shape = (count * positions, len(kept.rows))
    means = csr_array((1.0 / sizes[cell], record, starts), shape=shape) @ kept.rows
    found: dict[str, NDArray[Any]] = {}
    for column in layout.columns:
        inner = (count, *column.shape[1:])
        if not column.field.label:
            found[column.field.name] = means.reshape(inner)
        elif kept.label is not None:
            places = groups * layout.classes + kept.label[there]
            tally = np.bincount(places, minlength=count * layout.classes).reshape(inner)
            found[column.field.name] = tally / np.bincount(groups, minlength=count)[:, None]
    return found


def _identities(rows: Reals, layout: MixLayout) -> Numbers:
    """Return of each row, (N,), the first that is the same record.

    Rows that are one point of the grid are one record, whatever the index calls them.
    """
    if layout.features_grid is None or not len(rows):
        return np.arange(len(rows))
    levels = np.rint(rows / layout.features_grid.step).astype(np.int32)
    points = np.ascontiguousarray(levels).view(np.dtype((np.void, levels.shape[1] * 4)))
    _, first, same = np.unique(points.ravel(), return_index=True, return_inverse=True)
    found: Numbers = first[same.ravel()].astype(np.int64)
    return found


def _checked(records: Unmixed, layout: MixLayout) -> _Records:
    """Return a client's records, clipped; raises UnfitMessage."""
    name = layout.kind.__name__
    table = as_array(records.table, f"{name}: the table")
    index = as_array(records.index, f"{name}: the index")
    _require(
        table.ndim == 2 and table.shape[1] == layout.width and table.dtype.kind in "fiu",
        f"{name}: the table is not one row of {layout.width} real numbers a record.",
    )
    _require(
        bool(np.all(np.isfinite(table))), f"{name}: the table holds NaN or Inf; nothing was sent."
    )
    _require(
        index.ndim == 2 and index.shape[1] == layout.positions and index.dtype.kind in "iu",
        f"{name}: the index is not one row of {layout.positions} whole numbers a member.",
    )
    _require(
        int(index.min(initial=0)) >= 0 and int(index.max(initial=-1)) < len(table),
        f"{name}: the index names a record that the table does not hold.",
    )
    members = index.astype(np.int64)
    _require(
        np.unique(members[:, 0]).size == len(members),
        f"{name}: a record is the centre of two members; it would count twice.",
    )
    rows, clipped = _clipped(table.astype(np.float64), layout)
    return _Records(rows, members, _labels(records, layout, len(members)), clipped)


def _labels(records: Unmixed, layout: MixLayout, members: int) -> Numbers | None:
    name = layout.kind.__name__
    _require(
        (records.label is not None) == layout.labelled,
        f"{name}: labels are given and not declared, or the other way round.",
    )
    if records.label is None:
        return None
    label = as_array(records.label, f"{name}: the labels")
    _require(
        label.shape == (members,) and label.dtype.kind in "iu",
        f"{name}: the labels are not one class number a member.",
    )
    _require(
        int(label.min(initial=0)) >= 0 and int(label.max(initial=-1)) < layout.classes,
        f"{name}: a label is not a class of the plan.",
    )
    return label.astype(np.int64)


def _clipped(rows: Reals, layout: MixLayout) -> tuple[Reals, bool]:
    """Return rows of L2 norm at most the chain's bound, and whether one was longer."""
    if layout.clip is None:
        return rows, False
    largest = np.maximum(np.abs(rows).max(axis=1, keepdims=True, initial=0.0), 1e-300)
    lengths = largest * np.linalg.norm(rows / largest, axis=1, keepdims=True)  # no overflow
    long = lengths > layout.clip.bound
    if not long.any():
        return rows, False
    return np.where(long, rows * (layout.clip.bound / np.maximum(lengths, 1e-300)), rows), True


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise UnfitMessage(what, fix="correct what the algorithm's answer returns")
