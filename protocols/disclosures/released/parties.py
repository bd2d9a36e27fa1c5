"""The client's part in models: it computes them, or holds them to what honest clients can do.

Where the plan says `recomputed`, the client plays the aggregator's side of every round itself:
from the first model, which the plan's public seed gives, and from totals that only clients can have
made.
An aggregator can still leave a total out and say that its round was lost.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from crypto.signing import canonical
from protocols.disclosures._checked.totals import Place, history, largest_change, names, reply_of
from protocols.disclosures.names import Disclosure
from protocols.disclosures.released.messages import SharedTotal
from protocols.errors import BadEnvelope, LocalProtocolError, NotInPlan
from protocols.forms import Form
from protocols.messages import Message, ReleasedMessage
from protocols.plan.learns import BOUNDED, RECOMPUTED, Models
from protocols.plan.plan import Item
from protocols.plan.steps import Service, Step
from protocols.policy.guard import find
from protocols.policy.guards import Clip
from protocols.rounds import Cohort, Reply
from protocols.sessions.part import Delivery, Engine, Event, SessionPart, Takes
from protocols.wire.codec import decode, encode
from protocols.wire.control import Acknowledgement
from protocols.wire.envelope import Where
from protocols.wire.inbox import Incoming
from protocols.wire.roster import weights_digest, weights_of


class ModelKeeping(SessionPart):
    """Holds the state that the aggregator should have, or the last model that came.

    Args:
        engine: the session, whose `form` this part reads.
    """

    called: ClassVar[str] = "models"
    opens: ClassVar[tuple[type[Message], ...]] = (SharedTotal, ReleasedMessage)

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._last = self._last_round = 0  # exchange and round of the last total
        self._told = 0  # the latest round in which a missed total was handed on
        self._state: Any = None  # after it, as fields or a message; None: as the run begins
        self._seen: tuple[int, Message] | None = (
            None  # the last model that came, after so many rounds
        )

    def begin(self) -> None:
        """See that the plan says of each model what this client's form and policy make of it.

        Raises:
            NotInPlan: it says something else.
            LocalProtocolError: models are to be computed, and the first one is not here.
        """
        form, context = self._form, self._context
        models = Models.of(form, context.policy, len(context.plan.clients))
        for exchange in form.exchanges:
            if not context.plans(exchange.name, Service.ASK, Step.DOWN):
                continue  # it is never asked
            item = context.find(exchange.name, Service.ASK, Step.DOWN)
            if item.model != models.of_exchange(exchange):
                raise NotInPlan(
                    f"The plan says that the model of {item.id} is {item.model or 'none'!r}, and "
                    f"this client's form and policy make it {models.how or 'none'!r}.",
                    why="the plan was made by another program, or with other code of the algorithm",
                    fix="make a new plan, and have it approved",
                )
        if models.how in (RECOMPUTED, BOUNDED) and form.start is None:
            raise LocalProtocolError("The first model is not here, and others follow from it.")

    @property
    def _form(self) -> Form[Any]:
        form: Form[Any] = getattr(self._engine, "form")  # noqa: B009 - only clients have one
        return form

    @property
    def _plain(self) -> Form[Any]:
        return self._form.plain or self._form

    def unsealed(self, kind: type[Message], message: Message, name: str, where: Where) -> Message:
        """Return the model; raises BadEnvelope if the one that the aggregator has is crafted."""
        item = self._context.find(name, Service.ASK, Step.DOWN)
        over = where.round - (1 if item.per_round else 0)  # rounds that are over
        if where.round < self._told:
            raise BadEnvelope("A model is of a round before the one whose totals were handed on.")
        shared = kind is self._plain.exchanges[0].given[0]
        if isinstance(message, SharedTotal):
            message = self._computed(message, over, self._context.dims(item))
        elif item.model == BOUNDED and shared:
            self._take(message, over)
        if item.model and shared:  # so that nobody else has to be believed what it was
            digest = weights_digest(weights_of(message))
            facts = {"digest": digest, "exchange": where.exchange, "round": where.round}
            self._engine.record("taken", facts)
        return message

    # --- models that this client computes -------------------------------------------------------

    def _computed(self, total: SharedTotal, over: int, dims: Mapping[str, int]) -> Message:
        if total.exchange > self._last:
            self._move(total, over)
        model = self._model(self._now())
        data = encode([model], dims)
        if hashlib.sha256(data).digest() != total.model:
            raise BadEnvelope(
                "The aggregator's model is not the one that follows from the totals so far.",
                why="it is crafted, or the aggregator's code or state differs from this client's",
                fix="compare versions; if they are the same, do not trust this aggregator",
            )
        (found,) = decode((type(model),), data, dims)
        return found

    def _take_missed(self, incoming: Incoming) -> list[Delivery]:
        """Take a total that was handed out while this client was away."""
        self._engine.move(Event.STEP)
        total, header = self._engine.read_one(incoming, SharedTotal), incoming.header
        if total.exchange > self._last:
            self._move(total, header.round - 1)
        self._told = max(self._told, header.round)
        item = self._context.find("", Service.TOTALS, Step.ACK)
        where = Where(header.round, header.exchange)
        return [self._engine.send(item, [Acknowledgement()], header.sender, where)]

    def _move(self, total: SharedTotal, over: int) -> None:
        """Check a total and play the round that it ended, one of the first `over` rounds."""
        if not self._last_round < total.round <= over:
            raise BadEnvelope("A total is of a round that is not over, or that had another one.")
        if total.before != self._last:
            raise BadEnvelope(
                "A total is missing between the last model and this one.",
                why="the aggregator leaves one out, or is out of step",
            )
        reply = self._reply(total)
        steps = self._plain.round(self._now(), Cohort(self._context.roster.clients))
        next(steps)
        try:
            steps.send(reply)
        except StopIteration as stop:
            state = stop.value
        else:
            raise LocalProtocolError("A round asks again; it cannot be played from one total.")
        if self._plain.reach:  # who has the common key could sign any total that is in range
            self._hold(self._model(state), self._model(self._now()), self._reach)
        self._last, self._last_round = total.exchange, total.round
        moved = {str(Disclosure.RELEASED): self._history(total)}
        self._context.held = {**self._context.held, **moved}  # contexts are copied
        self._state = state if isinstance(state, Message) else _fields(state)

    def _history(self, total: SharedTotal) -> bytes:
        """Return the digest of all totals so far, of which this is the last."""
        fields = [getattr(total, f.name) for f in SharedTotal.fields if f.name != "model"]
        facts = [
            hashlib.sha256(value).hexdigest() if isinstance(value, bytes) else f"{value}"
            for value in fields
        ]
        before = history(self._context)
        return hashlib.sha256(b"secure-fgl/totals\0" + before + canonical(facts)).digest()

    def _reply(self, total: SharedTotal) -> Reply:
        """Return what the aggregator read of a sum; raises BadEnvelope if it was changed."""
        context, item = self._context, self._moving
        members = names(total.members, context, context.roster.clients)
        survivors = names(total.survivors, context, members)
        context.policy.check_cohort(len(survivors))
        kinds = self._form_kinds(item), self._plain.exchanges[0].back
        place = Place(total.round, total.exchange, members, history(context))
        return reply_of(context, item, kinds, place, (total.total, total.check, survivors))

    @property
    def _moving(self) -> Item:
        """The item of the sum that moves the model."""
        return self._context.find(self._plain.exchanges[0].name, Disclosure.SUM, Step.UP)

    def _form_kinds(self, item: Item) -> tuple[type[Message], ...]:
        (exchange,) = (e for e in self._form.exchanges if e.name == item.exchange)
        return tuple(kind for kind in exchange.back if kind.disclosure is Disclosure.SUM)

    def _now(self) -> Any:
        """Return the state as it is now, as the algorithm knows it."""
        start, kept = self._form.start, self._state
        if kept is None or isinstance(kept, Message):
            return start if kept is None else kept
        return dataclasses.replace(start, **kept)

    def _model(self, state: Any) -> Message:
        """Return what the aggregator hands out in this state."""
        steps = self._plain.round(state, Cohort(self._context.roster.clients))
        given = next(steps).handed[0]
        steps.close()
        if not isinstance(given, Message):
            raise LocalProtocolError("A round hands out no model first.")
        return given

    # --- models that come ------------------------------------------------------------------------

    def _take(self, model: Message, rounds: int) -> None:
        """Refuse a model that honest clients could not have moved so far in so many rounds."""
        before, last = self._seen or (0, self._model(self._form.start))
        counts = [field.name for field in type(model).fields if field.wire not in ("f4", "f8")]
        if rounds == 0 and any(not _same(model, last, name) for name in counts):
            raise BadEnvelope("The first model is not the one that the plan's seed gives.")
        self._hold(model, last, (rounds - before) * self._reach)
        self._seen = rounds, model

    def _hold(self, now: Message, before: Message, most: float) -> None:
        """Refuse a model that moved by more than `most`: a weight, or all under a clip in norm."""
        clip = find(self._context.policy.chain(Disclosure.SUM), "clip")
        whole = isinstance(clip, Clip) and clip.norm == "l2" and self._moving.noise is None
        for field in type(now).fields:
            if field.wire not in ("f4", "f8"):
                continue
            values = [np.asarray(getattr(m, field.name)) for m in (now, before)]
            # Most models are far within, to which one look in their own precision is enough.
            if not whole and np.abs(values[0] - values[1]).max(initial=0.0) < (1 - 2**-20) * most:
                continue
            one, other = (value.astype(np.float64) for value in values)
            moved, size = np.abs(one - other), np.abs(one) + np.abs(other)
            if whole:
                moved, size = (np.atleast_1d(np.linalg.norm(v)) for v in (moved, size))
            # Both were rounded to the wire's 32 bits. What is not finite is within nothing.
            if not np.all(np.isfinite(moved) & (moved <= most + 2**-22 * size)):
                raise BadEnvelope(
                    "The model moved further than all clients together can move it.",
                    why="it is crafted: a total of its gradients would tell single records",
                    fix="do not trust this aggregator",
                )

    @property
    def _reach(self) -> float:
        """By how much a round moves a weight at most."""
        plan = self._context.plan
        models = Models.of(self._form, self._context.policy, len(plan.clients))
        largest = largest_change(self._context, self._moving, self._plain.exchanges[0].back)
        return models.furthest(largest, plan.data.records)

    takes: ClassVar[Takes] = {(Service.TOTALS, Step.DOWN): _take_missed}


def _same(one: Message, other: Message, name: str) -> bool:
    return bool(np.array_equal(getattr(one, name), getattr(other, name)))


def _fields(state: Any) -> dict[str, Any]:
    """Return the fields of an algorithm's state, a dataclass of messages and arrays."""
    return {field.name: getattr(state, field.name) for field in dataclasses.fields(state)}


CLIENT = ModelKeeping
