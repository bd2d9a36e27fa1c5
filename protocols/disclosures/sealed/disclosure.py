"""SEALED: its rules, plan, words, protection and answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from protocols.disclosures._base.plan import Planning
from protocols.disclosures._base.protect import Protection, Release
from protocols.disclosures._base.rules import Rules
from protocols.disclosures._base.view import Answers, OneVerb
from protocols.disclosures._base.words import NETWORK, Chain, Words
from protocols.disclosures.names import Disclosure
from protocols.forms import Exchange
from protocols.keys.pairs import box_bytes, by_peers, close_boxes
from protocols.messages import Message
from protocols.plan.builder import UP, PlanBuilder, Times
from protocols.plan.plan import Item
from protocols.plan.steps import Step
from protocols.policy.guard import Guard
from protocols.rounds import Sealed, View
from protocols.wire.control import Boxes
from protocols.wire.envelope import Header

# Which guard a SEALED message has.


class SealedRules(Rules):
    """Sealed to the party that opens it."""

    protecting = frozenset({"seal"})
    applied = protecting


RULES = SealedRules()


# The plan items of rows that clients address to each other.


class SealedPlanning(Planning):
    """One box for every client, sealed to it alone."""

    def up(
        self, plan: PlanBuilder, name: str, kinds: tuple[type[Message], ...], times: Times
    ) -> None:
        """Add the boxes of an Ask."""
        size = sum(box_bytes(kind, plan.dims) for kind in kinds) * len(plan.clients)
        place = (name, self.disclosure, Step.UP, UP, kinds, self.disclosure, times)
        plan.add(*place, body=size, boxed=True)

    def handed_down(self, kind: type[Message], chain: Sequence[Guard]) -> type[Message]:
        """Return what holds rows that peers sealed."""
        return Boxes if by_peers(kind) else kind

    def down(self, plan: PlanBuilder, exchange: Exchange, times: Times) -> dict[str, int]:
        """Return the size of all boxes that an Ask hands to one client."""
        boxes = sum(box_bytes(kind, plan.dims) for kind in exchange.given if by_peers(kind))
        return {"boxes": boxes * len(plan.clients)} if boxes else {}


PLAN = SealedPlanning(Disclosure.SEALED)


# What plans say of SEALED messages.


class SealedWords(Words):
    """Rows that one client addresses to another."""

    def learns(self, chain: Chain, network: str) -> dict[str, str]:
        """Return, per role, what a sealed message tells it."""
        return {"aggregator": "size only", "addressee": "its own row", "network": NETWORK}

    def handed(self, model: bool) -> str:
        """Return what a client is given."""
        return "what other clients addressed to it"


WORDS = SealedWords(Disclosure.SEALED)


# From one row for each client to boxes that each of them alone opens.


class SealedProtection(Protection):
    """What an algorithm seals to peers; the layer's own sealed messages are sealed as a whole."""

    def boxed(self, item: Item) -> bool:
        """Tell whether it is what clients seal to each other."""
        return (item.part, item.step) == (Disclosure.SEALED, Step.UP)

    def body(self, release: Release, header: Header, prepared: Any) -> tuple[bytes, bool]:
        """Seal each row to its client."""
        if not self.boxed(release.item):
            return super().body(release, header, prepared)
        context, where = release.context, (header.run, header.exchange, release.item.id)
        boxes = (
            close_boxes(message, context.me, context.roster, release.dims, where)
            for message in release.messages
        )
        return b"".join(boxes), False


PROTECT = SealedProtection()


# What the aggregator holds of sealed messages: boxes that only the addressed clients can open.


class HandedView(OneVerb):
    """SEALED: boxes that only the addressed clients can open; sorted by roster client."""

    verb = "handed"

    def __init__(self, kind: type[Message], boxes: Mapping[str, bytes], size: int) -> None:
        self._kind, self._boxes, self._size = kind, boxes, size

    def _answer(self, **options: Any) -> Sealed:
        roster = sorted(self._boxes)
        deliveries = {}
        for row, name in enumerate(roster):
            cut = slice(row * self._size, (row + 1) * self._size)
            deliveries[name] = b"".join(self._boxes[sender][cut] for sender in roster)
        return Sealed(self._kind, deliveries)


class Boxed(Answers):
    """The boxes of one Ask, sender by sender."""

    verb: ClassVar[str] = HandedView.verb

    def views(self) -> dict[type[Message], View]:
        """Cut each kind's boxes out of the bodies; those of clients without a body are zeros."""
        clients, bodies, start = self._context.roster.clients, self.bodies(), 0
        found: dict[type[Message], View] = {}
        for kind in self.kinds:
            size = box_bytes(kind, self.dims)
            end = start + size * len(clients)
            nothing = bytes(end - start)
            boxes = {c: bodies[c][start:end] if c in bodies else nothing for c in clients}
            found[kind], start = HandedView(kind, boxes, size), end
        return found


VIEW = Boxed
