"""Totals that one client alone reads, in its turn, under a blind of its own (O11)."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from crypto.errors import CryptoError
from crypto.masks import container, masked
from crypto.samplers import derive, entropy
from protocols.disclosures._base.view import OneVerb
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.layout import Ring, Words
from protocols.disclosures.sum.messages import BlindTotal
from protocols.errors import BadEnvelope, LocalProtocolError, UnfitMessage
from protocols.forms import Exchange
from protocols.keys.groups import slot_of
from protocols.messages import Message, Vector, addressed
from protocols.plan.plan import Item, Plan, times_in_round
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.rounds import Given, Sealed
from protocols.sessions.part import Engine, Scope, SessionPart
from protocols.wire.envelope import Where
from protocols.wire.run_context import RunContext

# Whose turn it is to read a total, and that it is among those whom the total counts.

CLIENT = "client"
"""The `reader` of a plan's item whose total one client reads."""
_NAMED = 12


def reader_of(item: Item, where: Where) -> str:
    """Return which client reads the total of an Ask; empty: the aggregator does.

    Args:
        item: under which its summands travel.
        where: its place. The slot, on which the masks rest too, says whose turn it is.
    """
    return whose_turn(where.members, where.slot) if item.reader else ""


def whose_turn(members: Collection[str], slot: int) -> str:
    """Return the reader of the sum that has so many before it in its round: all in turn, by name.

    Without clients there is none.
    """
    return sorted(members)[slot % len(members)] if members else ""


def missing(item: Item, where: Where, survivors: Collection[str]) -> bool:
    """Tell whether the one reader of a total is not among those whose uploads it counts.

    Then its blind is not in the total, and what is opened would be the others' total in clear.
    """
    reader = reader_of(item, where)
    return bool(reader) and reader not in survivors


def none_left(plan: Plan, item: Item, where: Where) -> bool:
    """Tell whether all that are asked had their turns: one of them would read once more.

    A round of fewer clients than the plan's has fewer turns.
    """
    each = times_in_round(item, where.round, plan.rounds) // len(plan.clients)
    return bool(item.reader) and where.slot >= each * len(where.members)


def turns(clients: Sequence[str]) -> str:
    """Say in words whose turn it is."""
    names = sorted(clients)
    listed = ", ".join(names[:_NAMED]) + (", ..." if len(names) > _NAMED else "")
    return f"in turn, by name, from the first sum of each round on: {listed}"


# Blinds: uniform residues that the reader of a total uploads in the place of a value.


def in_clear(context: RunContext, item: Item) -> bool:
    """Tell whether an Unsafe chain brings summands in clear: a blind would hide nothing."""
    return find(context.policy.chain(item.disclosure), "unsafe_clear") is not None


def blind_of(context: RunContext, item: Item, where: Where, ring: Ring) -> Words | None:
    """Return what this client uploads if it reads this total: its blind, shape (ring.size,).

    In clear zeros: nothing is added to the others' values. None if it does not read it.

    Raises:
        LocalProtocolError: no blind was drawn for this very Ask.
    """
    if reader_of(item, where) != context.me.party.name:
        return None
    nothing = np.zeros(ring.size, dtype=container(ring.modulus))
    if in_clear(context, item):
        return nothing
    drawn, context.blind = context.blind, None  # one upload for each
    if drawn is None or drawn[0] != where.exchange:
        raise LocalProtocolError("No blind was drawn for the total that this client is to read.")
    return masked(nothing, ring.modulus, [_key(context, item, where, drawn[1])], [], spare=False)


def read_total(
    context: RunContext,
    item: Item,
    where: Where,
    kind: type[Message],
    message: BlindTotal,
    seed: bytes,
) -> Message:
    """Take a blind off a total.

    Args:
        context: of the client that reads it.
        item: under which the summands travelled.
        where: of the Ask that they answered.
        kind: of the summands.
        message: what the aggregator handed on.
        seed: of the blind.

    Raises:
        BadEnvelope: this is no total of so many clients under this blind.
    """
    layout, ring = context.summed(item, (kind,))
    try:
        if in_clear(context, item):
            totals = np.frombuffer(message.total, dtype="<i8").astype(np.int64)
        else:
            words = np.frombuffer(message.total, dtype=container(ring.modulus))
            key = _key(context, item, where, seed)
            totals = ring.integers(masked(words, ring.modulus, [], [key]))
        return layout.decode(totals, message.answers, margin=item.margin)[kind]
    except (CryptoError, UnfitMessage, ValueError) as error:
        raise BadEnvelope(
            "What was handed on as a total is none under this client's blind.",
            why="it is of another Ask or for another client, or the aggregator changed it",
            fix="nothing of it is used",
        ) from error


def _key(context: RunContext, item: Item, where: Where, seed: bytes) -> bytes:
    """Return the key of a blind, bound to the one sum that it is for."""
    place = (f"{where.round}", f"{where.attempt}", f"{where.exchange}", f"{where.slot}")
    facts = context.run, context.plan_digest, *place, context.cohort(where), item.label
    return derive(seed, "total blind", *facts)


# What the aggregator holds of a total that one client reads: uniform residues, to be handed on.


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


# The client's part where it reads a total: it draws the blind, keeps it a round, uses it once.
#
# A blind is drawn from the operating system before the client answers, and is gone when its total
# was read, when an Ask of a later round comes, when the epoch's keys end, and when the session
# does. After a kill the kept answer leaves again, byte for byte; what was not kept is drawn anew.


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
