"""The matcher's session: compares tags, makes cells once, and tells each client its own (O24, O25).

It sees which tags are equal, so who has how much in common with whom, and no item, vector or total.
What it keeps others from is to read this graph. What it could do itself: make cells by another rule
(of the right size: clients check what they see), or tell a client false cells for an item, which
then gets the mean of other cells. In the form `published` it makes no cells, and hands each client
some vectors of those who hold its tags; it cannot open them, but with any client it can.
"""

from __future__ import annotations

from protocols.disclosures.match.tag_service import MatcherDesk
from protocols.disclosures.match.wire import Kind
from protocols.disclosures.names import Disclosure
from protocols.evidence.ledger import Ledger
from protocols.plan.steps import Step
from protocols.sessions.base import Parcel
from protocols.sessions.serving import ServingSession
from protocols.wire.control import Canary
from protocols.wire.inbox import Letter
from protocols.wire.run_context import Papers


class MatcherSession(ServingSession):
    """MATCHER: compares tags that it cannot make."""

    def __init__(self, papers: Papers, ledger: Ledger, rounding: bytes) -> None:
        super().__init__(papers, ledger, rounding)
        self._desk = MatcherDesk(self.run, papers.me)

    def die(self, error: BaseException) -> None:
        """End the session for good and forget the tags."""
        super().die(error)
        self._desk.tags = {}

    def _answer(self, letter: Letter) -> Parcel:
        """Return a box for every client whose tags are here, and the digest of their canary."""
        where, boxes = self._boxes(letter, Kind.TAGS)
        found = self._desk.match(where.round, boxes)
        facts = {
            "canary": self._desk.digest.hex(),
            "cells": self._desk.cells,
            "clients": len(boxes),
            "exchange": where.exchange,
            "round": where.round,
        }
        self.ledger.record("match", facts)
        kind = self.run.found
        answer = [self._bundle(where, kind, found), Canary(canary=self._desk.digest)]
        name = letter.item.exchange
        if self.recorder is not None:
            view = {client: tags.tobytes() for client, tags in self._desk.tags.items()}
            self.recorder.viewed(name, where, view)
        self._desk.tags = {}
        item = self.papers.find(name, Disclosure.MATCH, Step.COMPARED)
        return self.send(item, answer, letter.header.sender, where)


MatcherSession.takes = {(Disclosure.MATCH, Step.COMPARE): MatcherSession._answer}
