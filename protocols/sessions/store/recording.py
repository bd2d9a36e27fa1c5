"""Captured rounds in a party's store, written and read; see `protocols.evidence.captures`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from protocols.disclosures.mixed.layout import Numbers
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.layout import Words
from protocols.errors import LedgerError
from protocols.evidence.captures import captured_rounds, of_piece, piece, tags_of
from protocols.evidence.ledger import Ledger
from protocols.forms import Exchange, Form
from protocols.messages import Message
from protocols.rounds import Reply
from protocols.sessions.store.codec import StateCodec
from protocols.sessions.store.locked import LockedStateStore, StateStore
from protocols.sessions.store.state_keeper import state_codec
from protocols.versions import CAPTURE
from protocols.wire.envelope import Where
from protocols.wire.run_context import RunContext


def keeps_given(exchange: Exchange) -> bool:
    """Tell whether a client keeps what an exchange hands it though it answers nothing: its row."""
    return any(kind.disclosure is Disclosure.WEIGHTED_SUM for kind in exchange.given)


@dataclass(frozen=True)
class Captured:
    """One answer of a client, as far as it is kept.

    Attributes:
        exchange: name of the Ask; its round and number.
        given: what the client was given.
        memory, draws: of its site before it answered.
        sent: the envelopes that left.
        groups: who was mixed with whom, (members,); None where nothing was.
        tags: of its items, as `MatchSide.tagged` has them; None where none were made.
        inside: by item, the masked vector that was sealed or encrypted.
    """

    exchange: str
    round: int
    number: int
    given: tuple[Message, ...] = field(repr=False)
    memory: dict[str, Any] = field(repr=False)
    draws: dict[str, int] = field(repr=False)
    sent: tuple[bytes, ...] = field(repr=False)
    groups: Numbers | None = field(default=None, repr=False)
    tags: Mapping[str, Any] | None = field(default=None, repr=False)
    inside: Mapping[str, Words] | None = field(default=None, repr=False)


class Recorder:
    """Keeps what one session says, or is told, in the rounds that the policy names.

    Args:
        state_store: the party's, for captures only.
        context: of the session.
        form: the admitted form.
        site: at a client.
        ledger: the party's, which names every piece; None to read what was kept.
    """

    def __init__(
        self,
        state_store: StateStore,
        context: RunContext,
        form: Form[Any] | None,
        site: Any,
        ledger: Ledger | None = None,
    ) -> None:
        self._ledger = ledger
        self._state_store = LockedStateStore(
            state_store, context.run, context.me.party.name, CAPTURE
        )
        self._context, self._form, self._site = context, form, site
        self._rounds = set(captured_rounds(context.policy.capture, context.plan.rounds))

    @property
    def _codec(self) -> StateCodec:
        return state_codec(self._context, self._form, self._site, None, self._state_store.key)

    def wants(self, exchange: Exchange, round: int) -> bool:
        """Tell whether this answer is captured; what lies outside the rounds never is."""
        return bool(exchange.per_round) and round in self._rounds

    def before(self, given: Sequence[Message]) -> bytes:
        """Return what an answer will rest on; to be called before the site changes."""
        held = {"draws": self._site.draws, "given": tuple(given), "memory": self._site.memory}
        return self._codec.pack(held)

    def sent(
        self,
        name: str,
        where: Where,
        before: bytes,
        envelopes: Sequence[bytes],
        groups: Numbers | None,
        inside: Mapping[str, Words],
    ) -> None:
        """Keep an answer; raises LedgerError if it cannot be written, then nothing may leave."""
        more = {"groups": groups, "inside": dict(inside)}
        content: dict[str, Any] = {"before": before, "sent": tuple(envelopes), **more}
        self._keep(piece(name, where.round, where.exchange), where, self._codec.pack(content))

    def tagged(self, name: str, where: Where, tags: Mapping[str, Any]) -> None:
        """Keep a client's tags beside its answer, if that was captured; raises LedgerError."""
        place = piece(name, where.round, where.exchange)
        if place in set(self._state_store.names()):  # beside it: no piece is written twice
            self._keep(tags_of(place), where, self._codec.pack(dict(tags)))

    def viewed(self, name: str, where: Where, view: Mapping[str, bytes]) -> None:
        """Keep what a party saw in a captured round; raises LedgerError."""
        if where.round in self._rounds:
            place = piece(name, where.round, where.exchange)
            self._keep(place, where, self._codec.pack(dict(view)))

    def views(self) -> dict[int, dict[str, bytes]]:
        """Return what a tag server or the matcher captured, by exchange number."""
        return {number: self._read(n, r, number) for n, r, number in self._pieces()}

    def came(self, name: str, where: Where, reply: Reply) -> None:
        """Keep what an Ask brought back; raises LedgerError if it cannot be written."""
        self._keep(piece(name, where.round, where.exchange), where, self._codec.pack(reply))

    def _keep(self, place: str, where: Where, data: bytes) -> None:
        """Write a piece, and name it in the ledger, whose next write makes it count."""
        if self._ledger is None:
            raise LedgerError("What only reads captured rounds keeps none.")
        digest = self._state_store.put(place, data)
        facts = {"digest": digest, "piece": place, "exchange": where.exchange, "round": where.round}
        self._ledger.record("captured", facts)

    def answers(self) -> list[Captured]:
        """Return a client's captured answers, oldest first; raises LedgerError if one is spoilt."""
        found = []
        for name, round, number in self._pieces():
            content = self._read(name, round, number)
            held = self._codec.unpack(content["before"])
            more = {key: content.get(key) for key in ("sent", "groups", "inside")}
            tags = tags_of(piece(name, round, number))
            if tags in set(self._state_store.names()):
                more["tags"] = self._codec.unpack(self._state_store.get(tags))
            found.append(Captured(name, round, number, **held, **more))
        return found

    def replies(self) -> dict[int, Reply]:
        """Return what the captured Asks brought back, by exchange number."""
        return {number: self._read(n, r, number) for n, r, number in self._pieces()}

    def _pieces(self) -> list[tuple[str, int, int]]:
        try:
            found = {of_piece(name) for name in self._state_store.names()}
            return sorted(found, key=lambda p: p[2])
        except ValueError as error:
            raise LedgerError("A captured round has a name that none can have.") from error

    def _read(self, name: str, round: int, number: int) -> Any:
        return self._codec.unpack(self._state_store.get(piece(name, round, number)))
