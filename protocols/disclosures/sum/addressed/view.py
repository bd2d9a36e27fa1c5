"""What the aggregator holds of a total that one client reads: uniform residues, to be handed on."""

from __future__ import annotations

from typing import Any

from protocols.disclosures._base.view import OneVerb
from protocols.disclosures.sum.messages import BlindTotal
from protocols.messages import Message, Vector
from protocols.rounds import Given, Sealed


class AddressedView(OneVerb):
    """SUM, read by one client.

    Args:
        kind: of the summands.
        reader: who reads it.
        exchange: number of the Ask.
        answers: how many clients' values are in it.
        total: opened residues under the reader's blind.
    """

    verb = "handed"

    def __init__(
        self, kind: type[Message], reader: str, exchange: int, answers: int, total: Vector
    ) -> None:
        self._kind, self._reader = kind, reader
        self._exchange, self._answers, self._residues = exchange, answers, total

    def _answer(self, **options: Any) -> Sealed:
        data = self._residues.tobytes()
        told = BlindTotal(exchange=self._exchange, answers=self._answers, total=data)
        return Sealed(self._kind, {self._reader: told})


def handed_to(given: Given, member: str) -> Message | None:
    """Return what one member gets of the totals in a token; None if the token holds none.

    Who reads none gets a message of the same size that says nothing.
    """
    totals = given._deliveries if isinstance(given, Sealed) else {}
    found = next((one for one in totals.values() if isinstance(one, BlindTotal)), None)
    if found is None:
        return None
    nothing = BlindTotal(exchange=0, answers=0, total=bytes(len(found.total)))
    told = totals.get(member, nothing)
    return told if isinstance(told, BlindTotal) else None
