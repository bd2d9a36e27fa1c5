"""The aggregator's side of an epoch's keys: who was called, who answered, whose rows are here.

It relays boxes that it cannot open, and keeps rows that it can open only when enough holders give
their shares of a client's seed. It keeps the envelope with the epoch's public keys, to hand it out
again to whoever may have missed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum

from protocols.disclosures.sum.masks import row_of
from protocols.errors import NotInPlan, Replay, WrongStage
from protocols.keys.groups import Group, Slot, agreement, planned_degree, slots
from protocols.keys.pairs import pair_box_bytes
from protocols.wire.roster import as_set
from protocols.wire.run_context import RunContext


def width_of(context: RunContext) -> int:
    """Return for how many neighbours of a client messages of a run have room."""
    plan, policy = context.plan, context.policy
    if plan.drawn is None:
        return planned_degree(len(plan.clients), policy)
    return planned_degree(plan.drawn.largest, policy, plan.drawn.within)


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
        cohorts: who agrees with whom: all clients, or each cohort that lots drew by itself.
        within: how many of one drawn cohort may be corrupt; None: nobody drew lots.
    """

    def __init__(
        self,
        context: RunContext,
        epoch: int,
        round: int,
        exchange: int,
        cohorts: Sequence[Sequence[str]] = (),
        within: int | None = None,
    ) -> None:
        self.epoch, self.round, self.exchange = epoch, round, exchange
        called, facts = cohorts or (context.roster.clients,), (context.policy, within)
        self.groups = tuple(Group.of(context.run, epoch, names, *facts) for names in called)
        self.slots = slots(context.plan.items, context.plan.rounds, context.policy, epoch)
        self.width = width_of(context)
        self.phase = KeyPhase.KEY
        self.offer = b""  # the envelope with the epoch's public keys, as it came
        self._having: set[str] = set()
        self._lacking: set[str] = set()
        self._boxes: dict[str, bytes] = {}
        self._rows: dict[str, bytes] = {}

    @property
    def group(self) -> Group:
        """The only group, where lots drew no cohorts; else the first."""
        return self.groups[0]

    def group_of(self, members: Sequence[str]) -> Group:
        """Return the group of some clients: the one that holds the first of them.

        Raises:
            NotInPlan: none does.
        """
        if len(self.groups) == 1:
            return self.group
        found = (g for g in self.groups if members and members[0] in as_set(g.called))
        if (group := next(found, None)) is None:
            raise NotInPlan("A client that was not called for this epoch's keys is named.")
        return group

    def there(self, group: Group) -> tuple[str, ...]:
        """Return whose boxes are here of a group, sorted."""
        return tuple(name for name in self.boxed if name in as_set(group.called))

    def taken_by(self, names: Iterable[str]) -> None:
        """Note who answered under this epoch's public keys, and so has them."""
        self._having.update(names)
        self._lacking.difference_update(names)

    def missed_by(self, names: Iterable[str]) -> None:
        """Note who may be without them: a client that was asked in vain, or a witness."""
        self._lacking |= {*names} - self._having

    def lacks(self, name: str) -> bool:
        """Tell whether a party may be without this epoch's public keys."""
        return bool(self.offer) and name in self._lacking

    @property
    def handed(self) -> tuple[str, ...]:
        """Whose boxes are handed on, sorted: of drawn cohorts, of those that are large enough."""
        if not self.group.drawn:
            return self.boxed
        there = (self.there(group) for group in self.groups if self._enough(group))
        return tuple(sorted(name for names in there for name in names))

    def _enough(self, group: Group) -> bool:
        return group.thinnest(self.there(group)) >= group.window

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
        size, found, group = pair_box_bytes(len(self.slots)), [], self.group_of((name,))
        for peer in group.neighbours(name):
            place = group.neighbours(peer).index(name)
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

    def agreement(self, slot: Slot, members: Sequence[str] = ()) -> str:
        """Return the digest of what the masks of a slot rest on, in a sum of these clients."""
        group = self.group_of(members)
        return agreement(group, self.there(group), slot)

    def holders(self, members: Sequence[str]) -> tuple[str, ...]:
        """Return who holds shares of any of these clients and is ready, sorted."""
        group = self.group_of(members)
        found = {holder for name in members for holder in group.holders(name)}
        return tuple(sorted(found & set(self.ready)))
