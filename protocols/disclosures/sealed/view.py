"""What the aggregator holds of sealed messages: boxes that only the addressed clients can open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from protocols.disclosures._base.view import Answers, OneVerb
from protocols.keys.boxes import box_bytes
from protocols.messages import Message
from protocols.rounds import Sealed, View


class HandedView(OneVerb):
    """SEALED: boxes that only the addressed clients can open; sorted by roster client."""

    verb = "handed"

    def __init__(self, kind: type[Message], boxes: Mapping[str, bytes], size: int) -> None:
        self._kind, self._boxes, self._size = kind, boxes, size

    def _answer(self, **options: Any) -> Sealed:
        roster = sorted(self._boxes)
        deliveries = {}
        for row, name in enumerate(roster):
            cut = slice(row * self._size, (row + 1) * self._size)
            deliveries[name] = b"".join(self._boxes[sender][cut] for sender in roster)
        return Sealed(self._kind, deliveries)


class Boxed(Answers):
    """The boxes of one Ask, sender by sender."""

    verb: ClassVar[str] = HandedView.verb

    def views(self) -> dict[type[Message], View]:
        """Cut each kind's boxes out of the bodies; those of clients without a body are zeros."""
        clients, bodies, start = self._context.roster.clients, self.bodies(), 0
        found: dict[type[Message], View] = {}
        for kind in self.kinds:
            size = box_bytes(kind, self.dims)
            end = start + size * len(clients)
            nothing = bytes(end - start)
            boxes = {c: bodies[c][start:end] if c in bodies else nothing for c in clients}
            found[kind], start = HandedView(kind, boxes, size), end
        return found


VIEW = Boxed
