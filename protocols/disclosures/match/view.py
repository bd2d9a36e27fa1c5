"""What the aggregator holds of messages that are matched, and in the end what it may hand on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from protocols.disclosures._base.view import Answers, OneVerb
from protocols.errors import UnfitMessage
from protocols.forms import Exchange
from protocols.messages import Array, Message
from protocols.plan.steps import Part
from protocols.rounds import Sealed, View
from protocols.wire.run_context import RunContext
from protocols.wire.where import Where


class Cells(Sealed):
    """Blinded totals of all cells, which clients open, or the canary of lists that they have."""

    def __init__(self, kind: type[Message], told: Message) -> None:
        super().__init__(kind, {})
        self.told = told


class CellsView(OneVerb):
    """MATCH, protected: which items are equal stands with the clients, and nothing of it here."""

    verb = "matched"

    def __init__(self, told: Message) -> None:
        self._told = told

    def _answer(self, **options: Any) -> Sealed:
        return Cells(options["into"], self._told)


class Matchable(Answers):
    """The boxes of one Ask; in clear its messages.

    Attributes:
        told: what clients are told of the matching, once it ended.
    """

    verb: ClassVar[str] = CellsView.verb

    def __init__(self, context: RunContext, exchange: Exchange, where: Where, part: Part) -> None:
        super().__init__(context, exchange, where, part)
        self.told: Message | None = None

    def views(self) -> dict[type[Message], View]:
        """Return what may be handed on."""
        if self.told is None:
            return super().views()
        return dict.fromkeys(self.kinds, CellsView(self.told))

    @classmethod
    def clear(
        cls, kind: type[Message], sent: Mapping[str, Message], dims: Mapping[str, int], **more: Any
    ) -> Sealed:
        """Return, for each client, what others hold under its keys, from messages in clear."""
        return _matched(kind, sent, more["into"], dims)


def _matched(
    kind: type[Message], sent: Mapping[str, Message], into: type[Message], dims: Mapping[str, int]
) -> Sealed:
    """For each client: the rows that others carry under keys it holds itself.

    `into` declares, beside the carried fields by name, one count field ``row`` of the same
    first dimension: 1 + the index of the own key a found row belongs to, 0 for padding.
    """
    (key,) = [field for field in kind.fields if field.key]
    if any(f.shape[:1] != key.shape for f in kind.fields if not f.key):
        return _meant(kind, key.name, sent, into, dims)
    carried = [field for field in kind.fields if not field.key]
    deliveries: dict[str, Message] = {}
    for name, mine in sent.items():
        own = {int(k): i + 1 for i, k in enumerate(getattr(mine, key.name)) if k}
        found = [
            (own[int(k)], [np.asarray(getattr(other, f.name))[i] for f in carried])
            for peer, other in sent.items()
            if peer != name
            for i, k in enumerate(getattr(other, key.name))
            if int(k) in own
        ]
        deliveries[name] = _fill(into, carried, found, dims)
    return Sealed(into, deliveries)


def _meant(
    kind: type[Message],
    key: str,
    sent: Mapping[str, Message],
    into: type[Message],
    dims: Mapping[str, int],
) -> Sealed:
    """For each client: by key that others hold too, the mean of the vectors of all who do.

    What O25 forbids: means by item tell whoever holds them, and who holds what, every vector.
    """
    (real,) = [field.name for field in kind.fields if field.name != key]
    (name,) = [field.name for field in into.fields if field.name != "row"]
    keys = np.stack([np.asarray(getattr(m, key)) for m in sent.values()]) > 0
    vectors = np.stack([np.asarray(getattr(m, real)) for m in sent.values()])
    held = keys.sum(axis=0)
    means = (keys.T.astype(np.float64) @ vectors) / np.maximum(held, 1)[:, None]
    field = next(field for field in into.fields if field.name == name)
    deliveries = {}
    for client, mine in zip(sent, keys, strict=True):
        found = np.flatnonzero(mine & (held > 1))
        row = np.zeros(field.sizes(dims)[0], dtype=np.int64)
        block = np.zeros(field.sizes(dims))
        row[: len(found)], block[: len(found)] = 1 + found, means[found]
        values: dict[str, Any] = {"row": row, name: block}
        deliveries[client] = into(**values)
    return Sealed(into, deliveries)


def _fill(
    into: type[Message], carried: list[Any], found: list[Any], dims: Mapping[str, int]
) -> Message:
    places = min((field.sizes(dims)[0] for field in into.fields), default=0)
    if len(found) > places:
        raise UnfitMessage(
            f"{into.__name__}: a client has more matches than the plan has places for.",
            fix="plan more places; dropping some would favour clients by their order",
        )
    values: dict[str, Array] = {}
    for field in into.fields:
        integer = field.wire == "u8"
        block = np.zeros(field.sizes(dims), dtype=np.int64 if integer else np.float64)
        for place, (row, parts) in enumerate(found):
            by_name = dict(zip([f.name for f in carried], parts, strict=True))
            block[place] = row if field.name == "row" else by_name[field.name]
        values[field.name] = block
    return into(**values)


VIEW = Matchable
