"""A client's pair secrets of an epoch, agreed on with its neighbours (O6)."""

from __future__ import annotations

from typing import ClassVar

from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope
from protocols.keys.common import CommonKey
from protocols.keys.groups import Group
from protocols.keys.pairs import Pairs
from protocols.keys.setup import width_of
from protocols.keys.slots import epoch_of, slots
from protocols.plan.steps import Service, Step
from protocols.sessions.drawing.drawn import Drawn
from protocols.sessions.part import Delivery, Engine, Scope, SessionPart, Takes
from protocols.sessions.services.progress import Progress
from protocols.sessions.table import Event
from protocols.wire.control import PairBoxes, PairCall, PairDown, PairRows
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role
from protocols.wire.where import Where


class PairSecrets(SessionPart):
    """Agrees on an epoch's secrets; the run's context holds them while the session lives.

    Args:
        engine: the session.
        progress: how far this client is.
        drawn: the run's cohorts, where lots draw them: keys are agreed on in one's own.
    """

    called: ClassVar[str] = "pairs"

    def __init__(self, engine: Engine, progress: Progress, drawn: Drawn) -> None:
        super().__init__(engine)
        self._progress, self._drawn, self.epoch = progress, drawn, -1

    def begin(self) -> None:
        """Begin without secrets: a new session agrees on new ones (O6)."""
        self._context.pairs = None
        if not any(i.part in (Service.KEYS, Service.PAIRS) for i in self._context.plan.items):
            self._engine.move(Event.BEGIN)

    def forget(self, scope: Scope) -> None:
        """Drop the secrets once the session is over."""
        if scope is Scope.RUN:
            self._context.pairs = None

    def agreed(self, round: int) -> Pairs | None:
        """Return the secrets of a round's epoch; None if they are not here."""
        current = epoch_of(round, self._context.policy) == self.epoch
        return self._context.pairs if current else None

    def _take_call(self, incoming: Incoming) -> list[Delivery]:
        """Draw this epoch's secrets; seal for each neighbour its half and its shares."""
        context = self._context
        call = self._engine.read_one(incoming, PairCall)
        all_pairs = self._drawn.planned is None
        if not all_pairs and not self._drawn.cohorts:
            return []  # what lots drew never came here: this client sits the run out
        epoch = self._progress.new_epoch(incoming, self.epoch)
        self._engine.move(Event.PAIR)
        called = context.roster.unmask(call.members)
        if called != (context.roster.clients if all_pairs else self._drawn.of(self._engine.name)):
            # Who chose the called could choose everybody's neighbours.
            raise BadEnvelope(
                "A call for an epoch's keys does not name all clients, or the cohort."
            )
        self._engine.forget(Scope.EPOCH)
        within = self._drawn.within if self._drawn.cohorts else None
        group = Group.of(context.run, epoch, called, context.policy, within)
        facts = context.plan.items, context.plan.rounds, context.policy, epoch
        places, alone = slots(*facts), slots(*facts, Disclosure.NEIGHBOUR_SUM)
        width = width_of(context)
        common = CommonKey() if context.pairs is None else context.pairs.common
        who = context.me, context.roster
        context.pairs = Pairs(*who, group, places, width, common, alone)
        self.epoch = epoch
        return [self._control(Step.BOXES, PairBoxes(boxes=context.pairs.boxes()), incoming)]

    def _take_pairs(self, incoming: Incoming) -> list[Delivery]:
        """Open the neighbours' boxes, check who sealed them, and leave the locked rows."""
        self._engine.move(Event.PAIR)
        context = self._context
        down = self._engine.read_one(incoming, PairDown)
        epoch = epoch_of(incoming.header.round, context.policy)
        if context.pairs is None or epoch != self.epoch:
            raise BadEnvelope("Pair secrets arrived that were not asked for.")
        there = context.roster.unmask(down.members)
        context.policy.check_cohort(len(there))
        context.pairs.take(down.boxes, there)
        return [self._control(Step.ROWS, PairRows(rows=context.pairs.rows()), incoming)]

    def _control(self, step: Step, message: PairBoxes | PairRows, incoming: Incoming) -> Delivery:
        header = incoming.header
        where = Where(round=header.round, exchange=header.exchange)
        item = self._context.find("", Service.PAIRS, step)
        return self._engine.send(
            item, [message], self._context.roster.one(Role.AGGREGATOR).name, where
        )

    takes: ClassVar[Takes] = {
        (Service.PAIRS, Step.CALL): _take_call,
        (Service.PAIRS, Step.DOWN): _take_pairs,
    }
