"""What the aggregator holds of a maximum: first shares and boxes, and in the end the maximum."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from protocols.disclosures._base.view import Answers, OneVerb
from protocols.disclosures.maximum.guards import Levels
from protocols.disclosures.maximum.levels import Words, largest
from protocols.errors import LocalProtocolError
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.plan.steps import Part, Step
from protocols.policy.guard import guard_of
from protocols.rounds import View
from protocols.wire.run_context import RunContext
from protocols.wire.where import Where


class MaximumView(OneVerb):
    """MAXIMUM: the cohort's largest integers, as a message of the same type."""

    verb = "maximum"

    def __init__(self, found: Message) -> None:
        self._found = found

    def _answer(self, **options: Any) -> Message:
        return self._found


class Raised(Answers):
    """The shares of one Ask.

    Attributes:
        first: the total of the first shares, shape (top, n), until the second is here.
        totals: one number a level, shape (top, n), once they were opened.
    """

    verb: ClassVar[str] = MaximumView.verb
    fixes: ClassVar[bool] = True

    def __init__(self, context: RunContext, exchange: Exchange, where: Where, part: Part) -> None:
        super().__init__(context, exchange, where, part)
        self.first: Words | None = None
        self.totals: Words | None = None

    @property
    def top(self) -> int:
        """The highest level; 0 in clear."""
        levels = guard_of(self._context.policy.chain(self.item.disclosure), Levels)
        return levels.top if levels is not None else 0

    @property
    def share(self) -> int:
        """Bytes of a first share, behind which the box stands."""
        return self._context.find(self.exchange.name, self.part, Step.OPENED).dims["level_total"]

    def words(self, data: bytes) -> Words:
        """Return numbers, shape (top, n), of their bytes."""
        return np.frombuffer(data, dtype="<u8").astype(np.uint64).reshape(self.top, -1)

    def views(self) -> dict[type[Message], View]:
        """Return the largest integers; raises LocalProtocolError if they are not here."""
        if not self.top:
            return super().views()
        if self.totals is None:
            raise LocalProtocolError("The maximum was not opened yet.")
        (kind,) = self.kinds
        return {kind: MaximumView(_message(kind, largest(self.totals), self.dims))}

    @classmethod
    def clear(
        cls, kind: type[Message], sent: Mapping[str, Message], dims: Mapping[str, int], **more: Any
    ) -> Message:
        """Return the largest integers of messages that came in clear."""
        (field,) = kind.fields
        rows = np.stack([np.ravel(getattr(message, field.name)) for message in sent.values()])
        return _message(kind, rows.max(axis=0), dims)


def _message(kind: type[Message], values: Any, dims: Mapping[str, int]) -> Message:
    (field,) = kind.fields
    shaped = values.reshape(field.sizes(dims))
    return kind(**{field.name: shaped if field.shape else int(shaped)})


VIEW = Raised
