"""The client's part where it reads a total: it draws the blind, keeps it a round, uses it once.

A blind is drawn from the operating system before the client answers, and is gone when its total was
read, when an Ask of a later round comes, when the epoch's keys end, and when the session does.
After a kill the kept answer leaves again, byte for byte; what was not kept is drawn anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from crypto.samplers import entropy
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.addressed.blinds import read_total
from protocols.disclosures.sum.addressed.turns import none_left, reader_of
from protocols.disclosures.sum.messages import BlindTotal
from protocols.errors import BadEnvelope, LocalProtocolError
from protocols.forms import Exchange
from protocols.keys.slots import slot_of
from protocols.messages import Message, addressed
from protocols.plan.plan import Item
from protocols.plan.steps import Step
from protocols.sessions.part import Engine, Scope, SessionPart
from protocols.wire.where import Where


class TotalReading(SessionPart):
    """Draws this client's blinds and takes them off."""

    called: ClassVar[str] = "reading"
    opens: ClassVar[tuple[type[Message], ...]] = (BlindTotal,)

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        # By number of the exchange: what was asked, where, and the seed of the blind.
        self._blinds: dict[int, tuple[str, Where, bytes]] = {}
        # Of the run, by item: the slot of the last sum that this client was asked for.
        self._turns: dict[str, tuple[int, int]] = {}

    def forget(self, scope: Scope) -> None:
        """Wipe all blinds: totals of the round or epoch that is over are read no more."""
        if scope is not Scope.ASK:
            self._wipe()

    def _wipe(self) -> None:
        self._blinds.clear()
        self._context.blind = None

    def asked_back(self, exchange: Exchange, where: Where) -> None:
        """Draw a blind if this client is to read the total of what is asked for now."""
        if any(held.round != where.round for _, held, _ in self._blinds.values()):
            self._wipe()
        self._context.blind = None
        if not any(map(addressed, exchange.back)):
            return
        item = self._context.find(exchange.name, Disclosure.SUM, Step.UP)
        self._in_turn(item, where)
        if reader_of(item, where) == self._engine.name:
            seed = entropy(32)
            self._blinds[where.exchange] = (exchange.name, where, seed)
            self._context.blind = (where.exchange, seed)

    def _in_turn(self, item: Item, where: Where) -> None:
        """Refuse a slot that is not after the last, as epochs bring new masks, or one too many.

        Raises:
            BadEnvelope: a client would read where it was another one's turn.
        """
        slot = slot_of(item, where.round, where.slot)
        turn = slot.round, slot.ordinal
        over = turn <= self._turns.get(slot.item, (-1, -1))
        if over or none_left(self._context.plan, item, where):
            raise BadEnvelope(
                "A sum is asked for in a turn that is over (O11).",
                why="the aggregator lets one client read more totals than the plan says",
                fix="nothing was sent",
            )
        self._turns[slot.item] = turn

    def unsealed(self, kind: type[Message], message: Message, name: str, where: Where) -> Message:
        """Return the total that this client reads, once, in its round; zeros if it has none.

        Raises:
            BadEnvelope: another client reads it, or it was read, or it is no total of enough, or of
                other messages.
        """
        if not isinstance(message, BlindTotal):
            raise LocalProtocolError("This is no total.")
        if not message.exchange:
            return _zeros(kind, self._context.plan.dims)
        held = self._blinds.pop(message.exchange, None)
        if held is None or held[1].round != where.round:
            raise BadEnvelope(
                "A total arrived that is not this client's to read, or that it has read.",
                why="another client's turn it was, or the aggregator hands it on twice",
                fix="nothing of it is used",
            )
        asked, place, seed = held
        least, most = self._context.policy.others, len(place.members) - 1
        if not least <= message.answers <= most:
            raise BadEnvelope(
                "A total is said to be of fewer or more clients than it can be (O10)."
            )
        item = self._context.find(asked, Disclosure.SUM, Step.UP)
        if kind.__name__ not in {summand.name for summand in item.messages}:
            raise BadEnvelope("A total of other messages was handed on than an Ask gives.")
        return read_total(self._context, item, place, kind, message, seed)


def _zeros(kind: type[Message], dims: Mapping[str, int]) -> Message:
    found = {f.name: np.zeros(f.sizes(dims), "i8" if f.wire == "u8" else "f8") for f in kind.fields}
    return kind(**{name: value if value.shape else value.item() for name, value in found.items()})
