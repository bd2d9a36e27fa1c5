"""The aggregator's part where an Ask goes out and its answers come in."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, cast

from crypto.samplers import entropy
from protocols.disclosures.names import Disclosure
from protocols.errors import WrongStage
from protocols.messages import Message
from protocols.plan.steps import Service, Step
from protocols.rounds import Given
from protocols.sessions.asking import Asked
from protocols.sessions.engine import Phase
from protocols.sessions.epoch_keys import EpochKeys
from protocols.sessions.heads import Heads
from protocols.sessions.part import IDLE, Collection, Delivery, Engine, SessionPart, Stages, Takes
from protocols.wire.codec import encode
from protocols.wire.control import Boxes, Call
from protocols.wire.envelope import Where
from protocols.wire.inbox import Incoming
from protocols.wire.roster import SHARED, bytes_digest

_WAITING = "waiting"


class Calling(SessionPart):
    """Hands an Ask out and collects the answers; its phase is ANSWERS.

    Args:
        engine: the session.
        asked: the Ask under way.
        heads: whose root and places go out with every Ask.
        keys: the epoch's, which go before it to whoever may be without them.
    """

    phase: ClassVar[int | None] = Phase.ANSWERS
    stages: ClassVar[Stages] = {IDLE: {_WAITING}}

    def __init__(self, engine: Engine, asked: Asked, heads: Heads, keys: EpochKeys) -> None:
        super().__init__(engine)
        self._asked, self._heads, self._keys = asked, heads, keys

    def wanted(self) -> bool:
        """Tell that every Ask goes out."""
        return True

    def enter(self) -> Iterable[Delivery]:
        """Return an Ask's envelopes, with what was opened for it."""
        held, context = self._asked.held, self._context
        exchange, members = held.exchange, held.members
        self.go(_WAITING)
        item = context.find(exchange.name, Service.ASK, Step.DOWN)
        parts = self._engine.parts.values()
        slot = max(part.slot(exchange, held.round, members) for part in parts)
        root, places = self._heads.places()
        mask = context.roster.mask(members)
        call = Call(members=mask, slot=slot, nonce=entropy(16), heads=root)
        handed = [self._alike(given) for given in held.handed]
        messages = [given for given in handed if isinstance(given, Message)]
        dims = context.dims(item)
        # Encoded once for all: what a digest is of is what everybody gets.
        to_all = [m for m in (call, *held.beside, *messages) if m.disclosure in SHARED]
        shared = {m: encode([m], dims) for m in to_all}
        given = bytes_digest([(type(m), data) for m, data in shared.items()])
        where = Where(held.round, held.number, members, given, slot=slot)
        answers = Collection(context, exchange, where)
        self._asked.collect(answers)
        for part in parts:
            part.going_out(answers)
        self._heads.write_down(root, where)

        def asked(member: str) -> Delivery:
            own = [self._own(given, member) for given in handed]
            said = [call, places[member], *held.beside, *own]
            return self._engine.send(item, said, member, where, shared)

        return (one for member in members for one in (*self._keys.again(member), asked(member)))

    def _alike(self, given: Given) -> Given:
        """Return what all members get of a token that hands all of them the same."""
        found = (part.alike(given) for part in self._engine.parts.values())
        return next((message for message in found if message is not None), given)

    def _own(self, given: Given, member: str) -> Message:
        """Return what one member is given."""
        if isinstance(given, Message):
            return given
        found = (part.handed(given, member) for part in self._engine.parts.values())
        own = next((message for message in found if message is not None), None)
        if own is not None:
            return own
        delivery = given._deliveries[member]
        return Boxes(boxes=delivery) if isinstance(delivery, bytes) else cast(Message, delivery)

    def advance(self) -> None:
        """Wait no longer: who has not answered has vanished."""

    def _take_answer(self, incoming: Incoming) -> None:
        if self.stage != _WAITING:
            raise WrongStage("An answer arrived while nothing was asked.")
        self._asked.answers.add(incoming)

    takes: ClassVar[Takes] = dict.fromkeys(
        [(Service.ASK, Step.ACK), *((disclosure, Step.UP) for disclosure in Disclosure)],
        _take_answer,
    )
