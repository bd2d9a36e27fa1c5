"""The Ask that is under way at the aggregator: what goes out, what came back, and the reply."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from protocols.errors import LocalProtocolError
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.rounds import Given, Reply
from protocols.sessions.collection import Collection
from protocols.sessions.part import Engine, Scope, SessionPart
from protocols.wire.where import Where


@dataclass
class Held:
    """An Ask that is to go out.

    Attributes:
        exchange: of the form.
        round: its round.
        number: of the exchange.
        members: who is asked.
        handed: what they are given.
        beside: what the layer gives them besides: their cluster, where the form splits.
    """

    exchange: Exchange
    round: int
    number: int
    members: tuple[str, ...]
    handed: tuple[Given, ...]
    beside: tuple[Message, ...] = ()

    @property
    def where(self) -> Where:
        """Its place, before it is known what is given."""
        return Where(self.round, self.number, self.members)


class Asked(SessionPart):
    """Holds one Ask from its beginning to its reply."""

    apart: ClassVar[frozenset[str]] = frozenset({"_reply"})  # kept as a piece of its own

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._held: Held | None = None
        self._collection: Collection | None = None
        self._reply: Reply | None = None

    def hold(self, held: Held) -> None:
        """Begin an Ask."""
        self._held = held

    @property
    def held(self) -> Held:
        """The Ask that is to go out."""
        if self._held is None:
            raise LocalProtocolError("No Ask is to go out.")
        return self._held

    def collect(self, collection: Collection) -> None:
        """Note that the Ask goes out, and where its answers are collected."""
        self._held, self._collection = None, collection

    @property
    def answers(self) -> Collection:
        """What came back so far."""
        if self._collection is None:
            raise LocalProtocolError("Nothing was asked.")
        return self._collection

    def finish(self) -> None:
        """Make the reply of what the answers amount to."""
        self._reply = self.answers.reply()

    @property
    def reply(self) -> Reply | None:
        """What the Ask brought back; None until it is here."""
        return self._reply

    def forget(self, scope: Scope) -> None:
        """Drop what was not used of an Ask (O9)."""
        if scope is Scope.ASK:
            self._held = self._collection = self._reply = None
