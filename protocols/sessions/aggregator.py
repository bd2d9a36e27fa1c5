"""The aggregator's session: hands out Asks, adds what comes back, has blinded totals opened.

It never holds a secret key. Per round it keeps uploads only until the total is formed (O9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from crypto.errors import CryptoError
from protocols.disclosures._evaluated.ciphers import EVALUATED
from protocols.disclosures._evaluated.evaluation import Uploads
from protocols.disclosures.names import Disclosure
from protocols.errors import (
    BadEnvelope,
    LocalProtocolError,
    Refused,
    RemoteProtocolError,
    RoundLost,
    UnfitMessage,
    WrongStage,
)
from protocols.plan.steps import Service, Step
from protocols.rounds import Reply
from protocols.sessions.asking import AskingSession
from protocols.sessions.engine import Outgoing, Parcel
from protocols.sessions.part import Takes
from protocols.sessions.table import Event, State
from protocols.wire.control import REFUSALS, Refusal
from protocols.wire.inbox import Letter


class AggregatorSession(AskingSession):
    """AGGREGATOR: drives the run. ``outgoing = ask(...)``, then receive and advance until empty.

    Args:
        papers, ledger, rounding: see :class:`Session`.
        form: the admitted form.
    """

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
        self._hear(letter)
        self.handler(letter)(letter)

    def _take_refusal(self, letter: Letter) -> None:
        """End the run: whatever the reason is, it stays with who refused."""
        (refusal,) = self._inbox.read(letter, (Refusal,))
        code = refusal.code if isinstance(refusal, Refusal) else 0
        error = Refused(letter.header.sender, REFUSALS[min(code, len(REFUSALS) - 1)])
        self.die(error)
        self._out([])  # the refusal that ends the run stands in the ledger
        raise error

    def _take_receipt(self, letter: Letter) -> None:
        """Refuse a receipt of the heads before they were given; later `_take_leave` takes it."""
        raise WrongStage("A receipt of the last heads arrived before they were given.")

    def _take_answer(self, letter: Letter) -> None:
        if self.state is not State.ASKED:
            raise WrongStage("An answer arrived while nothing was asked.")
        self._asked.add(letter)

    def advance(self) -> Outgoing:
        """Return what must be sent next; empty when the Ask is answered.

        To be called when a transport's exchange is over: who has not answered by then has vanished.

        Raises:
            RoundLost: too few clients are left; this was not opened, the next Ask may follow.
        """
        self.alive()
        try:
            parcels = self._advance()
            if self._asking and self.state is State.READY:
                self._settle(self._reply)
            return self._out(parcels)
        except RoundLost:
            self.move(Event.LOST)
            self._collection = self._unmasking = self._broker = None
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

    def go_on(self) -> Outgoing:
        """After a kill: return what was sent last, or else what is to be sent next.

        The same bytes, so a party that answered before the kill gives the same answer again.
        """
        self.alive()
        return self._outstanding or self.advance()

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

    def _advance(self) -> Iterable[Parcel]:
        if self._taking is not None:
            return self._take_off()
        if self.state is State.KEYING:
            return self._set_up(self._agreed)
        if self.state is State.PARTING:
            self.move(Event.ANSWERED)
        following: dict[State, Callable[[], Iterable[Parcel]]] = {
            State.ASKED: self._settle_answers,
            State.RELAYING: self._pooled,
            State.MATCHING: self._go_matching,
            State.VOTING: self._show_votes,
            State.SHARING: self._unmask,
            State.WITNESSING: lambda: [self._request_reveal()],
            State.REVEALING: self._go_on,
        }
        step = following.get(self.state)
        return step() if step is not None else []

    def _settle_answers(self) -> Iterable[Parcel]:
        """Fix whose answers to an Ask count, and go on with them."""
        asked = self._asked
        self._note_vanished(asked.fix_survivors())
        self._check_left(asked.survivors)
        if asked.relayed:
            return self._hand_over()
        if self.papers.plans(asked.exchange.name, Disclosure.MATCH, Step.COMPARE):
            return self._match()
        return self._compare() if asked.compared else self._add_up()

    def _pooled(self) -> Iterable[Parcel]:
        """Go on with the rest of an Ask, once its mixtures are back from the relay."""
        self._check_pool()
        return self._compare() if self._asked.compared else self._add_up()

    def _add_up(self) -> Iterable[Parcel]:
        """Go on to the sum of an Ask's answers, if there is one, and else to its end."""
        asked = self._asked
        if asked.weighed:
            self._uploads = Uploads(asked.where, asked.taken(Disclosure.WEIGHTED_SUM))
        return self._list_survivors() if asked.masked else self._finish(([], []))

    def _go_on(self) -> Iterable[Parcel]:
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
        if not (asked.sums or asked.relayed):
            return
        self._check_fixed(round)
        self._check_left(asked.survivors)
        fixed = self._fixed[1] if self._fixed[0] == round else frozenset()
        self._fixed = (round, fixed | set(asked.survivors))

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


def _answers(session: type[AggregatorSession]) -> Takes:
    """Everything that an Ask brings back goes one way, whatever it discloses."""
    answer = session._take_answer
    return {(Service.ASK, Step.ACK): answer, **{(d, Step.UP): answer for d in Disclosure}}


_MATCHED = (
    Step.ANSWERS, Step.ONWARD, Step.SECOND_ANSWERS, Step.TAGS,
    Step.COMPARED, Step.TAKEN, Step.SPLIT, Step.PART,
)  # fmt: skip

AggregatorSession.takes = {
    (Service.REFUSAL, Step.REFUSE): AggregatorSession._take_refusal,
    (Service.KEYS, Step.OFFER): AggregatorSession._take_key,
    (Service.PAIRS, Step.BOXES): AggregatorSession._take_pairs,
    (Service.PAIRS, Step.ROWS): AggregatorSession._take_pairs,
    (Service.HEADS, Step.ACK): AggregatorSession._take_receipt,
    **_answers(AggregatorSession),
    (Disclosure.SUM, Step.VOTE): AggregatorSession._take_share,
    (Disclosure.SUM, Step.SHARES): AggregatorSession._take_share,
    (Disclosure.SUM, Step.OPENED): AggregatorSession._take_opened,
    **{(d, Step.WITNESSED): AggregatorSession._take_witnessed for d in EVALUATED},
    **{(d, Step.OPENED): AggregatorSession._take_revealed for d in EVALUATED},
    (Disclosure.MIXED, Step.RELAYED): AggregatorSession._take_pool,
    **{(Disclosure.MATCH, step): AggregatorSession._take_match for step in _MATCHED},
}
