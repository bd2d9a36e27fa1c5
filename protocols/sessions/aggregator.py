"""The aggregator's session: hands out Asks, adds what comes back, has blinded totals opened.

It never holds a secret key. Per round it keeps uploads only until the total is formed (O9).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from crypto.errors import CryptoError
from crypto.samplers import entropy
from protocols.control import (
    REFUSALS,
    Boxes,
    Call,
    Refusal,
    Row,
)
from protocols.disclosures import Disclosure
from protocols.errors import (
    BadEnvelope,
    LocalProtocolError,
    Refused,
    RemoteProtocolError,
    RoundLost,
    UnfitMessage,
    WrongStage,
)
from protocols.forms import Exchange, Form
from protocols.gateway import SHARED, given_digest
from protocols.groups import epoch_of, slot_of
from protocols.inbox import Letter
from protocols.ledger import Ledger
from protocols.messages import Message
from protocols.papers import Papers, Where
from protocols.rounds import Ask, Reply, Sealed
from protocols.sessions.base import Parcel
from protocols.sessions.collection import Collection
from protocols.sessions.evaluating import EvaluatingSession
from protocols.sessions.evaluation import Held, Uploads
from protocols.sessions.setup import Phase
from protocols.sessions.table import Event, State
from protocols.views import Mixture


class AggregatorSession(EvaluatingSession):
    """AGGREGATOR: drives the run. ``outgoing = ask(...)``, then receive and advance until empty.

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

    def ask(self, ask: Ask, round: int) -> list[Parcel]:
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

    def _ask(self, ask: Ask, round: int) -> list[Parcel]:
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

    def _hand_out(self, held: Held, rows: Mapping[str, Row] | None) -> list[Parcel]:
        """Return an Ask's envelopes, with the rows that were opened for it."""
        exchange, round, members = held.exchange, held.round, held.members
        self.move(Event.ASK)
        item = self.papers.plan.item(f"{exchange.name}.down")
        slot = self._next_slot(exchange, round, members)
        root, places = self._places()
        mask = self.papers.roster.mask(members)
        call = Call(members=mask, slot=slot, nonce=entropy(16), heads=root)
        messages = [given for given in held.handed if isinstance(given, Message)]
        shared = [call, *(message for message in messages if message.disclosure in SHARED)]
        given = given_digest(shared, self.papers.dims(item))
        where = Where(round, self._exchange_number, members, given, slot=slot)
        pairs = self._rests_on(exchange, where)
        self._collection, self._reply = Collection(self.papers, exchange, where, pairs), None
        self._tell_heads(root, where)
        return [
            self.send(item.id, [call, places[m], *self._parts(held.handed, m, rows)], m, where)
            for m in members
        ]

    def _rests_on(self, exchange: Exchange, where: Where) -> str | None:
        """Return what the masks of this Ask's sum rest on; None without masks."""
        item = f"{exchange.name}.up.{Disclosure.SUM}"
        if not self._planned("pair.call") or not self._planned(item):
            return None
        return self._agreed.agreement(slot_of(self.papers.plan.item(item), where.round, where.slot))

    def _there(self, cohort: Sequence[str], round: int) -> tuple[str, ...]:
        """Return the members that can be asked now."""
        if self._planned("key.call") or self._planned("pair.call"):
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
                fix="nothing was opened; the next round goes on with who is there",
            )

    def _next_slot(self, exchange: Exchange, round: int, members: Sequence[str]) -> int:
        """Return how many sums of this kind any of the members was asked for before (O6)."""
        if not any(kind.disclosure is Disclosure.SUM for kind in exchange.back):
            return 0
        item = self.papers.plan.item(f"{exchange.name}.up.{Disclosure.SUM}")
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

    def receive(self, data: bytes) -> None:
        """Take one envelope.

        Raises:
            Refused: the sender refused; the session is over.
            RemoteProtocolError: not authentic (nothing changes), or not acceptable now.
        """
        self.alive()
        if self.state is State.PARTING:
            return self._take_leave(data)
        # Its receipt is made durable by the next advance().
        letter = self._inbox.open(data, exchange=self._exchange_number)
        item, header = letter.item.id, letter.header
        self._hear(letter)
        if item.startswith("refusal."):
            (refusal,) = self._inbox.read(letter, (Refusal,))
            code = refusal.code if isinstance(refusal, Refusal) else 0
            error = Refused(header.sender, REFUSALS[min(code, len(REFUSALS) - 1)])
            self.die(error)
            self._out([])  # the refusal that ends the run stands in the ledger
            raise error
        if item == "key.offer":
            self._take_key(letter, data)
        elif item in ("pair.boxes", "pair.rows"):
            self._take_pairs(letter)
        elif item.endswith((".vote", ".shares")):
            self._take_share(letter)
        elif ".witnessed." in item:
            self._take_witnessed(letter)
        elif ".opened." in item:
            self._take_revealed(letter)
        elif item.endswith(".opened"):
            self._take_opened(letter)
        else:
            self._take_answer(letter)

    def _take_answer(self, letter: Letter) -> None:
        if self.state is not State.ASKED:
            raise WrongStage("An answer arrived while nothing was asked.")
        self._asked.add(letter)

    def advance(self) -> list[Parcel]:
        """Return what must be sent next; empty when the Ask is answered.

        To be called when a transport's exchange is over: who has not answered by then has vanished.

        Raises:
            RoundLost: too few clients are left; nothing was opened, the next Ask may follow.
        """
        self.alive()
        try:
            parcels = self._advance()
            if self._asking and self.state is State.READY:
                self._settle(self._reply)
            return self._out(parcels)
        except RoundLost:
            self.move(Event.LOST)
            self._collection = self._unmasking = None
            self._forget(None)
            self._settle(None)
            self._out([])
            raise
        except (CryptoError, UnfitMessage) as error:
            self.die(error)
            raise BadEnvelope("An upload cannot be added up.") from error
        except Exception as error:
            self.die(error)
            raise

    def _settle(self, outcome: Reply | None) -> None:
        """Note how an Ask ended, to be kept before it is used."""
        self._asking, self.outcome = False, outcome
        recorder, asked = self.recorder, self._collection
        if recorder is None or outcome is None or asked is None:
            pass
        elif recorder.wants(asked.exchange, asked.where.round):
            recorder.came(asked.exchange.name, asked.where, outcome)
        self.answered += 1

    def go_on(self) -> list[Parcel]:
        """After a kill: return what was sent last, or else what is to be sent next.

        The same bytes, so a party that answered before the kill gives the same answer again.
        """
        self.alive()
        return self._outstanding or self.advance()

    def name_of(self, ask: Ask) -> str:
        """Return the name of the exchange that an Ask is; raises TypeError if there is none."""
        return self._form.find(ask).name

    @property
    def fresh(self) -> bool:
        """Whether nothing was sent in this run yet."""
        return self._setup is None and not self._exchange_number

    @property
    def under_way(self) -> Literal["", "keys", "ask", "farewell"]:
        """What a session that was taken up after a kill was in the middle of."""
        if self.state is State.KEYING:
            return "keys"
        if self.state is State.PARTING:
            return "farewell"
        return "ask" if self._asking else ""

    def _advance(self) -> list[Parcel]:
        if self._taking is not None:
            return self._take_off()
        if self.state is State.KEYING:
            return self._set_up(self._agreed)
        if self.state is State.PARTING:
            self.move(Event.ANSWERED)
        if self.state is State.VOTING:
            return self._show_votes()
        if self.state is State.SHARING:
            return self._unmask()
        if self.state is State.WITNESSING:
            return [self._request_reveal()]
        if self.state is State.REVEALING:
            return self._go_on()
        if self.state is not State.ASKED:
            return []
        asked = self._asked
        self._note_vanished(asked.fix_survivors())
        self._check_left(asked.survivors)
        return self._compare() if asked.compared else self._add_up()

    def _add_up(self) -> list[Parcel]:
        """Go on to the sum of an Ask's answers, if there is one, and else to its end."""
        asked = self._asked
        if asked.weighed:
            self._uploads = Uploads(asked.where, asked.taken(Disclosure.WEIGHTED_SUM))
        return self._list_survivors() if asked.masked else self._finish(([], []))

    def _go_on(self) -> list[Parcel]:
        """Go on with what the key authority opened."""
        evaluation, opened = self._revealed()
        if evaluation.disclosure is Disclosure.SIMILARITY:
            self._asked.cosines = self._cosines(evaluation, opened)
            return self._add_up()
        held, self._held = self._held, None
        if held is None:
            raise LocalProtocolError("Rows were opened that nobody asked to hand out.")
        return self._hand_out(held, self._rows(evaluation, opened))

    def _note_vanished(self, gone: Sequence[str]) -> None:
        """Remember who vanished; once a sum of the round was opened, its survivors are fixed."""
        asked = self._asked
        round = asked.where.round
        self._vanished = (round, self._gone(round) | set(gone))
        if not asked.sums:
            return
        self._check_fixed(round)
        self._check_left(asked.survivors)
        fixed = self._fixed[1] if self._fixed[0] == round else frozenset()
        self._fixed = (round, fixed | set(asked.survivors))

    def _check_fixed(self, round: int) -> None:
        """Skip a round of which an opened sum counts a client that vanished since."""
        if self._fixed[0] == round and self._fixed[1] & self._gone(round):
            raise RoundLost(
                "A client vanished between two sums of one round, whose survivors are fixed (O5). "
                "The round is skipped.",
                why="the difference of two totals would be little more than that client's vector",
                fix="nothing more of it is opened; the next round goes on with who is there",
            )

    def reply(self) -> Reply:
        """Return what the last Ask brought back; raises RemoteProtocolError if it is not here."""
        self.alive()
        if self._reply is None:
            raise RemoteProtocolError(
                "The key authority did not open the total.",
                why="it is not reachable, or ended its session",
                fix="start the run again when it is there",
            )
        return self._reply
