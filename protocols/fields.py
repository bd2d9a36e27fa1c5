"""Fields of messages: shape, unit and meaning; what plans, checks and wire formats see of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from protocols.disclosures.names import Disclosure

__all__ = ["Field", "Told", "Wire", "blob", "bounded", "category", "count", "real"]

Wire = Literal["f4", "f8", "u8", "bytes"]
Told = Literal["", "category", "bounded"]


@dataclass(frozen=True)
class Field:
    """One field of a message, as plans and wire formats see it.

    Attributes:
        name: the attribute's name.
        shape: names of dimensions, or fixed sizes; empty for a scalar.
        wire: little-endian type on the wire: ``f4``, ``f8``, ``u8`` or ``bytes``.
        unit: unit of one entry.
        meaning: what one entry says.
        scale: dimension by which the magnitude may grow (``"records"`` for n_k-weighted sums).
        key: the field by which a MATCH message is compared.
        carried: in a MATCH message, the disclosure of a field that rides beside the key; the
            policy must name it too.
        label: in a MIXED message, whether it holds the mixed one-hot labels.
        held: whether each row is of something public, an item, and zero at clients without it.
        told: of a NOISED message, how one client's own noise tells it; empty: as a vector, with all
            others; ``category``: one place, drawn by weights; ``bounded``: a number in [0, 1].
        moves: by how much one record changes all its entries together at most; 0: unknown.
        training: whether its total is the number of records that clients train on.
    """

    name: str
    shape: tuple[str | int, ...]
    wire: Wire
    unit: str
    meaning: str
    scale: str | None = None
    key: bool = False
    carried: Disclosure | None = None
    label: bool = False
    held: bool = False
    told: Told = ""
    moves: int = 0
    training: bool = False

    def sizes(self, dims: Mapping[str, int]) -> tuple[int, ...]:
        """Return the concrete shape under `dims`; raises KeyError for an unknown dimension."""
        return tuple([dims[part] if isinstance(part, str) else part for part in self.shape])


def _field(**facts: Any) -> Any:
    return dataclasses.field(metadata={"field": facts})


def real(
    *shape: str | int,
    unit: str,
    meaning: str,
    scale: str | None = None,
    wire: Literal["f4", "f8"] = "f8",
    carried: Disclosure | None = None,
    label: bool = False,
    held: bool = False,
) -> Any:
    """Declare a real-valued field of the given shape (no shape: a scalar)."""
    facts = {"scale": scale, "wire": wire, "carried": carried, "label": label, "held": held}
    return _field(shape=shape, unit=unit, meaning=meaning, **facts)


def category(places: str | int, *, unit: str, meaning: str) -> Any:
    """Declare weights of k categories, (k,): a label histogram, or the items of a set.

    Under a client's own noise one place is drawn in proportion to them and told; whoever reads the
    message has an estimate of the client's shares. Only NOISED messages have such fields.
    """
    return _field(shape=(places,), unit=unit, meaning=meaning, wire="f8", told="category")


def bounded(*, unit: str, meaning: str) -> Any:
    """Declare one number in [0, 1]; what lies beyond is cut off. Only NOISED messages have it."""
    return _field(shape=(), unit=unit, meaning=meaning, wire="f8", told="bounded")


def count(
    *shape: str | int,
    unit: str,
    meaning: str,
    key: bool = False,
    moves: int = 0,
    training: bool = False,
) -> Any:
    """Declare an exact, non-negative integer field below 2^32; never rounded stochastically.

    With `training` a total of 0 over all clients ends the run: nobody has a record to train on.
    """
    facts = {"key": key, "moves": moves, "training": training}
    return _field(shape=shape, unit=unit, meaning=meaning, wire="u8", **facts)


def blob(*shape: str | int, unit: str, meaning: str) -> Any:
    """Declare bytes: one size for a ``bytes`` value, or rows of uint8 (``"cohort", 32``)."""
    return _field(shape=shape, unit=unit, meaning=meaning, wire="bytes")
