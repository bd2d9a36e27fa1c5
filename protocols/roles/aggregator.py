"""The aggregator's session: hands out Asks, adds what comes back, has blinded totals opened.

It never holds a secret key. Per round it keeps uploads only until the total is formed (O9).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

from crypto.errors import CryptoError
from protocols.disclosures._base.view import fixing
from protocols.disclosures.registry import each
from protocols.errors import BadEnvelope, RemoteProtocolError, RoundLost, UnfitMessage
from protocols.evidence.ledger import Ledger
from protocols.forms import Form
from protocols.rounds import Ask, Reply
from protocols.sessions.asking import Asked, Exchanges, Held, Refusals
from protocols.sessions.calling import Calling
from protocols.sessions.clusters import AskedClusters
from protocols.sessions.drawing import Drawn
from protocols.sessions.engine import Outgoing, Session, Stream
from protocols.sessions.epoch_keys import EpochKeys
from protocols.sessions.heads import Cosigning, Heads
from protocols.sessions.part import Delivery, Event, Scope, SessionPart, State, part_name, table
from protocols.sessions.survivors import Survivors
from protocols.wire.roles import Role, brought
from protocols.wire.roster import AGGREGATOR_NAME
from protocols.wire.run_context import RunContext

_TABLE = table(
    {
        State.NEW: {Event.SETUP: State.KEYING, Event.BEGIN: State.READY},
        State.KEYING: dict.fromkeys((Event.DRAW, Event.KEY, Event.PAIR), State.KEYING)
        | {Event.BEGIN: State.READY},
        State.READY: {
            Event.SETUP: State.KEYING,
            Event.ASK: State.ASKED,
            Event.PART: State.PARTING,
        },
        State.ASKED: {Event.ANSWERED: State.READY, Event.LOST: State.READY},
        State.PARTING: {Event.ANSWERED: State.PARTED},
        State.PARTED: {},
    }
)


class AggregatorSession(Session):
    """AGGREGATOR: drives the run. ``outgoing = ask(...)``, then receive and advance until empty.

    `form` is the admitted form; the rest as in :class:`Session`.
    """

    table = _TABLE
    made_of = (
        *(Exchanges, Asked, Drawn, EpochKeys, Refusals, Survivors, Heads, Calling, Cosigning),
        *(AskedClusters, *each("aggregator"), *brought(Role.AGGREGATOR)),
    )
    exchanges: Exchanges
    asked: Asked
    drawn: Drawn
    keys: EpochKeys
    survivors: Survivors
    heads: Heads
    cosigning: Cosigning
    asked_clusters: AskedClusters
    apart = Session.apart | {"outcome"}

    batch: int | None = None
    """Of how many envelopes large exchanges are made at a time; None: of all. See `Stream`."""

    def __init__(
        self, context: RunContext, ledger: Ledger, rounding: bytes, form: Form[Any]
    ) -> None:
        self._form = form
        self._acting = ""  # the part whose phase it is; empty: no Ask is under way
        self._round, self._asking = 0, False  # of the last Ask, and whether it is under way
        self.asking = ""  # name of the exchange asked last
        self.answered = 0  # Asks that are over
        self.outcome: Reply | None = None  # of the last one; None: its round was lost
        self.tally: dict[str, float] = {}  # the driver's own counts, kept with this session
        super().__init__(context, ledger, rounding)

    @property
    def order(self) -> tuple[SessionPart, ...]:
        """The parts that have a phase of an Ask, in its order; see `Phase`."""
        found = [(part.phase, name) for name, part in self.parts.items() if part.phase is not None]
        return tuple(self.parts[name] for _, name in sorted(found))

    # --- what the driver calls ------------------------------------------------------------------

    def start(self) -> Outgoing:
        """Return what must be sent before the first Ask (keys of the first epoch, if any)."""
        return self.prepare(0)

    def prepare(self, round: int) -> Outgoing:
        """Begin an epoch if `round` is in a new one; returns what must be sent, else nothing.

        Raises:
            RemoteProtocolError: the last epoch's keys were not agreed on by enough clients.
        """
        self.alive()
        try:
            return self._out(self.keys.prepare(round)) if self.keys.due(round) else []
        except Exception as error:
            self.die(error)
            raise

    def ask(self, ask: Ask, round: int) -> Outgoing:
        """Begin an Ask: returns one envelope per cohort member that is there.

        Members that took no part in this epoch's keys, or vanished earlier in this round, are left
        out (O5), and for a sum those with whom it would be of other clients than the policy allows.

        Raises:
            TypeError: the form declares no such exchange.
            CohortTooSmall: the cohort is below the policy's minimum.
            RoundLost: what is left of it is, or other clients than `cohort_changes` allows.
            NotInPlan: not planned, or more often than planned.
        """
        self.alive()
        try:
            return self._ask(ask, round)
        except RoundLost:
            self._lose()
            raise
        except Exception as error:
            self.die(error)
            raise

    def receive(self, data: bytes) -> list[Delivery]:
        """Take one envelope; nothing leaves in answer before `advance`.

        Raises:
            Refused: the sender refused; the session is over.
            RemoteProtocolError: not authentic (nothing changes), or not acceptable now.
        """
        self.alive()
        if self.state is State.PARTING:
            self.heads.take_leave(data)
            return []
        # Its receipt is made durable by the next advance().
        incoming = self.open(data, exchange=self.exchanges.number)
        self.heads.hear(incoming)
        self.handler(incoming)(incoming)
        return []

    def advance(self) -> Outgoing:
        """Return what must be sent next; empty when the Ask is answered.

        To be called when a transport's exchange is over: who has not answered by then has vanished.

        Raises:
            RoundLost: too few clients are left; this was not opened, the next Ask may follow.
        """
        self.alive()
        try:
            deliveries = self._advance()
            if self._asking and self.state is State.READY:
                self._settle(self.asked.reply)
            elif self._asking and deliveries == []:  # no answer: who goes on asks the same again
                return []
            return self._out(deliveries)
        except RoundLost:
            self._lose()
            raise
        except (CryptoError, UnfitMessage) as error:
            self.die(error)
            raise BadEnvelope("An upload cannot be added up.") from error
        except Exception as error:
            self.die(error)
            raise

    def go_on(self) -> Outgoing:
        """After a kill: return the very bytes that were sent last, or what is to be sent next."""
        self.alive()
        return self.exchanges.outstanding or self.advance()

    def farewell(self) -> Outgoing:
        """After the last Ask: give all clients that are there the heads at the end of the run."""
        self.alive()
        try:
            return self._out(self.heads.farewell())
        except Exception as error:
            self.die(error)
            raise

    def reply(self) -> Reply:
        """Return what the last Ask brought back; raises RemoteProtocolError if it is not here."""
        self.alive()
        if self.asked.reply is None:
            raise RemoteProtocolError(
                "The key authority did not open the total.",
                why="it is not reachable, or ended its session",
                fix="start the run again when it is there",
            )
        return self.asked.reply

    @property
    def fresh(self) -> bool:
        """Whether nothing was sent in this run yet."""
        return self.keys.fresh and not self.exchanges.number

    @property
    def under_way(self) -> Literal["", "keys", "ask", "farewell"]:
        """What a session that was taken up after a kill was in the middle of."""
        if self.state is State.KEYING:
            return "keys"
        return "farewell" if self.state is State.PARTING else "ask" if self._asking else ""

    def name_of(self, ask: Ask) -> str:
        """Return the name of the exchange that an Ask is; raises TypeError if there is none."""
        return self._form.find(ask).name

    # --- the phases of an Ask -------------------------------------------------------------------

    def _ask(self, ask: Ask, round: int) -> Outgoing:
        exchange = self._form.find(ask)
        self.asking = exchange.name
        self.move(Event.ASK)
        self.context.policy.check_cohort(ask.cohort.size)
        self.keys.check(round)
        members = self.survivors.present(ask.cohort._members, round)
        self.survivors.check_left(members)
        members = self.survivors.fitting(members, exchange)
        if fixing(self.context, exchange):
            self.survivors.check_fixed(round)
        number, self._asking = self.exchanges.next(), True
        self.forget(Scope.ASK if round == self._round else Scope.ROUND)
        self._round = round
        held = Held(exchange, round, number, members, ask.handed)
        self.asked.hold(self.asked_clusters.told(held, ask.cohort))
        return self._out(self._enter(self.order))

    def _advance(self) -> Iterable[Delivery]:
        if self.state is State.KEYING:
            return self.keys.go_on()
        if self.state is State.PARTING:
            if notes := self.cosigning.give_back():
                return notes
            self.move(Event.ANSWERED)
        if not self._acting:
            return []
        order, acting = self.order, self.parts[self._acting]
        if (deliveries := acting.advance()) is not None:
            return deliveries
        acting.rest()
        return self._enter(order[order.index(acting) + 1 :])

    def _enter(self, rest: Iterable[SessionPart]) -> Iterable[Delivery]:
        """Begin the next phase that this Ask wants; at the end, make the reply."""
        for part in rest:
            if part.wanted():
                self._acting = part_name(type(part))
                if (deliveries := part.enter()) is not None:
                    return deliveries
                part.rest()
        self._acting = ""
        if self.asked.reply is None:
            self.asked.finish()
        self.move(Event.ANSWERED)
        return []

    def _settle(self, outcome: Reply | None) -> None:
        """Note how an Ask ended, to be kept before it is used."""
        self._asking, self.outcome = False, outcome
        self.answered += 1
        if outcome is None:
            return
        asked = self.asked.answers
        for part in self.parts.values():
            part.answered(asked)
        if self.recorder is not None and self.recorder.wants(asked.exchange, asked.where.round):
            self.recorder.came(asked.exchange.name, asked.where, outcome)

    def _lose(self) -> None:
        """Skip the round: nothing of it is opened any more."""
        self.move(Event.LOST)
        self._acting = ""
        self.forget(Scope.ROUND)
        self._settle(None)
        self._out([])

    def _out(self, made: Iterable[Delivery]) -> Outgoing:
        """Make what leaves durable; where no state is kept, as `Stream` does, if that was asked."""
        if self.batch and self.keeper is None and not isinstance(made, list):
            self.exchanges.outstanding = []
            return Stream(self, made, self.batch)
        try:
            self.exchanges.outstanding = list(made)
            self.commit()
        except Exception as error:
            self.die(error)
            raise
        return self.exchanges.outstanding


SESSION = AggregatorSession
NAMES = (AGGREGATOR_NAME,)
