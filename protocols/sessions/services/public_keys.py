"""An epoch's public keys where they are used: at clients and witnesses."""

from __future__ import annotations

from typing import ClassVar

from crypto.errors import CryptoError
from protocols.disclosures._evaluated.ciphers import key_kinds, keyed, raw_key
from protocols.errors import BadEnvelope, Replay, WrongStage
from protocols.keys.slots import epoch_of
from protocols.plan.steps import Service, Step
from protocols.sessions.part import Delivery, Engine, SessionPart, Takes
from protocols.sessions.services.answering import Answering
from protocols.sessions.services.progress import Progress
from protocols.sessions.table import Event
from protocols.wire.envelope import beginning
from protocols.wire.inbox import Incoming


class PublicKeys(SessionPart):
    """Takes the key authority's keys, once an epoch (O9).

    Args:
        engine: the session.
        progress: how far this party is.
        answering: says the same to the very same keys, however often they come.
    """

    called: ClassVar[str] = "keys"

    def __init__(self, engine: Engine, progress: Progress, answering: Answering) -> None:
        super().__init__(engine)
        self._progress, self._answering, self.epoch = progress, answering, -1

    def _take_key(self, incoming: Incoming) -> list[Delivery]:
        """Check the epoch's public keys, keep them and write down which they are.

        Raises:
            BadEnvelope: one of them is not usable.
        """
        context = self._context
        epoch = epoch_of(incoming.header.round, context.policy)
        if epoch <= self.epoch:
            raise BadEnvelope("Keys arrived for an epoch that has its keys already (O9).")
        self.epoch = epoch
        self._engine.move(Event.KEY)
        secret = keyed(context.plan.items, context.policy)
        messages = self._engine.read(incoming, key_kinds(secret))
        for disclosure, message in zip(secret, messages, strict=True):
            try:
                key = context.take_key(disclosure, raw_key(disclosure, message))
            except CryptoError as error:
                raise BadEnvelope("The offered public key is not usable.") from error
            self._engine.record("key", {"event": "received", "key": key.key_id})
        self._answering.stands = beginning(incoming.envelope)
        return []

    def check_time(self, round: int) -> None:
        """Raise Replay for keys of an epoch that is over.

        Within their epoch keys may stall until after Asks that rest on none, and are taken then.
        """
        policy = self._context.policy
        if epoch_of(round, policy) < epoch_of(self._progress.round, policy):
            raise Replay("Keys arrived for an epoch that is over.")

    def check(self, round: int) -> None:
        """Raise WrongStage for what is asked for under keys that are not, or no more, here."""
        if self.epoch != epoch_of(round, self._context.policy):
            raise WrongStage("A result is asked for under the key of another epoch (O9).")

    takes: ClassVar[Takes] = {(Service.KEYS, Step.OFFER): _take_key}
