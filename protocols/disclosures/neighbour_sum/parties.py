"""The client's part in sums over neighbours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from protocols.disclosures.names import Disclosure
from protocols.disclosures.neighbour_sum.disclosure import (
    NeighbourAnswers,
    Neighbourly,
    NeighbourView,
)
from protocols.disclosures.neighbour_sum.layout import (
    COMMITMENT_BYTES,
    NeighbourGrid,
    box_info,
    grid_of,
)
from protocols.disclosures.neighbour_sum.messages import NeighbourBoxes
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.keys.pairs import open_box
from protocols.messages import Message, values
from protocols.plan.plan import Item
from protocols.policy.guard import find
from protocols.sessions.part import Engine, Scope, SessionPart
from protocols.wire.envelope import Where

# The client's part in sums over neighbours: it opens its own, once, if nobody is missing.


@dataclass(frozen=True)
class Offered:
    """What this client gave its neighbours last.

    Attributes:
        round, exchange, item: where.
        own: its message's values, by field.
    """

    round: int
    exchange: int
    item: str
    own: Mapping[str, Any]


class NeighbourMixing(SessionPart):
    """Mixes what all neighbours sent with this client's own, in the round in which it gave that.

    A sum that lacks a neighbour is not opened: this client goes on with its own.
    """

    called: ClassVar[str] = "neighbours"
    opens: ClassVar[tuple[type[Message], ...]] = (NeighbourBoxes,)

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._given: Offered | None = None

    def forget(self, scope: Scope) -> None:
        """Drop the last message once the session is over."""
        if scope is Scope.RUN:
            self._given = None

    def gave(self, item: Item, messages: Sequence[Message], where: Where) -> None:
        """Keep what this client sent, which its own mixture needs."""
        if item.part is Disclosure.NEIGHBOUR_SUM:
            (message,) = messages
            self._given = Offered(where.round, where.exchange, item.id, values(message))

    def unsealed(self, kind: type[Message], message: Message, name: str, where: Where) -> Message:
        """Return this client's mixture, or its own message where a neighbour is missing."""
        context, given = self._context, self._given
        if not isinstance(message, NeighbourBoxes):
            raise LocalProtocolError("These are no boxes of neighbours.")
        if given is None or given.round != where.round:
            raise BadEnvelope("Boxes arrived in a round in which this client gave nothing.")
        self._given = None  # the boxes of a round are handed on once
        topology, me = context.plan.topology, self._engine.name
        chain = context.policy.chain(Disclosure.NEIGHBOUR_SUM)
        grid = grid_of(topology, (kind,), chain, context.plan.dims)
        if topology is None:
            raise LocalProtocolError("The plan says of nobody who its neighbours are.")
        senders = topology.neighbours(me)
        size, boxes = grid.box_bytes, message.boxes
        found = {s: boxes[at * size : (at + 1) * size] for at, s in enumerate(senders)}
        # Away, or sent nothing since it was told that another neighbour takes no part.
        absent = [sender for sender, box in found.items() if not any(box)]
        own = kind(**given.own)
        digests: dict[str, str] = {}
        mixed = own
        if not absent:
            contents = {s: self._content(grid, box, s, given) for s, box in found.items()}
            digests = {s: content[:COMMITMENT_BYTES].hex() for s, content in contents.items()}
            words = [grid.words(content) for content in contents.values()]
            total = np.add.reduce(words, dtype=words[0].dtype)  # mod the ring's 2^16, 2^32 or 2^64
            others, mine = sum(topology.shares[me].values()), topology.own(me)
            mixed = grid.mixed(kind, total, own, (others, mine, topology.whole))
        facts = {
            "absent": absent,
            "commitments": [digests[sender] for sender in senders] if digests else [],
            "exchange": given.exchange,
            "round": given.round,
        }
        self._engine.record("neighbourhood", facts)
        return mixed

    def _content(self, grid: NeighbourGrid, box: bytes, sender: str, given: Offered) -> bytes:
        """Return what a neighbour sent, opened and its signature checked; in clear as it is."""
        context = self._context
        if not find(context.policy.chain(Disclosure.NEIGHBOUR_SUM), "seal"):
            return box[: grid.content_bytes]
        info = box_info(context.run, given.exchange, given.item, sender, self._engine.name)
        return open_box(box, context.me, context.roster.party(sender), info)


CLIENT = NeighbourMixing


KEPT = (NeighbourAnswers, Neighbourly, NeighbourView, Offered)
