"""A toy role: a second witness, which signs the survivors of each sum.

It sees who was asked and whose answer counts, and no byte of any answer. What it keeps an
aggregator from is to let a client vanish from one sum of a round and count in the next (O5), even
if it holds the key authority and most clients. If it does not answer, the round is lost. It stands
for no paper; a test puts this file into `protocols/roles`, and nothing else changes.
"""

from __future__ import annotations

from typing import ClassVar

from crypto.errors import CryptoError
from crypto.signing import SIGNATURE_BYTES, canonical
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.view import Summands
from protocols.errors import BadEnvelope, Replay, RoundLost, WrongStage
from protocols.forms import Exchange
from protocols.messages import SealedMessage, blob
from protocols.plan.builder import PlanBuilder, Times
from protocols.plan.steps import Step
from protocols.sessions.asking import Asked
from protocols.sessions.engine import Answering, Phase, Session
from protocols.sessions.part import (
    IDLE,
    STEPS,
    Delivery,
    Engine,
    Event,
    Scope,
    SessionPart,
    Stages,
    Takes,
)
from protocols.wire.envelope import Where
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role
from protocols.wire.run_context import RunContext

_ROLE = Role("second_witness")
_WAITING, _DOMAIN = "waiting", "second-witness"


class SurvivorsSeen(SealedMessage):
    """Aggregator to second witness: whose answers count in a sum."""

    members: bytes = blob("roster_mask", unit="bit", meaning="bit i: roster client i was asked")
    survivors: bytes = blob("roster_mask", unit="bit", meaning="bit i: its answer counts")


class Countersigned(SealedMessage):
    """Second witness to aggregator: its signature over that list."""

    signature: bytes = blob(SIGNATURE_BYTES, unit="byte", meaning="over place, cohort, survivors")


def _text(context: RunContext, name: str, where: Where, survivors: bytes) -> bytes:
    """Return what is signed: one list of one sum of one run."""
    place = [context.run, name, str(where.round), str(where.exchange), context.cohort(where)]
    return canonical([*place, survivors.hex()])


class Countersigning(SessionPart):
    """The aggregator's part: has every sum's survivors signed before the total is opened."""

    phase: ClassVar[int | None] = Phase.COMPARE
    stages: ClassVar[Stages] = {IDLE: {_WAITING}}

    def __init__(self, engine: Engine, asked: Asked) -> None:
        super().__init__(engine)
        self._asked, self._signature = asked, b""

    def wanted(self) -> bool:
        """Tell whether a SUM came back."""
        return self._asked.answers.get(Disclosure.SUM, Summands) is not None

    def forget(self, scope: Scope) -> None:
        """Drop the signature with its Ask."""
        if scope is Scope.ASK:
            self._signature = b""

    def enter(self) -> list[Delivery]:
        """Show the second witness whose answers count."""
        self.go(_WAITING)
        asked, roster = self._asked.answers, self._context.roster
        item = self._context.find(asked.exchange.name, _ROLE, Step.WITNESS)
        seen = SurvivorsSeen(
            members=roster.mask(asked.where.members), survivors=roster.mask(asked.survivors)
        )
        return [self._engine.send(item, [seen], roster.one(_ROLE).name, asked.where)]

    def _take(self, incoming: Incoming) -> None:
        asked, roster = self._asked.answers, self._context.roster
        if (self.stage, incoming.item.exchange) != (_WAITING, asked.exchange.name):
            raise WrongStage("A second witness's signature arrived while none was asked for.")
        asked.check_place(incoming)
        signature = self._engine.read_one(incoming, Countersigned).signature
        name = asked.exchange.name
        text = _text(self._context, name, asked.where, roster.mask(asked.survivors))
        try:
            roster.one(_ROLE).verify.verify(_DOMAIN, signature, text)
        except CryptoError as error:
            raise BadEnvelope(
                "The second witness signed another list than it was shown."
            ) from error
        self._signature = signature

    def advance(self) -> None:
        """Raise RoundLost unless the second witness signed."""
        if not self._signature:
            raise RoundLost("The second witness did not sign. The round is skipped.")

    takes: ClassVar[Takes] = {(_ROLE, Step.WITNESSED): _take}


class SigningOnce(SessionPart):
    """The second witness's part: signs one list an exchange; who vanished in a round stays away."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._round, self._gone = 0, frozenset[str]()

    def _sign(self, incoming: Incoming) -> list[Delivery]:
        self._engine.move(Event.STEP)
        context, header, name = self._context, incoming.header, incoming.item.exchange
        seen = self._engine.read_one(incoming, SurvivorsSeen)
        members, there = context.roster.unmask(seen.members), context.roster.unmask(seen.survivors)
        where = Where(header.round, header.exchange, members, header.given, header.attempt)
        context.policy.check_cohort(len(there))
        if header.cohort != context.cohort(where) or not set(there) <= set(members):
            raise BadEnvelope("The survivors are not of the cohort that was asked.")
        gone = self._gone if header.round == self._round else frozenset()
        if header.round < self._round or gone.intersection(there):
            raise Replay("A client that vanished from this round counts in it again (O5).")
        self._round, self._gone = header.round, gone | set(members).difference(there)
        signature = context.me.signing.sign(_DOMAIN, _text(context, name, where, seen.survivors))
        item = context.find(name, _ROLE, Step.WITNESSED)
        return [self._engine.send(item, [Countersigned(signature=signature)], header.sender, where)]

    takes: ClassVar[Takes] = {(_ROLE, Step.WITNESS): _sign}


class SecondWitnessSession(Session):
    """SECOND_WITNESS: a second pair of eyes on whose answers count."""

    made_of = (Answering, SigningOnce)
    table = STEPS


def plan(plan: PlanBuilder, exchange: Exchange, times: Times) -> None:
    """Add the two envelopes of a sum that is to be opened."""
    if all(kind.disclosure is not Disclosure.SUM for kind in exchange.back):
        return
    route, often = (str(Role.AGGREGATOR), str(_ROLE)), plan.often(times)
    said, sealed = {str(_ROLE): "who takes part when, and whose answers count"}, Disclosure.SEALED
    place = (exchange.name, _ROLE)
    plan.add(*place, Step.WITNESS, route, (SurvivorsSeen,), sealed, often, said=said)
    said = {"aggregator": "that it signed no other list"}
    plan.add(*place, Step.WITNESSED, route[::-1], (Countersigned,), sealed, often, said=said)


SESSION, AGGREGATOR, NAMES = SecondWitnessSession, Countersigning, ("second-witness",)
