"""Fields of messages: shape, unit and meaning; what plans, checks and wire formats see of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, dataclass_transform, get_args

import numpy as np
from numpy.typing import NDArray

from protocols.disclosures.names import Disclosure
from protocols.unready import Partial, Unmixed, Unsummed

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


# --- Messages: frozen records of arrays that may be said, each with its disclosure ---
#
# A message declares *what it is* (fields with shape, unit and meaning) and *what its receiver is
# meant to learn* (its base class). How it is protected is the policy's business, not the
# message's::
#
#     class Update(SumMessage):
#         delta: Vector = real("d", unit="weight x record", meaning="n_k x change of the model")
#         count: int = count(unit="record", meaning="training records n_k")
#
# Shapes are named dimensions; their sizes come from the plan, never from the data.

Array = NDArray[Any]
Vector = NDArray[Any]
Matrix = NDArray[Any]
Receiver = Literal["aggregator", "client"]


@dataclass_transform(
    kw_only_default=True,
    frozen_default=True,
    eq_default=False,
    field_specifiers=(real, category, bounded, count, blob),
)
class Message:
    """Base of every message. Use one of the subclasses below, which fix the disclosure."""

    disclosure: ClassVar[Disclosure]
    fields: ClassVar[tuple[Field, ...]] = ()

    def __init_subclass__(cls) -> None:
        """Freeze the class and read its fields; undeclared annotations are refused."""
        dataclass(frozen=True, eq=False, repr=False, kw_only=True)(cls)
        fields = []
        for item in dataclasses.fields(cls):  # type: ignore[arg-type]
            facts = item.metadata.get("field")
            if facts is None:
                raise TypeError(
                    f"{cls.__name__}.{item.name} has no declaration. "
                    "Declare it with real(...), count(...) or blob(...)."
                )
            fields.append(Field(name=item.name, **facts))
            if fields[-1].told and cls.disclosure is not Disclosure.NOISED:
                raise TypeError(
                    f"{cls.__name__}.{item.name} is told by itself, which only a NOISED message "
                    "can be. Declare it with real(...) or count(...), or take NoisedMessage."
                )
        cls.fields = tuple(fields)

    def __repr__(self) -> str:
        """Return type and fields, never a value."""
        names = ", ".join(field.name for field in self.fields)
        return f"<{type(self).__name__} {self.disclosure}({names})>"

    def __reduce__(self) -> Any:
        """Refuse pickling: messages leave only through the gateway."""
        raise TypeError(f"{type(self).__name__} may not be pickled; release it through the gateway")


class SumMessage(Message):
    """The receiver learns only the cohort's total of every field.

    Attributes:
        receiver: who reads the total (O11): the aggregator, or one client of the cohort, the
            clients in turn (`Reply.handed`): then the total of all others, as that client sends no
            value but a blind, under which the aggregator opens noise.
        twice: it holds one value under two weights, so that its totals give sums of fewer clients:
            without all whose weights are alike, perhaps a single one's. It leaves under noise, or
            in clear.
    """

    disclosure = Disclosure.SUM
    receiver: ClassVar[Receiver] = "aggregator"
    twice: ClassVar[bool] = False


class WeightedSumMessage(Message):
    """Each receiver learns its own weighted combination; the aggregator learns nothing.

    With even weights that is a total which the cohort reads and the aggregator does not (O11).
    """

    disclosure = Disclosure.WEIGHTED_SUM


class NeighbourSumMessage(Message):
    """Each client learns the weighted sum over its neighbours; the coordinator learns nothing.

    The form says who they are (`Form.topology`), and the weights follow from that. On the way down
    it is the receiver's mixture, its own message included; its own alone if a neighbour was away.
    """

    disclosure = Disclosure.NEIGHBOUR_SUM


class SimilarityMessage(Message):
    """The aggregator learns only the pairwise cosines of the one vector field.

    A kind that measures vectors (K, p) otherwise, from -1 to 1, leaves in clear alone.
    """

    disclosure = Disclosure.SIMILARITY
    measure: ClassVar[staticmethod[[Array], Array] | None] = None


class MatchMessage(Message):
    """The matcher learns only which entries of the key field are equal across clients."""

    disclosure = Disclosure.MATCH


class RowSumMessage(Message):
    """A receiver learns, of some rows, what others' terms add up to (`by_tags`: of `unsummed`).

    Noise on rows covers one node's features where these enter that node's term alone, and make it
    zero if they are zeros: of whatever kind says so (`of_one`). That it is true is trusted.
    """

    disclosure = Disclosure.ROW_SUM
    by_tags: ClassVar[bool] = False
    of_one: ClassVar[bool] = False
    _unsummed: ClassVar[Unsummed | None] = None  # of an instance, where `unsummed` made it

    @classmethod
    def unsummed(cls, *, own: Array, terms: Any, links: Array, wanted: Array) -> Self:
        """Return a client's terms of all rows."""
        made = object.__new__(cls)
        object.__setattr__(made, "_unsummed", Unsummed(own, terms, links, wanted))
        return made


