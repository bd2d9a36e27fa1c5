"""The matcher's part: compares tags that it cannot make (O24, O25)."""

from __future__ import annotations

from typing import ClassVar

from protocols.disclosures.match.messages import Canary
from protocols.disclosures.match.protocol.bundles import bundled, read_bundle, run_of
from protocols.disclosures.match.protocol.tag_service import MatcherSide
from protocols.disclosures.match.protocol.wire import Kind
from protocols.disclosures.names import Disclosure
from protocols.plan.steps import Step
from protocols.sessions.part import Delivery, Engine, Scope, SessionPart, Takes
from protocols.sessions.table import Event
from protocols.wire.inbox import Incoming


class TagMatcher(SessionPart):
    """Finds equal tags; makes cells once, and tells each client its own."""

    called: ClassVar[str] = "tags"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._made: MatcherSide | None = None

    @property
    def _side(self) -> MatcherSide:
        if self._made is None:  # a matcher may be there for rows alone
            self._made = MatcherSide(run_of(self._context), self._context.me)
        return self._made

    def forget(self, scope: Scope) -> None:
        """Drop the tags once the session is over."""
        if scope is Scope.RUN and self._made is not None:
            self._made.tags = {}

    def _answer(self, incoming: Incoming) -> list[Delivery]:
        """Return a box for every client whose tags are here, and the digest of their canary."""
        self._engine.move(Event.STEP)
        run = run_of(self._context)
        where, boxes = read_bundle(self._engine, incoming, Kind.TAGS, run)
        found = self._side.match(where.round, boxes)
        facts = {
            "canary": self._side.digest.hex(),
            "cells": self._side.cells,
            "clients": len(boxes),
            "exchange": where.exchange,
            "round": where.round,
        }
        self._engine.record("match", facts)
        answer = [bundled(run, where, run.found, found), Canary(canary=self._side.digest)]
        name = incoming.item.exchange
        if self._engine.recorder is not None:
            view = {client: tags.tobytes() for client, tags in self._side.tags.items()}
            self._engine.recorder.viewed(name, where, view)
        self._side.tags = {}
        item = self._context.find(name, Disclosure.MATCH, Step.COMPARED)
        return [self._engine.send(item, answer, incoming.header.sender, where)]

    takes: ClassVar[Takes] = {(Disclosure.MATCH, Step.COMPARE): _answer}


MATCHER = TagMatcher
