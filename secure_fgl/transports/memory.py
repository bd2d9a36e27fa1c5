"""Clients that vanish: a transport that loses envelopes on purpose, for the simulator.

What is lost is lost in transit, so the sessions meet just what they would meet in earnest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from protocols.evidence.ledger import read_lines
from protocols.plan.plan import Item, Plan
from protocols.plan.steps import Service, Step
from protocols.sessions.engine import Delivery
from protocols.wire.envelope import Envelope, Header
from secure_fgl.errors import UsageError
from secure_fgl.transports import Transport

BEFORE_UPLOAD, AFTER_UPLOAD, BEFORE_SHARES = "", "after_upload", "before_shares"


@dataclass(frozen=True)
class Drop:
    """One client vanishes once.

    Attributes:
        client: its name.
        round: when; it is back in the next one.
        moment: ``""`` before it gets the first Ask, ``after_upload`` once its first upload of the
            round is through, ``before_shares`` once it voted for a survivor list, or was asked to
            vote and give shares in one answer. From then on nothing of the round reaches it or
            comes from it: no later Ask, no acknowledgement.
    """

    client: str
    round: int
    moment: str

    def loses(self, header: Header, item: Item | None, recipient: str, last: int | None) -> bool:
        """Tell whether an envelope is lost.

        Args:
            header: of the envelope.
            item: the plan's; None if it is not planned, and then it is of no part or step.
            recipient: to whom it goes.
            last: the exchange in which the client vanished; None if it has not yet.
        """
        if self.client not in (header.sender, recipient) or header.round != self.round:
            return False
        part, step = (item.part, item.step) if item is not None else (None, None)
        if part in (Service.KEYS, Service.PAIRS, Service.DRAW):
            return False  # an epoch's keys come before the round
        if self.moment == BEFORE_UPLOAD or (last is not None and header.exchange > last):
            return True
        if self.moment == AFTER_UPLOAD:
            return step not in (Step.DOWN, Step.ACK, Step.UP)
        return step in (Step.SHARES, Step.SELF_SHARES)

    def ends(self, client: str, round: int, item: Item | None) -> bool:
        """Tell whether the client vanishes in the exchange in which this came from or to it."""
        if item is None or (client, round) != (self.client, self.round):
            return False
        last = (Step.UP,) if self.moment == AFTER_UPLOAD else (Step.VOTE, Step.ALL_HERE)
        return item.step in last


def drops(text: str, clients: Sequence[str], rounds: int) -> tuple[Drop, ...]:
    """Read ``2@3,4@5:after_upload``; raises UsageError for a client or round that is not there."""
    found = []
    for part in filter(None, text.split(",")):
        who, _, moment = part.partition(":")
        number, _, round = who.partition("@")
        if not 1 <= int(number) <= len(clients):
            raise UsageError(
                f"faults.drop names client {number}; there are {len(clients)}.",
                fix="write CLIENT@ROUND, for example 2@3",
            )
        if int(round) > rounds:
            raise UsageError(
                f"faults.drop names round {round}; the run has {rounds}.",
                fix="choose an earlier round, or set algorithm.rounds",
            )
        found.append(Drop(clients[int(number) - 1], int(round), moment))
    return tuple(found)


class FaultyTransport:
    """Loses what a vanished client would have sent or received.

    Args:
        transport: carries the rest.
        plan: says what each envelope is for.
        planned: who vanishes when.
        past: the aggregator's ledger so far: what got through before a kill.
    """

    def __init__(
        self, transport: Transport, plan: Plan, planned: Sequence[Drop], past: bytes = b""
    ) -> None:
        self._transport, self._planned = transport, tuple(planned)
        self._items = {item.id: item for item in plan.items}
        self._last: dict[Drop, int] = {}  # the exchange in which each vanished
        self.batch = getattr(transport, "batch", None)
        for entry, _ in read_lines(past):
            if entry["kind"] in ("receipt", "release"):
                client = entry["sender" if entry["kind"] == "receipt" else "recipient"]
                self._through(client, entry["round"], entry["item"], entry["exchange"])

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Deliver what is not lost; return the answers that are not lost."""
        there = [delivery for delivery in deliveries if not self._lost(delivery)]
        return [
            delivery for delivery in self._transport.exchange(there) if not self._lost(delivery)
        ]

    def _lost(self, delivery: Delivery) -> bool:
        header = Envelope.decode(delivery.data).header
        item = self._items.get(header.item)
        lost = any(d.loses(header, item, delivery.to, self._last.get(d)) for d in self._planned)
        if not lost:
            for name in (header.sender, delivery.to):
                self._through(name, header.round, header.item, header.exchange)
        return lost

    def _through(self, client: str, round: int, item: str, exchange: int) -> None:
        for drop in self._planned:
            if drop.ends(client, round, self._items.get(item)):
                self._last.setdefault(drop, exchange)


# --- In-process transport: the embedded default and the simulator. Still through bytes ---
#
# All roles run in one process, so nothing separates them but code: a run over this transport prints
# and reports "SIMULATION: roles are not separated" (O26).


class Receiver(Protocol):
    """A session that answers envelopes."""

    def receive(self, data: bytes) -> list[Delivery]:
        """Take one envelope, return the answers."""


class MemoryTransport:
    """Calls the addressed session with the delivery's bytes.

    Args:
        sessions: by party name; every role but the aggregator.

    Attributes:
        batch: of larger exchanges, so many envelopes at a time. Nothing here is lost or carried
            twice, so nothing needs to be held for that case; see `secure_fgl.run.driver.Driver`.
    """

    batch = 64

    def __init__(self, sessions: Mapping[str, Receiver]) -> None:
        self._sessions = dict(sessions)

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Deliver each and collect the answers, in order."""
        answers: list[Delivery] = []
        for delivery in deliveries:
            answers += self._sessions[delivery.to].receive(bytes(delivery.data))
        return answers
