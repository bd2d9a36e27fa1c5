"""What the aggregator holds of rows: uniform words for each receiver, or in clear all sums."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from protocols.disclosures._base.view import Answers, OneVerb
from protocols.disclosures.row_sum.guards import Rows
from protocols.errors import LocalProtocolError
from protocols.forms import Exchange
from protocols.messages import Array, Message
from protocols.plan.steps import Part
from protocols.policy.guard import guard_of
from protocols.rounds import Sealed, View
from protocols.wire.codec import decode
from protocols.wire.run_context import RunContext
from protocols.wire.where import Where


class RowsView(OneVerb):
    """ROW_SUM in clear: for each client the rows that it asked for and enough others add to."""

    verb = "rows"

    def __init__(
        self, sent: Mapping[str, Message], threshold: int, dims: Mapping[str, int]
    ) -> None:
        self._sent, self._threshold, self._dims = sent, threshold, dims

    def _answer(self, **options: Any) -> Sealed:
        into: type[Message] = options["into"]
        return Sealed(into, told(self._sent, self._threshold, into, self._dims))


def told(
    sent: Mapping[str, Message], threshold: int, into: type[Message], dims: Mapping[str, int]
) -> dict[str, Message]:
    """Return what each client is told of one block.

    Args:
        sent: by client, ``first``, ``wanted`` and ``sums``, whose last column counts terms.
        threshold: how many clients besides the receiver add to a row at least.
        into: message with the fields ``node`` and ``sums``.
        dims: sizes of named dimensions.
    """
    names = sorted(sent)
    said = {name: np.asarray(_of(sent[name], "sums"), dtype=np.float64) for name in names}
    total = np.sum([said[name] for name in names], axis=0)
    adding = np.sum([said[name][:, -1] > 0 for name in names], axis=0)
    places, found = _places(into, dims), {}
    for name in names:
        others = adding - (said[name][:, -1] > 0)
        served = np.flatnonzero((np.asarray(_of(sent[name], "wanted")) > 0) & (others >= threshold))
        node = np.zeros(places, dtype=np.int64)
        sums = np.zeros((places, total.shape[1]), dtype=np.float32)
        node[: len(served)] = 1 + int(_of(sent[name], "first")) + served
        sums[: len(served)] = (total - said[name])[served]
        found[name] = _made(into, node, sums)
    return found


def _of(message: Message, name: str) -> Array:
    found: Array = getattr(message, name)
    return found


def _places(into: type[Message], dims: Mapping[str, int]) -> int:
    return next(field for field in into.fields if field.name == "node").sizes(dims)[0]


def _made(into: type[Message], node: Array, sums: Array) -> Message:
    values: dict[str, Any] = {"node": node, "sums": sums}
    return into(**values)


class HandedRows(OneVerb):
    """ROW_SUM under masks: for each client words that it alone can open."""

    verb = RowsView.verb

    def __init__(self, told: Mapping[str, Message]) -> None:
        self._told = dict(told)

    def _answer(self, **options: Any) -> Sealed:
        return Sealed(options["into"], self._told)


class RowAnswers(Answers):
    """The rows of one Ask.

    Attributes:
        told: by client, what was added up for it under masks; None until then.
    """

    verb: ClassVar[str] = RowsView.verb

    def __init__(self, context: RunContext, exchange: Exchange, where: Where, part: Part) -> None:
        super().__init__(context, exchange, where, part)
        self.told: dict[str, Message] | None = None

    def views(self) -> dict[type[Message], View]:
        """Return what may be handed on; raises LocalProtocolError if it is too early."""
        rows = guard_of(self._context.policy.chain(self.item.disclosure), Rows)
        if self.told is not None:
            return dict.fromkeys(self.kinds, HandedRows(self.told))
        if rows is not None and not rows.unsafe:
            raise LocalProtocolError("Rows were not added up yet.")
        (kind,) = self.kinds
        sent = {name: decode((kind,), body, self.dims)[0] for name, body in self.bodies().items()}
        return {kind: RowsView(sent, rows.threshold if rows else 1, self.dims)}


VIEW = RowAnswers
