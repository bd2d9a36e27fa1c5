"""What client, matcher and tag server do to match items by tags."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from crypto.oprf import Blinded, KeyShare
from protocols.disclosures.match.disclosure import Cells, CellsView, Matchable
from protocols.disclosures.match.messages import (
    Box,
    Bundle,
    Canary,
    CellBoxes,
    CellPart,
    CellTotals,
    Listed,
)
from protocols.disclosures.match.protocol.cells import Told
from protocols.disclosures.match.protocol.client import ClientMatching, MatchStep
from protocols.disclosures.match.protocol.tag_service import MatcherSide, TagServerSide
from protocols.disclosures.match.protocol.tagging import TagBatch, Tags, TagServer
from protocols.disclosures.match.protocol.wire import Broker, Kind, MatchRun
from protocols.disclosures.match.run import MatchSide, held, match_run_of
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, LocalProtocolError, Replay
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.plan.steps import Step
from protocols.sessions.part import Delivery, Engine, Event, Scope, SessionPart, Takes
from protocols.wire.control import Acknowledgement
from protocols.wire.envelope import Where
from protocols.wire.inbox import Incoming
from protocols.wire.run_context import RunContext

# The client's part while items are matched: tags, then a cell and shares for it (O24, O25).
#
# In the form `published` the matcher's lists take the place of the cell. What belongs to an Ask is
# answered once, in order, and for that Ask only; `protocols.disclosures.match.run` holds the
# matcher and the tag servers to what a client can see.

_STEPS = tuple(
    (Disclosure.MATCH, step) for step in (Step.HALFWAY, Step.TAGGED, Step.TOLD, Step.MATES)
)


class Matched(SessionPart):
    """Answers the steps of a matching between this client's answer and the totals of all cells."""

    opens: ClassVar[tuple[type[Message], ...]] = (CellTotals, Listed)

    def begin(self) -> None:
        """Take part in the run's matching, if there is one."""
        context, run = self._context, match_run_of(self._context)
        if run is not None:
            mine = MatchSide(run, context.me, context.tag_key, context.spread)
            context.held = {**context.held, Disclosure.MATCH: mine}  # contexts are copied

    def forget(self, scope: Scope) -> None:
        """Drop the tags and their key once the session is over (O9)."""
        if scope is Scope.RUN:
            self._context.held, self._context.tag_key = {}, None

    @property
    def _side(self) -> MatchSide:
        return held(self._context)

    def _take_match(self, incoming: Incoming) -> list[Delivery]:
        """Answer one step of matching."""
        self._engine.move(Event.STEP)
        side, header, context = self._side, incoming.header, self._context
        where = side.where
        place = (header.round, header.exchange, where.members, header.given, header.attempt)
        side.check(Where(*place))
        if header.cohort != context.cohort(where):
            raise BadEnvelope("What was matched belongs to another cohort.")
        name = incoming.item.exchange
        message = self._engine.read_one(incoming, Box)
        steps = {
            Step.HALFWAY: self._halfway,
            Step.TAGGED: self._tagged,
            Step.TOLD: self._told,
            Step.MATES: self._mates,
        }
        step, said = steps[incoming.item.step](name, message.boxes)
        return [self._engine.send(self._item(name, step), [said], header.sender, where)]

    def _item(self, name: str, step: Step) -> Item:
        return self._context.find(name, Disclosure.MATCH, step)

    def _halfway(self, name: str, boxes: bytes) -> tuple[Step, Message]:
        return Step.ONWARD, Box(boxes=self._side.forward(boxes))

    def _tagged(self, name: str, boxes: bytes) -> tuple[Step, Message]:
        side = self._side
        found = side.hand_over(boxes)
        # Before the tags leave: whoever gets another key may never be told of its cell (O24).
        facts = {"canary": side.digest, "exchange": side.where.exchange, "round": side.where.round}
        self._engine.record("canary", facts)
        return Step.TAGS, Box(boxes=found)

    def _told(self, name: str, boxes: bytes) -> tuple[Step, Message]:
        side, roster = self._side, self._context.roster
        if side.published:
            side.take(boxes)
            self._compared(name, side)
            return Step.TAKEN, Acknowledgement()
        cell, members, shares = side.share(boxes)
        self._compared(name, side)
        padded = shares.ljust(self._item(name, Step.SPLIT).dims["match_boxes"], b"\0")
        return Step.SPLIT, CellBoxes(cell=cell, members=roster.mask(members), boxes=padded)

    def _mates(self, name: str, boxes: bytes) -> tuple[Step, Message]:
        label, words = self._side.add(boxes)
        return Step.PART, CellPart(label=label, words=words)

    def unsealed(self, kind: type[Message], message: Message, name: str, where: Where) -> Message:
        """Return what was found as the message that the algorithm reads."""
        if not isinstance(message, CellTotals | Listed):
            raise LocalProtocolError("This says nothing of a matching.")
        return self._side.found(kind, message, self._context.plan.dims, where)

    def _compared(self, name: str, side: MatchSide) -> None:
        """Put the canary's digest into the ledger, for an audit to compare with all others'."""
        facts = {
            "canary": side.digest,
            "cells": side.cells,
            "exchange": side.where.exchange,
            "round": side.where.round,
        }
        self._engine.record("match", facts)
        if self._engine.recorder is not None:
            self._engine.recorder.tagged(name, side.where, side.tagged)

    takes: ClassVar[Takes] = dict.fromkeys(_STEPS, _take_match)


