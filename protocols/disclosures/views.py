"""What the aggregator may do with the answers of one message type: one view per disclosure."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from crypto.errors import OutOfRange
from protocols.disclosures.names import Disclosure
from protocols.errors import UnfitMessage
from protocols.keys.boxes import box_bytes
from protocols.messages import Array, Message
from protocols.rounds import Sealed, View
from protocols.wire.codec import encode


class _View:
    """A view answers exactly one verb of Reply."""

    verb = ""

    def read(self, verb: str, **options: Any) -> Any:
        """Answer the verb; raises TypeError for any other."""
        if verb != self.verb:
            raise TypeError(f"this message discloses itself through {self.verb!r}, not {verb!r}")
        return self._answer(**options)

    def _answer(self, **options: Any) -> Any:
        raise TypeError("a view must answer its verb")


class TotalView(_View):
    """SUM: the cohort's total."""

    verb = "total"

    def __init__(self, total: Message) -> None:
        self._total = total

    def _answer(self, **options: Any) -> Message:
        return self._total


class EachView(_View):
    """MIXED: each client's mixtures, ordered by content, so that the order tells no sender.

    After a relay it is one message, of all clients' mixtures.

    Args:
        bodies: what every client sent.
        read: returns the message of a body.
    """

    verb = "each"

    def __init__(self, bodies: Iterable[bytes], read: Callable[[bytes], Message]) -> None:
        ordered = sorted(bodies, key=lambda body: hashlib.sha256(body).digest())
        self._messages = tuple(read(body) for body in ordered)

    def _answer(self, **options: Any) -> tuple[Message, ...]:
        return self._messages


class HandedView(_View):
    """SEALED: boxes that only the addressed clients can open; sorted by roster client."""

    verb = "handed"

    def __init__(self, kind: type[Message], boxes: Mapping[str, bytes], size: int) -> None:
        self._kind, self._boxes, self._size = kind, boxes, size

    def _answer(self, **options: Any) -> Sealed:
        roster = sorted(self._boxes)
        parcels = {}
        for row, name in enumerate(roster):
            cut = slice(row * self._size, (row + 1) * self._size)
            parcels[name] = b"".join(self._boxes[sender][cut] for sender in roster)
        return Sealed(self._kind, parcels)


def handed(
    kind: type[Message],
    kinds: Sequence[type[Message]],
    bodies: Mapping[str, bytes],
    dims: Mapping[str, int],
    clients: Sequence[str],
) -> HandedView:
    """Return the view of one kind's boxes, cut out of bodies that hold all `kinds` in this order.

    Boxes of clients without a body are zeros.
    """
    start = sum(box_bytes(before, dims) for before in kinds[: kinds.index(kind)]) * len(clients)
    size = box_bytes(kind, dims)
    cut, absent = slice(start, start + size * len(clients)), bytes(size * len(clients))
    boxes = {client: bodies[client][cut] if client in bodies else absent for client in clients}
    return HandedView(kind, boxes, size)


class CosinesView(_View):
    """SIMILARITY, protected: one rounded cosine per pair, sorted by client."""

    verb = "similarity"

    def __init__(self, cosines: Array) -> None:
        self._cosines = cosines

    def _answer(self, **options: Any) -> Array:
        return self._cosines.copy()


class Mixture(Sealed):
    """Integer weights over encrypted messages; the rows are computed when an Ask hands them out."""

    def __init__(
        self, kind: type[Message], source: int, table: Array, flattened: tuple[int, ...]
    ) -> None:
        super().__init__(kind, {})
        self._source, self._table, self._flattened = source, table, flattened


class WeighedView(_View):
    """WEIGHTED_SUM, protected: weights can be put on messages that nobody here can open.

    Args:
        kind: the message type.
        source: number of the exchange that brought the messages.
        size: how many.
        others: the smallest effective group of others (O10).
        total, top: of the policy's guard.
    """

    verb = "weighted"

    def __init__(
        self,
        kind: type[Message],
        source: int,
        size: int,
        others: int,
        total: int,
        top: int | None,
    ) -> None:
        self._kind, self._source, self._size = kind, source, size
        self._others, self._total, self._top = others, total, top

    def _answer(self, **options: Any) -> Sealed:
        """Return the nearest admissible integer weights (O10), to be handed out once."""
        from crypto.homomorphic.weights import flatten

        weights = np.asarray(options["alpha"], dtype=np.float64)
        if weights.shape != (self._size, self._size):
            raise ValueError(f"weights must be ({self._size}, {self._size})")
        try:
            chosen = flatten(weights, self._others, total=self._total, top=self._top)
        except OutOfRange as error:
            raise ValueError("weights must be rows of shares that sum to one") from error
        return Mixture(self._kind, self._source, chosen.table, chosen.flattened)


class Cells(Sealed):
    """Blinded totals of all cells, which clients open, or the canary of lists that they have."""

    def __init__(self, kind: type[Message], told: Message) -> None:
        super().__init__(kind, {})
        self.told = told


class CellsView(_View):
    """MATCH, protected: which items are equal stands with the clients, and nothing of it here."""

    verb = "matched"

    def __init__(self, told: Message) -> None:
        self._told = told

    def _answer(self, **options: Any) -> Sealed:
        return Cells(options["into"], self._told)


