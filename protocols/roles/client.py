"""The client's session: checks what it is asked, lets the algorithm answer, releases the answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from protocols.disclosures._base.client import OneCohort
from protocols.disclosures._base.plan import wire_kinds
from protocols.disclosures.registry import each
from protocols.errors import (
    BadEnvelope,
    LocalProtocolError,
    NotInPlan,
    Replay,
    UnfitMessage,
    WrongStage,
)
from protocols.evidence.captures import canary_words, commitment, new_secret
from protocols.evidence.ledger import Ledger
from protocols.forms import Exchange, Form
from protocols.messages import Message
from protocols.plan.plan import Item
from protocols.plan.steps import Service, Step
from protocols.privacy.own_noise import reals, silent
from protocols.sessions.clusters import ClusterHistory
from protocols.sessions.drawing import LotDrawing
from protocols.sessions.engine import Answering, Delivery, Progress, Session
from protocols.sessions.epoch_keys import PairSecrets, PublicKeys
from protocols.sessions.heads import Receipts, Spending
from protocols.sessions.part import Event, State, Takes, table
from protocols.sessions.store.recording import keeps_given
from protocols.wire.codec import pieces
from protocols.wire.control import Acknowledgement, Call, Cluster, Place, beside
from protocols.wire.envelope import Header, Where
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role, brought
from protocols.wire.roster import SHARED, as_set, bytes_digest, cohort_digest
from protocols.wire.run_context import RunContext

_SETUP = (Service.KEYS, Service.PAIRS, Service.DRAW)
_AGAIN = {Event.KEY: State.READY, Event.PAIR: State.READY}
_TABLE = table(
    {
        State.NEW: {**_AGAIN, Event.DRAW: State.NEW, Event.BEGIN: State.READY},
        State.READY: {
            **_AGAIN,
            Event.DRAW: State.READY,
            Event.ASK: State.READY,
            Event.STEP: State.READY,
            Event.PART: State.PARTED,
        },
        State.PARTED: {},
    }
)


class ClientSession(Session):
    """CLIENT: holds a site, and the only code that lets anything about it out.

    Args:
        context, ledger, rounding: see :class:`Session`.
        site: handed to the algorithm's answers; this floor never looks inside.
        form: the admitted form; its exchanges hold the answers.
    """

    made_of = (
        *(Answering, Progress, OneCohort, LotDrawing, PublicKeys, PairSecrets, Spending, Receipts),
        ClusterHistory,
        *each("client"),
        *brought(Role.CLIENT),
    )
    table = _TABLE
    answering: Answering
    progress: Progress
    keys: PublicKeys
    spending: Spending
    receipts: Receipts
    clusters: ClusterHistory
    canary_secret: bytes = b""
    """Of this client's canaries; see `protocols.evidence.captures`. Empty: it has none."""

    def __init__(
        self, context: RunContext, ledger: Ledger, rounding: bytes, *, site: Any, form: Form[Any]
    ) -> None:
        self._site, self._exchanges = site, {e.name: e for e in form.exchanges}
        self.form = form
        self.learnt = 0  # how often the site may have changed
        if context.policy.canaries is not None:
            self.canary_secret = new_secret()
        self.planted = False  # whether this process has put the canaries into the site
        super().__init__(context, ledger, rounding)
        told = canary_words(context.policy.canaries, context.plan.data.task)
        if not {*told} <= {*context.plan.warnings}:
            raise NotInPlan("The plan does not list the canaries that the policy asks for.")
        for exchange in form.exchanges:  # the plan may have come from somebody else
            for kind in exchange.back:
                item = context.find(exchange.name, kind.disclosure, Step.UP)
                if item.follows and kind not in exchange.follows:
                    raise NotInPlan(f"{item.id} is planned as if it held no data of this client.")

    def committed(self) -> Mapping[str, str]:
        """Return the digest that binds the coins of the canaries before anything is sent."""
        run = self.context.run
        return (
            {"canaries": commitment(self.canary_secret, run, self.name)}
            if self.canary_secret
            else {}
        )

    def opened(self) -> Mapping[str, str]:
        """Return the secret, when nothing more is sent: whoever audits needs the coins."""
        return {"canaries": self.canary_secret.hex()} if self.canary_secret else {}

    def handler(self, incoming: Incoming) -> Callable[..., Any]:
        """Return what takes an envelope; raises BadEnvelope for an Ask that is not known."""
        if incoming.item.exchange and incoming.item.exchange not in self._exchanges:
            raise BadEnvelope("An envelope belongs to no Ask that this client knows.")
        return super().handler(incoming)

    def due(self, header: Header, item: Item) -> None:
        """See that the keys are here that an envelope rests on.

        An aggregator goes on without waiting for a receipt of public keys. Whoever did not get them
        in time is as one that vanished, and answers again once they came.
        """
        if self.state is State.NEW and item.part not in _SETUP:
            raise WrongStage("An envelope arrived before anything was agreed on.")
        if item.part is Service.KEYS:
            self.keys.check_time(header.round)
        exchange = self._exchanges.get(item.exchange)
        if item.part is not Service.ASK or exchange is None:
            return
        if self._enciphers(exchange):
            self.keys.check(header.round)
        for part in self.parts.values():
            part.keys_here(exchange, header.round)

    def _answer(self, incoming: Incoming) -> list[Delivery]:
        """Answer an Ask."""
        self.move(Event.ASK)
        exchange = self._exchanges[incoming.item.exchange]
        kinds: tuple[type[Message], ...] = (
            Call,
            Place,
            *beside(self.context.plan.splits),
            *wire_kinds(exchange.given, self.context.policy, incoming.item.model),
        )
        call, place, *given = self.read(incoming, kinds)
        where = self._where(incoming, call, kinds)
        if self.context.plan.splits is not None:
            cluster, *given = given
            self._in_cluster(cluster, exchange, where)
        self.receipts.check(call, place, where)
        for part in self.parts.values():
            part.asked_back(exchange, where)
        arguments = [
            self._argument(kind, message, exchange.name, where)
            for kind, message in zip(exchange.given, given, strict=True)
        ]
        if self.canary_secret and not self.planted:
            raise LocalProtocolError("The site trains without the canaries that the plan lists.")
        self.learnt += 1
        recorder = self.recorder
        if recorder is not None and not recorder.wants(exchange, where.round):
            recorder = None
        before = recorder.before(arguments) if recorder is not None else b""
        self.spending.open_training(exchange, where)
        said = self._said(exchange, arguments)
        messages = () if said is None else said if isinstance(said, tuple) else (said,)
        if {type(m) for m in messages} != set(exchange.back) or len(messages) != len(exchange.back):
            raise LocalProtocolError(f"The answer of {exchange.name!r} is not what it declares.")
        sender = incoming.header.sender
        if not messages:
            item = self.context.find(exchange.name, Service.ASK, Step.ACK)
            taken = self.send(item, [Acknowledgement()], sender, where)
            if recorder is not None and keeps_given(exchange):
                recorder.sent(exchange.name, where, before, [taken.data], None, {})
            return [taken]
        deliveries = self._send_each(exchange.name, messages, sender, where)
        inside = self._gateway.inside()  # forgotten, whether it is captured or not
        if recorder is not None:
            envelopes = [delivery.data for delivery in deliveries]
            recorder.sent(exchange.name, where, before, envelopes, self._gateway.groups, inside)
        return deliveries

    def _in_cluster(self, message: Message, exchange: Exchange, where: Where) -> None:
        """Refuse a cluster that is neither the old one nor a rightful part of it (O5)."""
        if not isinstance(message, Cluster):
            raise BadEnvelope("An Ask does not say of which cluster it is.")
        if exchange.back and self.clusters.asked(message, where):
            facts = {"cluster": message.cluster.hex(), "cohort": self.context.cohort(where)}
            self.record("cluster", {**facts, "exchange": where.exchange, "round": where.round})

    def _said(self, exchange: Exchange, arguments: Sequence[Message]) -> Any:
        """Return what the algorithm answers; raises UnfitMessage if its numbers ran away.

        Under noise of the client's own any refusal would tell of its data, as what an algorithm
        raises, or says in place of numbers, may depend on them: it answers zeros, or acknowledges,
        and tells its operator.
        """
        items = [self.context.find(exchange.name, k.disclosure, Step.UP) for k in exchange.back]
        told = items or [item for item in self.context.plan.items if item.noise is not None]
        own = bool(told) and all(item.noise is not None and item.noise.local for item in told)
        try:
            said = exchange.answer(self._site, *arguments)
            if own:
                answer = () if said is None else said if isinstance(said, tuple) else (said,)
                dims = self.context.dims(items[0]) if items else {}
                said = reals(answer, exchange.back, dims)
        except Exception as error:
            if own:
                self.last_error = error
                return silent(exchange.back, self.context.dims(items[0])) if items else None
            if not isinstance(error, ArithmeticError):
                raise
            raise UnfitMessage(
                f"Training failed in {exchange.name!r}: its numbers are no longer finite.",
                why="the step size is too large for these features",
                fix="lower model.lr, or scale the features; nothing was sent",
            ) from error
        self.spending.check_trained(exchange)  # of what failed nothing leaves
        return said

    def _send_each(
        self, name: str, messages: tuple[Message, ...], to: str, where: Where
    ) -> list[Delivery]:
        deliveries = []
        for disclosure in dict.fromkeys(message.disclosure for message in messages):
            group = [message for message in messages if message.disclosure is disclosure]
            item = self.context.find(name, disclosure, Step.UP)
            deliveries.append(self.send(item, group, to, where))
            for part in self.parts.values():
                part.gave(item, group, where)
        return deliveries

    def _where(self, incoming: Incoming, call: Message, kinds: tuple[type[Message], ...]) -> Where:
        """Check cohort, order and digests of an Ask before anything is computed."""
        header, context = incoming.header, self.context
        if (header.exchange <= self.progress.exchange) or header.round < self.progress.round:
            raise Replay("An Ask is older than one that was already answered.")
        if header.attempt != 1:
            raise BadEnvelope("A second attempt needs evidence that the first was not opened (O5).")
        if header.round > context.plan.rounds:
            raise BadEnvelope("An Ask is for a round beyond the plan.")
        members = context.roster.unmask(call.members) if isinstance(call, Call) else ()
        if self.name not in as_set(members):
            raise BadEnvelope("An Ask's cohort does not hold this client.")
        context.policy.check_cohort(len(members))
        digest = cohort_digest(
            context.run, context.plan_digest, header.round, header.attempt, members
        )
        if header.cohort != digest:
            raise BadEnvelope("An Ask's cohort is not the one its header names.")
        # The very bytes that came: what they decode to has no other encoding.
        data = pieces(kinds, incoming.body, context.dims(incoming.item))
        shared = [(k, d) for k, d in zip(kinds, data, strict=True) if k.disclosure in SHARED]
        if header.given != bytes_digest(shared):
            raise BadEnvelope("An Ask's content is not what its header says was given.")
        self.progress.reached(header.exchange, header.round)
        slot = call.slot if isinstance(call, Call) else 0
        return Where(header.round, header.exchange, members, header.given, header.attempt, slot)

    def _enciphers(self, exchange: Exchange) -> bool:
        """Tell whether an answer is computed on while it is encrypted."""
        context, name = self.context, exchange.name
        said = [context.find(name, kind.disclosure, Step.UP) for kind in exchange.back]
        return any([context.enciphers(item) for item in said])

    def _argument(self, kind: type[Message], message: Message, name: str, where: Where) -> Message:
        """Return what a message is to the algorithm's answer: opened, if it came in a box."""
        for part in self.parts.values():
            if isinstance(message, part.opens):
                return part.unsealed(kind, message, name, where)
        return message

    takes: ClassVar[Takes] = {(Service.ASK, Step.DOWN): _answer}


SESSION = ClientSession
