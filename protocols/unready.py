"""What a message is to be made from behind the gateway's door: records and rows of one client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from numpy.typing import NDArray

__all__ = ["Partial", "Unmixed"]

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