class ClearView(_View):
    """What an Unsafe chain brought in clear: the baseline and control of a protected view."""

    def __init__(self, kind: type[Message], sent: Mapping[str, Message], dims: Mapping[str, int]):
        self._kind, self._dims = kind, dims
        self._sent = {name: sent[name] for name in sorted(sent)}
        self.verb = _VERBS[kind.disclosure]

    def _answer(self, **options: Any) -> Any:
        answers: dict[str, Callable[..., Any]] = {
            "similarity": self._similarity,
            "each": self._each,
            "weighted": self._weighted,
            "matched": self._matched,
        }
        return answers[self.verb](**options)

    def _similarity(self) -> Array:
        (field,) = self._kind.fields
        rows = np.stack([np.ravel(getattr(m, field.name)) for m in self._sent.values()])
        units = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-300)
        cosines: Array = units @ units.T
        return cosines

    def _each(self) -> tuple[Message, ...]:
        # Ordered by content, so that the order does not tell who sent which.
        def content(message: Message) -> bytes:
            return hashlib.sha256(encode([message], self._dims)).digest()

        return tuple(sorted(self._sent.values(), key=content))

    def _weighted(self, alpha: Array) -> Sealed:
        weights, size = np.asarray(alpha, dtype=np.float64), len(self._sent)
        if weights.shape != (size, size) or not np.allclose(weights.sum(axis=1), 1.0):
            raise ValueError(f"weights must be ({size}, {size}) with rows that sum to one")
        mixed = {}
        for field in self._kind.fields:
            stack = np.stack([np.asarray(getattr(m, field.name)) for m in self._sent.values()])
            rows = weights @ stack.reshape(size, -1)  # one product for all receivers
            mixed[field.name] = rows.reshape(stack.shape) if field.shape else rows[:, 0].tolist()
        parcels = {
            name: self._kind(**{field: rows[number] for field, rows in mixed.items()})
            for number, name in enumerate(self._sent)
        }
        return Sealed(self._kind, parcels)

    def _matched(self, into: type[Message]) -> Sealed:
        """For each client: the rows that others carry under keys it holds itself.

        `into` declares, beside the carried fields by name, one count field ``row`` of the same
        first dimension: 1 + the index of the own key a found row belongs to, 0 for padding.
        """
        (key,) = [field for field in self._kind.fields if field.key]
        if any(f.shape[:1] != key.shape for f in self._kind.fields if not f.key):
            return self._meant(key.name, into)
        carried = [field for field in self._kind.fields if not field.key]
        parcels: dict[str, Message] = {}
        for name, mine in self._sent.items():
            own = {int(k): i + 1 for i, k in enumerate(getattr(mine, key.name)) if k}
            found = [
                (own[int(k)], [np.asarray(getattr(other, f.name))[i] for f in carried])
                for peer, other in self._sent.items()
                if peer != name
                for i, k in enumerate(getattr(other, key.name))
                if int(k) in own
            ]
            parcels[name] = self._fill(into, carried, found)
        return Sealed(into, parcels)

    def _meant(self, key: str, into: type[Message]) -> Sealed:
        """For each client: by key that others hold too, the mean of the vectors of all who do.

        What O25 forbids: means by item tell whoever holds them, and who holds what, every vector.
        """
        (real,) = [field.name for field in self._kind.fields if field.name != key]
        (name,) = [field.name for field in into.fields if field.name != "row"]
        keys = np.stack([np.asarray(getattr(m, key)) for m in self._sent.values()]) > 0
        vectors = np.stack([np.asarray(getattr(m, real)) for m in self._sent.values()])
        held = keys.sum(axis=0)
        means = (keys.T.astype(np.float64) @ vectors) / np.maximum(held, 1)[:, None]
        field = next(field for field in into.fields if field.name == name)
        parcels = {}
        for client, mine in zip(self._sent, keys, strict=True):
            found = np.flatnonzero(mine & (held > 1))
            row = np.zeros(field.sizes(self._dims)[0], dtype=np.int64)
            block = np.zeros(field.sizes(self._dims))
            row[: len(found)], block[: len(found)] = 1 + found, means[found]
            values: dict[str, Any] = {"row": row, name: block}
            parcels[client] = into(**values)
        return Sealed(into, parcels)

    def _fill(self, into: type[Message], carried: list[Any], found: list[Any]) -> Message:
        places = min((field.sizes(self._dims)[0] for field in into.fields), default=0)
        if len(found) > places:
            raise UnfitMessage(
                f"{into.__name__}: a client has more matches than the plan has places for.",
                fix="plan more places; dropping some would favour clients by their order",
            )
        values: dict[str, Array] = {}
        for field in into.fields:
            integer = field.wire == "u8"
            block = np.zeros(field.sizes(self._dims), dtype=np.int64 if integer else np.float64)
            for place, (row, parts) in enumerate(found):
                by_name = dict(zip([f.name for f in carried], parts, strict=True))
                block[place] = row if field.name == "row" else by_name[field.name]
            values[field.name] = block
        return into(**values)


_VERBS = {
    Disclosure.SIMILARITY: "similarity",
    Disclosure.NOISED: "each",
    Disclosure.MIXED: "each",
    Disclosure.WEIGHTED_SUM: "weighted",
    Disclosure.MATCH: "matched",
}

__all__ = [
    "Cells",
    "CellsView",
    "ClearView",
    "CosinesView",
    "EachView",
    "HandedView",
    "Mixture",
    "TotalView",
    "View",
    "WeighedView",
]
