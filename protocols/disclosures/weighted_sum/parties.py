"""What client, key authority and witness do to weigh messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from protocols.disclosures._evaluated.ciphers import shape_of
from protocols.disclosures._evaluated.parties import ResultWitness, Revealing
from protocols.disclosures._evaluated.uploads import (
    Evaluation,
    Upload,
    Uploads,
    opened_message,
    row_info,
)
from protocols.disclosures.names import Disclosure
from protocols.disclosures.weighted_sum.disclosure import Mixture, Weighable, WeighedView
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.keys.pairs import open_box
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.sessions.part import Engine, SessionPart
from protocols.wire.control import Row
from protocols.wire.envelope import Where
from protocols.wire.roles import Role

# The client's part in weighted sums: it opens its own row, once (O1).


class RowOpening(SessionPart):
    """Opens what comes back weighed, in the round in which this client gave something to weigh."""

    called: ClassVar[str] = "rows"
    opens: ClassVar[tuple[type[Message], ...]] = (Row,)

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._weighed = -1  # round of the last message that may come back weighed

    def gave(self, item: Item, messages: Sequence[Message], where: Where) -> None:
        """Note that this client's answer may come back weighed."""
        if item.disclosure is Disclosure.WEIGHTED_SUM and self._context.enciphers(item):
            self._weighed = where.round

    def unsealed(self, kind: type[Message], message: Message, name: str, where: Where) -> Message:
        """Open this client's own row and take off its blind (O1)."""
        context, row = self._context, message
        if not isinstance(row, Row):
            raise LocalProtocolError("This is no row.")
        if self._weighed != where.round:
            raise BadEnvelope(
                "A row arrived in a round in which this client gave nothing to weigh."
            )
        self._weighed = -1  # rows of one upload are handed out once
        info = row_info(context.run, where.exchange, name, self._engine.name)
        found = open_box(row.box, context.me, context.roster.one(Role.KEY_AUTHORITY), info)
        shape = shape_of((kind,), context.policy, context.plan.dims)
        return opened_message(kind, shape, found, row.seed)


CLIENT = RowOpening


KEY_AUTHORITY = Revealing


WITNESS = ResultWitness


KEPT = (Evaluation, Mixture, Upload, Uploads, Weighable, WeighedView)
