"""What a message is to be made from behind the gateway's door: records and rows of one client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from numpy.typing import NDArray

__all__ = ["Partial", "Unmixed", "Unsummed", "unsummed_of"]

Array = NDArray[Any]


class Unmixed:
    """What a client's mixtures are made of; only the gateway reads it, and nothing encodes it.

    Attributes:
        table: (N, D), one row a record.
        index: (members, P), which record stands at each position of a member; the first is the
            centre.
        label: (members,), the class of each centre; None where labels are not said.
    """

    __slots__ = ("index", "label", "table")

    def __init__(self, table: Array, index: Array, label: Array | None) -> None:
        self.table, self.index, self.label = table, index, label

    def __repr__(self) -> str:
        """Return the type only."""
        return "<Unmixed>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse pickling and copying: records leave only inside mixtures."""
        raise TypeError("records may not be pickled or copied; only their mixtures leave")


class Partial:
    """Rows of a catalogue that one client holds; only the gateway reads it, nothing encodes it.

    Attributes:
        catalogue: how many rows there are.
        fields: by name, what the client says; rows as many as it holds.
    """

    __slots__ = ("catalogue", "fields")

    def __init__(self, catalogue: int, fields: Mapping[str, Any]) -> None:
        self.catalogue, self.fields = catalogue, dict(fields)

    def __repr__(self) -> str:
        """Return the type only."""
        return "<Partial>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse pickling and copying."""
        raise TypeError("rows may not be pickled or copied; they leave through the gateway")


class Unsummed:
    """Terms of a client's nodes, and which rows each enters; only the gateway reads it.

    Attributes:
        own: (n,) public numbers of the client's nodes, ascending.
        terms: (n, width) real, one a node; dense, or anything that `links` can be added up with.
        links: (2, m), place of an own node, and number of a row that its term enters.
        wanted: (r,) numbers of rows that the client asks for.
    """

    __slots__ = ("links", "own", "terms", "wanted")

    def __init__(self, own: Array, terms: Any, links: Array, wanted: Array) -> None:
        self.own, self.terms, self.links, self.wanted = own, terms, links, wanted

    def __repr__(self) -> str:
        """Return the type only."""
        return "<Unsummed>"

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        """Refuse pickling and copying: terms leave only inside sums."""
        raise TypeError("terms may not be pickled or copied; only sums of them leave")


def unsummed_of(message: object) -> Unsummed | None:
    """Return the terms that rows are summed from; None if a message holds its own fields."""
    found = getattr(message, "_unsummed", None)
    return found if isinstance(found, Unsummed) else None