class MixedMessage(Message):
    """The receiver learns mixtures of several distinct records.

    The first dimension of every field is ``mixtures``, which the plan sizes. One field holds the
    features, (mixtures, positions, width) or (mixtures, width); one more may hold the mixed one-hot
    labels of the centres, (mixtures, classes), declared with ``label=True``. A client's answer
    gives records instead of mixtures, by `unmixed`: who stands in which mixture is drawn, and the
    mean taken, behind the gateway's door. An algorithm's dimension ``group`` is how many members it
    wants in a mixture; the policy's floor holds beside it.
    """

    disclosure = Disclosure.MIXED
    _unmixed: ClassVar[Unmixed | None] = None  # of an instance, where `unmixed` made it

    @classmethod
    def unmixed(cls, *, table: Array, index: Array, label: Array | None = None) -> Self:
        """Return a client's records, to be mixed when they are released.

        In every round of a run the same members stand at the same positions with the same labels;
        only the table may change. Otherwise two mixtures would differ by single records.

        Args:
            table: (N, D) real, one row a record.
            index: (members, P) integers, rows of the table; the first column holds the centres, no
                record twice.
            label: (members,) class numbers of the centres, where the message has such a field.
        """
        made = object.__new__(cls)
        object.__setattr__(made, "_unmixed", Unmixed(table, index, label))
        return made


class NoisedMessage(Message):
    """The receiver learns each message after local noise.

    A message may hold some rows of a public catalogue: a count field of the dimension ``sent`` that
    numbers them, and real fields whose first dimension it is. A client's answer gives the rows that
    it holds, by `partial`; what else is sent is the gateway's business.

    Or it holds categories and bounded numbers alone (`category`, `bounded`), each of which its
    client's own noise tells by itself, with an equal share of the message's epsilon.

    Attributes:
        bare: it holds single records as a paper sends them, a control: it leaves in clear alone.
    """

    disclosure = Disclosure.NOISED
    bare: ClassVar[bool] = False
    _partial: ClassVar[Partial | None] = None  # of an instance, where `partial` made it

    @classmethod
    def partial(cls, catalogue: int, **fields: Any) -> Self:
        """Return the rows that a client holds, out of `catalogue` many."""
        made = object.__new__(cls)
        object.__setattr__(made, "_partial", Partial(catalogue, fields))
        return made


class SealedMessage(Message):
    """Row j of every field is opened by cohort member j only; the relay learns its size."""

    disclosure = Disclosure.SEALED


class ReleasedMessage(Message):
    """Computed from already disclosed outputs only (the global model, a step number).

    Attributes:
        retold: it holds what single clients said in clear, which its receivers read then, too.
    """

    disclosure = Disclosure.RELEASED
    retold: ClassVar[bool] = False


class PublicMessage(Message):
    """Not derived from private data: configuration, seeds, public keys."""

    disclosure = Disclosure.PUBLIC


def addressed(kind: type[Message]) -> bool:
    """Tell whether one client alone reads such totals; raises TypeError if nobody is named."""
    if issubclass(kind, SumMessage) and kind.receiver not in get_args(Receiver):
        raise TypeError(f"{kind.__name__}: no receiver {kind.receiver!r}; {get_args(Receiver)}")
    return issubclass(kind, SumMessage) and kind.receiver == "client"


def unmixed_of(message: Message) -> Unmixed | None:
    """Return the records that a message is to be mixed from; None if it holds its own fields."""
    return message._unmixed if isinstance(message, MixedMessage) else None


def partial_of(message: Message) -> Partial | None:
    """Return the rows that a message is to be made from; None if it holds its own fields."""
    return message._partial if isinstance(message, NoisedMessage) else None


def unsummed_of(message: Message) -> Unsummed | None:
    """Return the terms that rows are summed from; None if a message holds its own fields."""
    return message._unsummed if isinstance(message, RowSumMessage) else None


def values(message: Message) -> dict[str, Any]:
    """Return the values of a message's fields by their names."""
    return {field.name: getattr(message, field.name) for field in message.fields}


def names(kinds: tuple[type[Message], ...]) -> str:
    """Return the names of message types joined by ``+``, as plans and ledgers print them."""
    return "+".join(kind.__name__ for kind in kinds)


def equal(one: Message, other: Message) -> bool:
    """Tell whether two messages have the same type and bit-equal fields."""
    return type(one) is type(other) and all(
        np.array_equal(getattr(one, f.name), getattr(other, f.name)) for f in one.fields
    )
