"""The client's part in sealed messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from protocols.disclosures.names import Disclosure
from protocols.disclosures.sealed.disclosure import Boxed, HandedView
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.keys.pairs import by_peers, open_boxes
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.sessions.part import Engine, SessionPart
from protocols.wire.control import Boxes
from protocols.wire.envelope import Where

# The client's part in sealed messages: boxes for each other member, and theirs for it.


class BoxOpening(SessionPart):
    """Opens the others' boxes, once, in the round in which this client filled its own."""

    called: ClassVar[str] = "boxes"
    opens: ClassVar[tuple[type[Message], ...]] = (Boxes,)

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        # What this client sealed for others, until the others' boxes come back in the same round.
        self._boxed: dict[type[Message], tuple[int, tuple[str, int, str]]] = {}

    def gave(self, item: Item, messages: Sequence[Message], where: Where) -> None:
        """Note what this client sealed for the others."""
        if item.part is not Disclosure.SEALED:
            return
        place = (where.round, (self._context.run, where.exchange, item.id))
        self._boxed.update({type(message): place for message in messages})

    def unsealed(self, kind: type[Message], message: Message, name: str, where: Where) -> Message:
        """Return what the others sealed for this client."""
        if not isinstance(message, Boxes):
            raise LocalProtocolError("These are no boxes.")
        filled = self._boxed.pop(kind, None)  # boxes are handed on once
        if not by_peers(kind) or filled is None or filled[0] != where.round:
            raise BadEnvelope("Boxes arrived that this client's cohort did not fill in this round.")
        context = self._context
        facts = (context.me, context.roster, context.plan.dims, filled[1])
        return open_boxes(kind, message.boxes, where.members, *facts)


CLIENT = BoxOpening


KEPT = (Boxed, HandedView)
