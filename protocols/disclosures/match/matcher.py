"""The matcher's part: compares tags that it cannot make (O24, O25)."""

from __future__ import annotations

from typing import ClassVar

from protocols.disclosures.match.bundles import bundled, read_bundle, run_of
from protocols.disclosures.match.protocol.tag_service import MatcherDesk
from protocols.disclosures.match.protocol.wire import Kind
from protocols.disclosures.names import Disclosure
from protocols.plan.steps import Step
from protocols.sessions.part import Engine, Parcel, Scope, SessionPart, Takes
from protocols.sessions.table import Event
from protocols.wire.control import Canary
from protocols.wire.inbox import Letter


class TagMatcher(SessionPart):
    """Finds equal tags; makes cells once, and tells each client its own."""

    called: ClassVar[str] = "tags"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._desk = MatcherDesk(run_of(engine.papers), engine.papers.me)

    def forget(self, scope: Scope) -> None:
        """Drop the tags once the session is over."""
        if scope is Scope.RUN:
            self._desk.tags = {}

    def _answer(self, letter: Letter) -> list[Parcel]:
        """Return a box for every client whose tags are here, and the digest of their canary."""
        self._engine.move(Event.MATCH)
        where, boxes = read_bundle(self._engine, letter, Kind.TAGS)
        found = self._desk.match(where.round, boxes)
        facts = {
            "canary": self._desk.digest.hex(),
            "cells": self._desk.cells,
            "clients": len(boxes),
            "exchange": where.exchange,
            "round": where.round,
        }
        self._engine.record("match", facts)
        kind = run_of(self._papers).found
        answer = [bundled(self._papers, where, kind, found), Canary(canary=self._desk.digest)]
        name = letter.item.exchange
        if self._engine.recorder is not None:
            view = {client: tags.tobytes() for client, tags in self._desk.tags.items()}
            self._engine.recorder.viewed(name, where, view)
        self._desk.tags = {}
        item = self._papers.find(name, Disclosure.MATCH, Step.COMPARED)
        return [self._engine.send(item, answer, letter.header.sender, where)]

    takes: ClassVar[Takes] = {(Disclosure.MATCH, Step.COMPARE): _answer}


MATCHER = TagMatcher
