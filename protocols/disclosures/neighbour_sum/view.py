"""What the coordinator holds of what neighbours send each other: boxes that it cannot open."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from protocols.disclosures._base.view import Answers, OneVerb
from protocols.errors import LocalProtocolError
from protocols.messages import Message
from protocols.rounds import Sealed, View


class Neighbourly(Sealed):
    """For each client the boxes of its neighbours, to be handed on."""


class NeighbourView(OneVerb):
    """NEIGHBOUR_SUM: boxes that only the addressed clients can open."""

    verb = "between_neighbours"

    def __init__(self, kind: type[Message], boxes: Mapping[str, bytes]) -> None:
        self._kind, self._boxes = kind, dict(boxes)

    def _answer(self, **options: Any) -> Sealed:
        return Neighbourly(self._kind, self._boxes)


class NeighbourAnswers(Answers):
    """The boxes of one Ask, by sender; nothing of them is added up here."""

    verb: ClassVar[str] = NeighbourView.verb
    adds: ClassVar[bool] = False

    def views(self) -> dict[type[Message], View]:
        """Sort the boxes by who opens them; of clients that did not answer they are zeros."""
        topology, (kind,) = self._context.plan.topology, self.kinds
        if topology is None:
            raise LocalProtocolError("The plan says of nobody who its neighbours are.")
        size, bodies, found = self.item.body // topology.width, self.bodies(), {}
        for receiver in self._context.roster.clients:
            boxes = []
            for sender in topology.neighbours(receiver):
                at = topology.neighbours(sender).index(receiver) * size
                boxes.append(bodies.get(sender, b"")[at : at + size].ljust(size, b"\0"))
            found[receiver] = b"".join(boxes).ljust(topology.width * size, b"\0")
        return {kind: NeighbourView(kind, found)}


VIEW = NeighbourAnswers