CLIENT = Matched


# Bundles of boxes, one of each client: what tag servers and the matcher are sent and answer.


def run_of(context: RunContext) -> MatchRun:
    """Return what all parties of the matching agree on."""
    found = match_run_of(context)
    if found is None:
        raise LocalProtocolError("Nothing is matched in this run.")
    return found


def read_bundle(
    engine: Engine, incoming: Incoming, kind: Kind, run: MatchRun
) -> tuple[Where, dict[str, bytes]]:
    """Return where a bundle belongs, and its boxes by client.

    Raises:
        BadEnvelope: the cohort is not the one that the header names, or a stranger's box.
        CohortTooSmall: fewer clients than the policy's minimum are in it.
    """
    bundle = engine.read_one(incoming, Bundle)
    header, context = incoming.header, engine.context
    members = context.roster.unmask(bundle.members)
    where = Where(header.round, header.exchange, members, header.given, header.attempt)
    if header.cohort != context.cohort(where) or header.attempt != 1:
        raise BadEnvelope("A bundle's cohort is not the one that its header names.")
    boxes = cut_bundle(run, kind, bundle.bundle)
    if set(boxes) - set(members):
        raise BadEnvelope("A bundle holds a box from outside its cohort.")
    context.policy.check_cohort(len(boxes))
    return where, boxes


def bundled(run: MatchRun, where: Where, kind: Kind, boxes: Mapping[str, bytes]) -> Bundle:
    """Return a cohort's boxes as one message."""
    members = run.roster.mask(where.members)
    return Bundle(members=members, bundle=bundle_of(run, kind, boxes))


def bundle_of(run: MatchRun, kind: Kind, boxes: Mapping[str, bytes]) -> bytes:
    """Return boxes by roster client, zeros where there is none."""
    empty = bytes(run.length(kind))
    return b"".join(boxes.get(name, empty) for name in run.roster.clients)


def cut_bundle(run: MatchRun, kind: Kind, data: bytes) -> dict[str, bytes]:
    """Return the boxes of a bundle by client; raises BadEnvelope for another size."""
    size, clients = run.length(kind), run.roster.clients
    if len(data) != size * len(clients):
        raise BadEnvelope("A bundle does not have the planned size.")
    cut = {name: data[at * size : (at + 1) * size] for at, name in enumerate(clients)}
    return {name: box for name, box in cut.items() if any(box)}


# The matcher's part: compares tags that it cannot make (O24, O25).


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


# The tag server's part: multiplies clients' points by its share of the epoch's key (O24).

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


KEPT = (
    *(Blinded, Broker, Cells, CellsView, ClientMatching, KeyShare, Matchable, MatcherSide),
    *(MatchRun, MatchSide, MatchStep, TagBatch, TagServerSide, Tags, TagServer, Told),
)
