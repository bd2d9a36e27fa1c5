"""The secret keys of an epoch, at the key authority: in memory, for one epoch (O9)."""

from __future__ import annotations

import contextlib
from typing import ClassVar

from crypto.homomorphic.he import SecretKey
from protocols.disclosures._evaluated.ciphers import key_message, keyed, ring_of
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope, LedgerError, LocalProtocolError
from protocols.keys.slots import epoch_of
from protocols.messages import Message
from protocols.plan.steps import Service, Step
from protocols.sessions.part import Delivery, Engine, Scope, SessionPart, Takes
from protocols.sessions.table import Event
from protocols.wire.inbox import Incoming
from protocols.wire.roster import EVERYONE
from protocols.wire.where import Where


class SecretKeys(SessionPart):
    """Makes an epoch's keys and destroys those of the one before."""

    called: ClassVar[str] = "keys"

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.held: dict[Disclosure, SecretKey] = {}
        self._epoch = -1

    def begin(self) -> None:
        """Be ready at once where no keys are called for: then other things are opened."""
        if not self._context.plans("", Service.KEYS, Step.CALL):
            self._engine.move(Event.BEGIN)

    def of(self, disclosure: Disclosure) -> SecretKey:
        """Return this epoch's secret key of a disclosure."""
        if disclosure not in self.held:
            raise LocalProtocolError("This key authority holds no key.")
        return self.held[disclosure]

    def _make_key(self, incoming: Incoming) -> list[Delivery]:
        """Make the key of an epoch; the one before it is destroyed first (O9)."""
        header, context = incoming.header, self._context
        epoch = epoch_of(header.round, context.policy)
        if epoch <= self._epoch:
            raise BadEnvelope("A second key is called for in one epoch (O9).")
        self._engine.move(Event.KEY)
        self._engine.forget(Scope.EPOCH)
        self._epoch = epoch
        messages = [self._new_key(d) for d in keyed(context.plan.items, context.policy)]
        where = Where(round=header.round, exchange=header.exchange)
        offer = context.find("", Service.KEYS, Step.OFFER)
        return [self._engine.send(offer, messages, EVERYONE, where)]

    def _new_key(self, disclosure: Disclosure) -> Message:
        """Make one key of an epoch; return its public half."""
        context = self._context
        scheme = context.scheme if disclosure is Disclosure.SUM else ring_of(disclosure)
        if scheme is None:
            raise LocalProtocolError("This key authority has no encryption scheme.")
        public, self.held[disclosure] = scheme.keygen()
        if disclosure is Disclosure.SUM:
            context.he_key = public
        else:
            context.keys = {**context.keys, disclosure: public}
        facts = {"event": "made", "key": public.key_id, "scheme": scheme.name}
        self._engine.record("key", facts)
        return key_message(disclosure, public.raw)

    def forget(self, scope: Scope) -> None:
        """Destroy the keys at the end of their epoch, and of the run."""
        if scope not in (Scope.EPOCH, Scope.RUN):
            return
        for disclosure, secret in list(self.held.items()):
            secret.destroy()
            del self.held[disclosure]
            with contextlib.suppress(LedgerError):  # it must go even if nothing can be written
                self._engine.record("key", {"event": "destroyed", "key": secret.key_id})

    takes: ClassVar[Takes] = {(Service.KEYS, Step.CALL): _make_key}
