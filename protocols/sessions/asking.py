"""The aggregator's session where it hands Asks out, and notes how each of them ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from crypto.samplers import entropy
from protocols.disclosures._evaluated.evaluation import Held
from protocols.disclosures.names import Disclosure
from protocols.disclosures.views import Cells, Mixture
from protocols.errors import LocalProtocolError, RoundLost
from protocols.evidence.ledger import Ledger
from protocols.forms import Exchange, Form
from protocols.keys.groups import epoch_of, slot_of
from protocols.messages import Message
from protocols.plan.steps import Service, Step
from protocols.rounds import Ask, Reply, Sealed
from protocols.sessions.brokering import BrokeringSession
from protocols.sessions.collection import Collection
from protocols.sessions.engine import Outgoing, Parcel
from protocols.sessions.services.setup import Phase
from protocols.sessions.table import Event
from protocols.wire.codec import encode
from protocols.wire.control import Boxes, Call, Row
from protocols.wire.inputs_digest import SHARED, bytes_digest
from protocols.wire.run_context import Papers, Where


class AskingSession(BrokeringSession):
    """What the aggregator does before the first answer to an Ask.

    Args:
        papers, ledger, rounding: see :class:`Session`.
        form: the admitted form.
    """

    def __init__(self, papers: Papers, ledger: Ledger, rounding: bytes, form: Form[Any]) -> None:
        super().__init__(papers, ledger, rounding)
        self._form = form
        self._fixed: tuple[int, frozenset[str]] = (0, frozenset())  # whom an opened sum counts
        self._summed: dict[tuple[str, int, str], int] = {}  # sums of an item, round and client
        self._asking = False
        self.asking = ""  # name of the exchange asked last
        self.answered = 0  # Asks that are over
        self.outcome: Reply | None = None  # of the last one; None: its round was lost
        self.tally: dict[str, float] = {}  # the driver's own counts, kept with this session

    def ask(self, ask: Ask, round: int) -> Outgoing:
        """Begin an Ask: returns one envelope per cohort member that is there.

        Members that took no part in this epoch's keys, or vanished earlier in this round, are left
        out (O5).

        Raises:
            TypeError: the form declares no such exchange.
            CohortTooSmall: the cohort is below the policy's minimum.
            RoundLost: what is left of it is.
            NotInPlan: not planned, or more often than planned.
        """
        self.alive()
        try:
            return self._ask(ask, round)
        except RoundLost:
            self._settle(None)
            self._out([])
            raise
        except Exception as error:
            self.die(error)
            raise

    def _ask(self, ask: Ask, round: int) -> Outgoing:
        exchange = self._form.find(ask)
        self.asking = exchange.name
        self.papers.policy.check_cohort(ask.cohort.size)
        members = self._there(ask.cohort._members, round)
        if any(kind.disclosure is Disclosure.SUM for kind in exchange.back):
            self._check_fixed(round)
        held = Held(exchange, round, members, ask.handed)
        self._exchange_number += 1
        self._asking, self._reply = True, None
        self._forget(round)
        for given in ask.handed:
            if isinstance(given, Mixture):
                return self._out(self._weigh(held, given))
        return self._out(self._hand_out(held, None))

    def _hand_out(self, held: Held, rows: Mapping[str, Row] | None) -> Iterable[Parcel]:
        """Return an Ask's envelopes, with the rows that were opened for it."""
        exchange, round, members = held.exchange, held.round, held.members
        self.move(Event.ASK)
        item = self.papers.find(exchange.name, Service.ASK, Step.DOWN)
        slot = self._next_slot(exchange, round, members)
        root, places = self._places()
        mask = self.papers.roster.mask(members)
        call = Call(members=mask, slot=slot, nonce=entropy(16), heads=root)
        handed = [given.told if isinstance(given, Cells) else given for given in held.handed]
        messages = [given for given in handed if isinstance(given, Message)]
        dims = self.papers.dims(item)
        # Encoded once for all: what a digest is of is what everybody gets.
        shared = {m: encode([m], dims) for m in (call, *messages) if m.disclosure in SHARED}
        given = bytes_digest([(type(m), data) for m, data in shared.items()])
        where = Where(round, self._exchange_number, members, given, slot=slot)
        pairs = self._rests_on(exchange, where)
        self._collection, self._reply = Collection(self.papers, exchange, where, pairs), None
        self._tell_heads(root, where)

        def asked(member: str) -> Parcel:
            own = [call, places[member], *self._parts(handed, member, rows)]
            return self.send(item, own, member, where, shared)

        return map(asked, members)

    def _rests_on(self, exchange: Exchange, where: Where) -> str | None:
        """Return what the masks of this Ask's sum rest on; None without masks."""
        place = (exchange.name, Disclosure.SUM, Step.UP)
        if not (self._paired and self.papers.plans(*place)):
            return None
        item = self.papers.find(*place)
        return self._agreed.agreement(slot_of(item, where.round, where.slot))

    def _there(self, cohort: Sequence[str], round: int) -> tuple[str, ...]:
        """Return the members that can be asked now."""
        if self._enciphered or self._paired:
            epoch = epoch_of(round, self.papers.policy)
            if self._agreed.phase is not Phase.DONE or self._agreed.epoch != epoch:
                raise LocalProtocolError("This epoch's keys come before its first Ask.")
        members = self._present(cohort, round)
        self._check_left(members)
        return members

    def _check_left(self, members: Sequence[str]) -> None:
        if len(members) < self.papers.policy.smallest_cohort:
            raise RoundLost(
                f"Only {len(members)} clients are left; the policy asks for "
                f"{self.papers.policy.smallest_cohort}. The round is skipped.",
                why="clients vanished; a smaller group's total would tell on its members",
                fix="this was not opened; the next round goes on with who is there",
            )

    def _next_slot(self, exchange: Exchange, round: int, members: Sequence[str]) -> int:
        """Return how many sums of this kind any of the members was asked for before (O6)."""
        if not any(kind.disclosure is Disclosure.SUM for kind in exchange.back):
            return 0
        item = self.papers.find(exchange.name, Disclosure.SUM, Step.UP)
        place = slot_of(item, round, 0).round
        slot = max(self._summed.get((item.id, place, member), 0) for member in members)
        self._summed.update({(item.id, place, member): slot + 1 for member in members})
        return slot

    def _parts(
        self, handed: Sequence[Message | Sealed], member: str, rows: Mapping[str, Row] | None
    ) -> list[Message]:
        parts: list[Message] = []
        for given in handed:
            if isinstance(given, Mixture):
                parts.append((rows or {})[member])
                continue
            part = given._parcels[member] if isinstance(given, Sealed) else given
            parts.append(Boxes(boxes=part) if isinstance(part, bytes) else part)
        return parts

    def _settle(self, outcome: Reply | None) -> None:
        """Note how an Ask ended, to be kept before it is used."""
        self._asking, self.outcome = False, outcome
        recorder, asked = self.recorder, self._collection
        if recorder is None or outcome is None or asked is None:
            pass
        elif recorder.wants(asked.exchange, asked.where.round):
            recorder.came(asked.exchange.name, asked.where, outcome)
        self.answered += 1

    def _check_fixed(self, round: int) -> None:
        """Skip a round of which an opened sum counts a client that vanished since."""
        if self._fixed[0] == round and self._fixed[1] & self._gone(round):
            raise RoundLost(
                "A client vanished between two sums of one round, whose survivors are fixed (O5). "
                "The round is skipped.",
                why="the difference of two totals would be little more than that client's vector",
                fix="nothing more of it is opened; the next round goes on with who is there",
            )

    def name_of(self, ask: Ask) -> str:
        """Return the name of the exchange that an Ask is; raises TypeError if there is none."""
        return self._form.find(ask).name
