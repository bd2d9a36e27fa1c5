"""Tells a party's status file what the aggregator's rounds do; changes nothing of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from protocols.errors import RoundLost
from protocols.rounds import Round
from protocols.sessions.engine import Delivery
from secure_fgl.run.driver import Driver, Meter
from secure_fgl.run.parties import Parties
from secure_fgl.sites.status import StatusFile
from secure_fgl.transports import Transport

S = TypeVar("S")


class ToldTransport:
    """A transport that notes who is asked, who has answered, and how many bytes it took.

    Who answers while others are still awaited is known to the transport beneath alone. One that
    has an attribute `heard` calls it with each party's name; of another one nobody counts as away.
    """

    def __init__(self, inner: Transport, status: StatusFile) -> None:
        self._inner, self._status = inner, status
        self._tells = hasattr(inner, "heard")
        if self._tells:
            told: Any = inner
            told.heard = status.heard

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Deliver, as the transport beneath does."""
        envelopes: dict[str, list[bytes]] = {}
        for delivery in deliveries:
            envelopes.setdefault(delivery.to, []).append(delivery.data)
        if envelopes:
            self._status.asked(envelopes)
        answers = self._inner.exchange(deliveries)
        self._status.answered([answer.data for answer in answers], away=self._tells)
        return answers


class ToldDriver(Driver):
    """Notes which rounds are lost."""

    def __init__(
        self, parties: Parties, transport: Transport, meter: Meter, status: StatusFile
    ) -> None:
        super().__init__(parties, ToldTransport(transport, status), meter)
        self._status = status

    def play(self, steps: Round[S], round: int) -> S:
        """Run one round; see `Driver.play`."""
        try:
            return super().play(steps, round)
        except RoundLost:
            self._status.lost(round)
            raise
