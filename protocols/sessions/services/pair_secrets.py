"""A client's pair secrets of an epoch, agreed on with its neighbours (O6)."""

from __future__ import annotations

from typing import ClassVar

from protocols.errors import BadEnvelope
from protocols.keys.groups import Group, epoch_of, planned_degree, slots
from protocols.keys.pairs import Pairs
from protocols.plan.steps import Service, Step
from protocols.sessions.part import Engine, Parcel, Scope, SessionPart, Takes
from protocols.sessions.services.progress import Progress
from protocols.sessions.table import Event
from protocols.wire.control import PairBoxes, PairCall, PairDown, PairRows
from protocols.wire.inbox import Letter
from protocols.wire.roster import Role
from protocols.wire.where import Where


class PairSecrets(SessionPart):
    """Agrees on an epoch's secrets; the run's context holds them while the session lives.

    Args:
        engine: the session.
        progress: how far this client is.
    """

    called: ClassVar[str] = "pairs"

    def __init__(self, engine: Engine, progress: Progress) -> None:
        super().__init__(engine)
        self._progress, self.epoch = progress, -1

    def begin(self) -> None:
        """Begin without secrets: a new session agrees on new ones (O6)."""
        self._papers.pairs = None
        if not any(i.part in (Service.KEYS, Service.PAIRS) for i in self._papers.plan.items):
            self._engine.move(Event.BEGIN)

    def forget(self, scope: Scope) -> None:
        """Drop the secrets once the session is over."""
        if scope is Scope.RUN:
            self._papers.pairs = None

    def agreed(self, round: int) -> Pairs | None:
        """Return the secrets of a round's epoch; None if they are not here."""
        current = epoch_of(round, self._papers.policy) == self.epoch
        return self._papers.pairs if current else None

    def _take_call(self, letter: Letter) -> list[Parcel]:
        """Draw this epoch's secrets; seal for each neighbour its half and its shares."""
        papers = self._papers
        call = self._engine.read_one(letter, PairCall)
        epoch = self._progress.new_epoch(letter, self.epoch)
        self._engine.move(Event.PAIR)
        called = papers.roster.unmask(call.members)
        if called != papers.roster.clients:
            # Who chose the called could choose everybody's neighbours.
            raise BadEnvelope("A call for an epoch's keys does not name all clients.")
        self._engine.forget(Scope.EPOCH)
        group = Group.of(papers.run, epoch, called, papers.policy)
        places = slots(papers.plan.items, papers.plan.rounds, papers.policy, epoch)
        width = planned_degree(len(papers.plan.clients), papers.policy)
        papers.pairs = Pairs(papers.me, papers.roster, group, places, width)
        self.epoch = epoch
        return [self._control(Step.BOXES, PairBoxes(boxes=papers.pairs.boxes()), letter)]

    def _take_pairs(self, letter: Letter) -> list[Parcel]:
        """Open the neighbours' boxes, check who sealed them, and leave the locked rows."""
        self._engine.move(Event.PAIR)
        papers = self._papers
        down = self._engine.read_one(letter, PairDown)
        epoch = epoch_of(letter.header.round, papers.policy)
        if papers.pairs is None or epoch != self.epoch:
            raise BadEnvelope("Pair secrets arrived that were not asked for.")
        there = papers.roster.unmask(down.members)
        papers.policy.check_cohort(len(there))
        papers.pairs.take(down.boxes, there)
        return [self._control(Step.ROWS, PairRows(rows=papers.pairs.rows()), letter)]

    def _control(self, step: Step, message: PairBoxes | PairRows, letter: Letter) -> Parcel:
        header = letter.header
        where = Where(round=header.round, exchange=header.exchange)
        item = self._papers.find("", Service.PAIRS, step)
        return self._engine.send(
            item, [message], self._papers.roster.one(Role.AGGREGATOR).name, where
        )

    takes: ClassVar[Takes] = {
        (Service.PAIRS, Step.CALL): _take_call,
        (Service.PAIRS, Step.DOWN): _take_pairs,
    }
