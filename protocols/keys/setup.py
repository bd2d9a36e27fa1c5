"""The aggregator's side of an epoch's keys: who was called, who answered, whose rows are here.

It relays boxes that it cannot open, and keeps rows that it can open only when enough holders give
their shares of a client's seed.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from protocols.disclosures.sum.masked.unmasking import row_of
from protocols.errors import Replay, WrongStage
from protocols.keys.groups import Group, agreement, planned_degree
from protocols.keys.pairs import pair_box_bytes
from protocols.keys.slots import Slot, slots
from protocols.wire.run_context import RunContext


class KeyPhase(StrEnum):
    """What is being waited for."""

    KEY = "KEY"
    CALL = "CALL"
    BOXES = "BOXES"
    ROWS = "ROWS"
    DONE = "DONE"


class Setup:
    """One epoch's keys.

    Args:
        context: of the aggregator.
        epoch: its number.
        round: the round before which it is made.
        exchange: the last exchange before it.
    """

    def __init__(self, context: RunContext, epoch: int, round: int, exchange: int) -> None:
        self.epoch, self.round, self.exchange = epoch, round, exchange
        self.group = Group.of(context.run, epoch, context.roster.clients, context.policy)
        self.slots = slots(context.plan.items, context.plan.rounds, context.policy, epoch)
        self.width = planned_degree(len(context.roster.clients), context.policy)
        self.phase = KeyPhase.KEY
        self._boxes: dict[str, bytes] = {}
        self._rows: dict[str, bytes] = {}

    @property
    def ready(self) -> tuple[str, ...]:
        """Who agreed on everything, sorted: nobody else can be asked in this epoch."""
        return tuple(sorted(self._rows))

    @property
    def boxed(self) -> tuple[str, ...]:
        """Whose boxes are here, sorted."""
        return tuple(sorted(self._boxes))

    def take_boxes(self, sender: str, boxes: bytes) -> None:
        """Keep what a client sealed for its neighbours; raises if it is not the time for it."""
        self._take(KeyPhase.BOXES, self._boxes, sender, boxes)

    def take_rows(self, sender: str, rows: bytes) -> None:
        """Keep a client's locked rows; raises if it is not the time for them."""
        if sender not in self._boxes:
            raise WrongStage("Rows came from a client that sent no boxes.")
        self._take(KeyPhase.ROWS, self._rows, sender, rows)

    def _take(self, phase: KeyPhase, where: dict[str, bytes], sender: str, data: bytes) -> None:
        if self.phase is not phase:
            raise WrongStage("Keys of this epoch are not being agreed on in this order.")
        if sender in where:
            raise Replay("This client's keys of the epoch are here already.")
        where[sender] = data

    def boxes_for(self, name: str) -> bytes:
        """Return the boxes that the neighbours of `name` sealed for it, sorted by neighbour."""
        size, found = pair_box_bytes(len(self.slots)), []
        for peer in self.group.neighbours(name):
            place = self.group.neighbours(peer).index(name)
            sent = self._boxes.get(peer, b"")[place * size : (place + 1) * size]
            found.append(sent.ljust(size, b"\0"))
        return b"".join(found).ljust(self.width * size, b"\0")

    def forget_boxes(self) -> None:
        """Drop the boxes once they were handed on; who sent some is remembered."""
        self._boxes = dict.fromkeys(self._boxes, b"")

    def rows_of(self, slot: Slot, names: Sequence[str]) -> dict[str, bytes]:
        """Return the locked rows of one slot of some clients."""
        place = self.slots.index(slot)
        return {name: row_of(self._rows[name], place, self.width) for name in names}

    def agreement(self, slot: Slot) -> str:
        """Return the digest of what the masks of a slot rest on."""
        return agreement(self.group, self.boxed, slot)

    def holders(self, members: Sequence[str]) -> tuple[str, ...]:
        """Return who holds shares of any of these clients and is ready, sorted."""
        found = {holder for name in members for holder in self.group.holders(name)}
        return tuple(sorted(found & set(self.ready)))
