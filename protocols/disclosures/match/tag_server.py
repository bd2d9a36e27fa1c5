"""The tag server's part: multiplies clients' points by its share of the epoch's key (O24)."""

from __future__ import annotations

from typing import ClassVar

from protocols.disclosures.match.protocol.bundles import bundled, read_bundle, run_of
from protocols.disclosures.match.protocol.tag_service import TagServerSide
from protocols.disclosures.match.protocol.wire import Kind, MatchRun
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, Replay
from protocols.plan.steps import Step
from protocols.sessions.part import Delivery, Engine, Scope, SessionPart, Takes
from protocols.sessions.table import Event
from protocols.wire.inbox import Incoming
from protocols.wire.where import Where

STEPS = ((Step.POINTS, Step.ANSWERS), (Step.SECOND_POINTS, Step.SECOND_ANSWERS))
"""What the first tag server is asked and answers, then the second."""


class TagService(SessionPart):
    """Holds one share of the key of tags, drawn anew every epoch."""

    called: ClassVar[str] = "tags"
    part: ClassVar[Disclosure] = Disclosure.MATCH
    entry: ClassVar[str] = "tags"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._made: TagServerSide | None = None
        self._round = 0  # of the latest epoch

    def _run(self) -> MatchRun:
        return run_of(self._context)

    @property
    def _side(self) -> TagServerSide:
        if self._made is None:  # a tag server may be there for another disclosure's tags alone
            self._made = TagServerSide(self._run(), self._context.me)
        return self._made

    def forget(self, scope: Scope) -> None:
        """Drop the share of the key once the session is over."""
        if scope is Scope.RUN and self._made is not None:
            self._made.forget()

    def _catalogue(self, name: str) -> int:
        """Return how many items there are, as the plan says."""
        (message,) = self._context.find(name, self.part, Step.UP).messages
        return next(field.shape[0] for field in message.fields if field.dtype == "u8")

    def _view(self, name: str, where: Where) -> None:
        """Keep what this server could make of the catalogue alone, for audits (A02)."""
        if self._engine.recorder is not None:
            alone = self._side.alone(self._catalogue(name))
            self._engine.recorder.viewed(name, where, {"alone": alone})

    def _answer(self, incoming: Incoming) -> list[Delivery]:
        """Return every client's points times this epoch's share."""
        self._engine.move(Event.STEP)
        name = incoming.item.exchange
        run = self._run()
        asked, said = STEPS[run.servers.index(self._engine.name)]
        if incoming.item.step is not asked:
            raise BadEnvelope(
                "This tag server is not asked at this step: the order is fixed (O24)."
            )
        where, boxes = read_bundle(self._engine, incoming, Kind.POINTS, run)
        if where.round <= self._round:
            raise Replay("Tags of this round were made before: a client's quota is one batch.")
        self._round = where.round
        self._side.begin(where.round)
        try:
            spread, number = self._context.spread, where.round
            found = {n: self._side.answer(n, number, box, spread) for n, box in boxes.items()}
        finally:
            facts = {**self._side.report(), "exchange": where.exchange, "round": where.round}
            self._engine.record(self.entry, facts)
        self._view(name, where)
        self._side.forget()
        answer = bundled(run, where, Kind.ANSWER, found)
        item = self._context.find(name, self.part, said)
        return [self._engine.send(item, [answer], incoming.header.sender, where)]

    takes: ClassVar[Takes] = {
        (Disclosure.MATCH, Step.POINTS): _answer,
        (Disclosure.MATCH, Step.SECOND_POINTS): _answer,
    }


TAG_SERVER = TagService
