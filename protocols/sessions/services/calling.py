"""The aggregator's part where an Ask goes out and its answers come in."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, Protocol

from crypto.samplers import entropy
from protocols.disclosures.names import Disclosure
from protocols.disclosures.views import Cells, Mixture
from protocols.errors import WrongStage
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.plan.steps import Service, Step
from protocols.rounds import Sealed
from protocols.sessions.collection import Collection
from protocols.sessions.part import Engine, Parcel, SessionPart, Takes
from protocols.sessions.services.asked import Asked
from protocols.sessions.services.heads import Heads
from protocols.sessions.table import Event, State
from protocols.wire.codec import encode
from protocols.wire.control import Boxes, Call, Row
from protocols.wire.inbox import Letter
from protocols.wire.inputs_digest import SHARED, bytes_digest
from protocols.wire.where import Where


class Slots(Protocol):
    """Says what the masks of an Ask's sum use (O6)."""

    def next_slot(self, exchange: Exchange, round: int, members: Sequence[str]) -> int:
        """Return how many sums of this kind any of the members was asked for before."""

    def rests_on(self, exchange: Exchange, where: Where) -> str | None:
        """Return what the masks of this Ask's sum rest on; None without masks."""


class Rows(Protocol):
    """Holds what was weighed for an Ask."""

    def handed_out(self) -> Mapping[str, Row]:
        """Return, once, the rows that were opened for the Ask."""


class Calling(SessionPart):
    """Hands an Ask out and collects the answers; its phase is ANSWERS.

    Args:
        engine: the session.
        asked: the Ask under way.
        heads: whose root and places go out with every Ask.
        sums: says which slot of masks an Ask's sum uses.
        rows: what was weighed for this Ask.
    """

    def __init__(self, engine: Engine, asked: Asked, heads: Heads, sums: Slots, rows: Rows) -> None:
        super().__init__(engine)
        self._asked, self._heads, self._sums, self._rows = asked, heads, sums, rows

    def wanted(self) -> bool:
        """Tell that every Ask goes out."""
        return True

    def enter(self) -> Iterable[Parcel]:
        """Return an Ask's envelopes, with the rows that were opened for it."""
        held, papers = self._asked.held, self._papers
        exchange, members = held.exchange, held.members
        self._engine.move(Event.ASK)
        item = papers.find(exchange.name, Service.ASK, Step.DOWN)
        slot = self._sums.next_slot(exchange, held.round, members)
        root, places = self._heads.places()
        mask = papers.roster.mask(members)
        call = Call(members=mask, slot=slot, nonce=entropy(16), heads=root)
        handed = [given.told if isinstance(given, Cells) else given for given in held.handed]
        messages = [given for given in handed if isinstance(given, Message)]
        dims = papers.dims(item)
        # Encoded once for all: what a digest is of is what everybody gets.
        shared = {m: encode([m], dims) for m in (call, *messages) if m.disclosure in SHARED}
        given = bytes_digest([(type(m), data) for m, data in shared.items()])
        where = Where(held.round, held.number, members, given, slot=slot)
        pairs = self._sums.rests_on(exchange, where)
        self._asked.collect(Collection(papers, exchange, where, pairs))
        self._heads.write_down(root, where)
        rows = self._rows.handed_out()

        def asked(member: str) -> Parcel:
            own = [call, places[member], *_own(handed, member, rows)]
            return self._engine.send(item, own, member, where, shared)

        return map(asked, members)

    def advance(self) -> None:
        """Wait no longer: who has not answered has vanished."""

    def _take_answer(self, letter: Letter) -> None:
        if self._engine.state is not State.ASKED:
            raise WrongStage("An answer arrived while nothing was asked.")
        self._asked.answers.add(letter)

    takes: ClassVar[Takes] = dict.fromkeys(
        [(Service.ASK, Step.ACK), *((disclosure, Step.UP) for disclosure in Disclosure)],
        _take_answer,
    )


def _own(handed: Sequence[Message | Sealed], member: str, rows: Mapping[str, Row]) -> list[Message]:
    """Return what one member is given."""
    found: list[Message] = []
    for given in handed:
        if isinstance(given, Mixture):
            found.append(rows[member])
            continue
        part = given._parcels[member] if isinstance(given, Sealed) else given
        found.append(Boxes(boxes=part) if isinstance(part, bytes) else part)
    return found
