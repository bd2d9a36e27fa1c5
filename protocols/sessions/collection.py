"""The answers to one Ask: which are here, whose count, and the reply that they amount to."""

from __future__ import annotations

from typing import TypeVar

from protocols.disclosures._base.view import Answers, answers_of
from protocols.errors import BadEnvelope, LocalProtocolError, WrongStage
from protocols.forms import Exchange
from protocols.messages import Message
from protocols.plan.steps import Part, Service
from protocols.rounds import Reply, View
from protocols.wire.cohorts import as_set
from protocols.wire.inbox import Incoming
from protocols.wire.run_context import RunContext
from protocols.wire.where import Where

A = TypeVar("A", bound=Answers)


class Collection:
    """Collects the cohort's envelopes for one Ask, disclosure by disclosure.

    Args:
        context: of the aggregator.
        exchange: what was asked.
        where: round, exchange number, cohort, slot and digest of what was given.
    """

    def __init__(self, context: RunContext, exchange: Exchange, where: Where) -> None:
        self.exchange, self.where, self._context = exchange, where, context
        self.survivors: tuple[str, ...] = ()
        parts: list[Part] = list(dict.fromkeys(kind.disclosure for kind in exchange.back))
        self._answers: dict[Part, Answers] = {
            part: answers_of(part)(context, exchange, where, part)
            for part in parts or [Service.ASK]
        }

    def add(self, incoming: Incoming) -> None:
        """Take one answer.

        Raises:
            WrongStage: it belongs to another exchange or round.
            BadEnvelope: not from this cohort, made from another Start (O8) or key, or not masked.
        """
        header, where, part = incoming.header, self.where, incoming.item.part
        if incoming.item.exchange != self.exchange.name or part not in self._answers:
            raise WrongStage("An answer belongs to another exchange than the one asked.")
        self.check_place(incoming)
        if header.sender not in as_set(where.members):
            raise BadEnvelope("An answer is not from this cohort.")
        if header.given != where.given:
            raise BadEnvelope("A client was given something else than the others (O8).")
        self._answers[part].take(incoming)

    def check_place(self, incoming: Incoming) -> None:
        """Raise unless an envelope belongs to this round, exchange, attempt and cohort."""
        header, where = incoming.header, self.where
        places = (header.round, header.exchange, header.attempt)
        if places != (where.round, where.exchange, where.attempt):
            raise WrongStage("An answer belongs to another round than the one asked.")
        if header.cohort != self._context.cohort(where):
            raise BadEnvelope("An answer belongs to another cohort.")

    def missing(self) -> tuple[str, ...]:
        """Return the members of whom something is missing."""
        answers = self._answers.values()
        return tuple(
            member for member in self.where.members if not all(one.here(member) for one in answers)
        )

    def fix_survivors(self) -> tuple[str, ...]:
        """Settle whose answers count: those of which everything is here. Return who vanished."""
        gone = self.missing()
        there = as_set(self.where.members).difference(gone)
        self.survivors = tuple(m for m in self.where.members if m in there)
        for one in self._answers.values():
            one.settle(self.survivors)
        return gone

    @property
    def fixed(self) -> bool:
        """Whether an opening of these answers fixes who counts in their round (O5)."""
        return any(one.fixed for one in self._answers.values())

    def get(self, part: Part, kind: type[A]) -> A | None:
        """Return the answers of one disclosure; None if none were asked back."""
        found = self._answers.get(part)
        return found if isinstance(found, kind) else None

    def of(self, part: Part, kind: type[A]) -> A:
        """Return the answers of one disclosure; raises LocalProtocolError if none were asked."""
        found = self.get(part, kind)
        if found is None:
            raise LocalProtocolError(f"No {part} message was asked back.")
        return found

    def reply(self) -> Reply:
        """Build the Reply, one view per message type that came back, and forget the envelopes."""
        found: dict[type[Message], View] = {}
        for one in self._answers.values():
            found.update(one.views())
            one.forget()
        return Reply(found, len(self.survivors))
