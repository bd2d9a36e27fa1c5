"""The relay's part: takes the senders off a cohort's messages, and reads none of them (O23)."""

from __future__ import annotations

import hashlib
import hmac
from typing import ClassVar

from crypto.errors import CryptoError
from crypto.hpke import SEAL_OVERHEAD
from protocols.disclosures._relayed.boxes import boxes_each, cut_boxes, shuffled
from protocols.disclosures._relayed.messages import Batch, Pool
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, Replay
from protocols.plan.plan import Item
from protocols.plan.steps import Step
from protocols.sessions.engine import Answering
from protocols.sessions.part import Delivery, Engine, Event, SessionPart, Takes
from protocols.wire.envelope import Header, Where
from protocols.wire.inbox import Incoming, Wanted, place_of, verified

_Sealed = list[tuple[Header, bytes]]
"""Headers of a batch, each with the body that its client sealed to the relay."""


_Relayed = tuple[str, int, frozenset[str], frozenset[str]]
"""Item, exchange, who was asked, whose boxes."""


class BatchRelay(SessionPart):
    """Returns all clients' boxes in one random order, once an exchange.

    Args:
        engine: the session.
        answering: makes durable what is about to be relayed.
    """

    called: ClassVar[str] = "batches"
    lasting: ClassVar[frozenset[str]] = frozenset({"_relayed"})

    def __init__(self, engine: Engine, answering: Answering) -> None:
        super().__init__(engine)
        self._answering = answering
        self._relayed: dict[int, list[_Relayed]] = {}  # by round

    def _relay(self, incoming: Incoming) -> list[Delivery]:
        """Return one Ask's boxes without their senders."""
        self._engine.move(Event.STEP)
        request = self._engine.read_one(incoming, Batch)
        header, name, part = incoming.header, incoming.item.exchange, incoming.item.part
        up = self._context.find(name, part, Step.UP)
        members = self._context.roster.unmask(request.members)
        sealed = self._verified(request, header, up, members)
        if not self._answering.again:
            self._once(header, up, members, [one.sender for one, _ in sealed])
            self._answering.before_opening(incoming)
        item = self._context.find(name, part, Step.RELAYED)
        pool = b"".join(shuffled(self._boxes(sealed, up)))
        where = Where(header.round, header.exchange, members, header.given, header.attempt)
        padded = pool.ljust(item.dims["pool"], b"\0")
        return [self._engine.send(item, [Pool(boxes=padded)], header.sender, where)]

    def _verified(
        self, request: Batch, header: Header, up: Item, members: tuple[str, ...]
    ) -> _Sealed:
        """Return each client's signed header with its body, as large as everybody's.

        Raises:
            BadEnvelope: unsigned, foreign, contradictory or repeated headers, or another body than
                the one that was signed.
            CohortTooSmall: fewer clients than the policy's minimum.
        """
        wanted = Wanted(
            items=frozenset((up.id,)),
            members=members,
            key=self._context.me.party.seal.key_id,
            recipient=header.sender,
            place=place_of(header),
            given=header.given,
        )
        headers = [one for one, _ in verified(request.headers, wanted, self._context)]
        if header.cohort != headers[0].cohort:
            raise BadEnvelope("The cohort is not the one that its members signed.")
        size, found = up.body + SEAL_OVERHEAD, []
        data = memoryview(request.bodies)
        if any(data[len(headers) * size :]):
            raise BadEnvelope("There are bytes behind the batch.")
        for place, one in enumerate(headers):
            body = bytes(data[place * size : (place + 1) * size])
            if not hmac.compare_digest(one.body, hashlib.sha256(body).hexdigest()):
                raise BadEnvelope("A batch holds another body than the one that a client signed.")
            found.append((one, body))
        return found

    def _boxes(self, sealed: _Sealed, up: Item) -> list[bytes]:
        """Open every client's seal; what is inside stays sealed to the aggregator.

        Raises:
            BadEnvelope: it does not open, or a box is there twice.
        """
        opened = []
        for header, body in sealed:
            try:
                inner = self._context.me.opening.open(header.encode(without_body=True), body)
            except CryptoError as error:
                raise BadEnvelope("A client's boxes do not open with the relay's key.") from error
            opened.append(inner)
        return cut_boxes(b"".join(opened), up.body // boxes_each(self._context.plan, up))

    def _once(
        self, header: Header, up: Item, members: tuple[str, ...], survivors: list[str]
    ) -> None:
        """Relay every exchange once, and hold a round to one set of survivors (O5)."""
        cohort, left = frozenset(members), frozenset(survivors)
        for item, exchange, others, stayed in self._relayed.get(header.round, []):
            if (item, exchange) == (up.id, header.exchange):
                raise Replay("This exchange was already relayed.")
            if left & stayed and left != stayed:
                raise BadEnvelope("Two different overlapping cohorts in one round (O5).")
            if cohort & others and left & others != stayed & cohort:
                raise BadEnvelope("A client vanished and came back within one round (O5).")
        self._relayed.setdefault(header.round, []).append((up.id, header.exchange, cohort, left))
        facts: dict[str, object] = {
            "cohort": header.cohort,
            "exchange": header.exchange,
            "item": up.id,
            "members": len(members),
            "round": header.round,
            "survivors": len(left),
        }
        self._engine.record("relay", facts)

    takes: ClassVar[Takes] = {
        (Disclosure.MIXED, Step.RELAY): _relay,
        (Disclosure.NOISED, Step.RELAY): _relay,
    }
