"""A tag server's session: multiplies clients' points by its share of the epoch's key (O24).

It sees who asks and when, and uniform points: as first server those that clients blinded, as second
one those times the first's share. What it keeps others from is to make tags without it,
and to test more guesses than a client's quota: one batch a client and round. What it could do
itself: use another key for somebody, which the canary shows; tell its share to the matcher and to
the other server, with which all tags are open.
"""

from __future__ import annotations

from protocols.disclosures.match.tag_service import TagDesk
from protocols.disclosures.match.wire import Kind
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, Replay
from protocols.evidence.ledger import Ledger
from protocols.plan.steps import Step
from protocols.sessions.base import Parcel
from protocols.sessions.serving import ServingSession
from protocols.wire.control import Bundle
from protocols.wire.inbox import Letter
from protocols.wire.run_context import Papers

STEPS = ((Step.POINTS, Step.ANSWERS), (Step.SECOND_POINTS, Step.SECOND_ANSWERS))
"""What the first tag server is asked and answers, then the second."""


class TagServerSession(ServingSession):
    """TAG_SERVER: holds one share of the key of tags, drawn anew every epoch."""

    def __init__(self, papers: Papers, ledger: Ledger, rounding: bytes) -> None:
        super().__init__(papers, ledger, rounding)
        self._desk = TagDesk(self.run, papers.me)
        self._round = 0  # of the latest epoch

    def die(self, error: BaseException) -> None:
        """End the session for good and forget the share of the key."""
        super().die(error)
        self._desk.forget()

    def _catalogue(self, name: str) -> int:
        """Return how many items there are, as the plan says."""
        (message,) = self.papers.find(name, Disclosure.MATCH, Step.UP).messages
        return next(field.shape[0] for field in message.fields if field.dtype == "u8")

    def _answer(self, letter: Letter) -> Parcel:
        """Return every client's points times this epoch's share."""
        name = letter.item.exchange
        asked, said = STEPS[self.run.servers.index(self.name)]
        if letter.item.step is not asked:
            raise BadEnvelope(
                "This tag server is not asked at this step: the order is fixed (O24)."
            )
        where, boxes = self._boxes(letter, Kind.POINTS)
        if where.round <= self._round:
            raise Replay("Tags of this round were made before: a client's quota is one batch.")
        self._round = where.round
        self._desk.begin(where.round)
        try:
            spread, number = self.papers.spread, where.round
            found = {n: self._desk.answer(n, number, box, spread) for n, box in boxes.items()}
        finally:
            facts = {**self._desk.report(), "exchange": where.exchange, "round": where.round}
            self.ledger.record("tags", facts)
        if self.recorder is not None:
            self.recorder.viewed(name, where, {"alone": self._desk.alone(self._catalogue(name))})
        self._desk.forget()
        answer: Bundle = self._bundle(where, Kind.ANSWER, found)
        item = self.papers.find(name, Disclosure.MATCH, said)
        return self.send(item, [answer], letter.header.sender, where)


TagServerSession.takes = {(Disclosure.MATCH, asked): TagServerSession._answer for asked, _ in STEPS}
