"""What all roles that are asked share: one envelope, one answer, and no more after an error."""

from __future__ import annotations

from protocols.errors import LedgerError
from protocols.sessions.part import Delivery, Engine, Scope, SessionPart
from protocols.sessions.services.refusals import refusal
from protocols.wire.envelope import beginning, is_again
from protocols.wire.inbox import Incoming
from protocols.wire.roles import Role
from protocols.wire.where import Where


class Answering(SessionPart):
    """Answers envelopes one by one.

    The very same bytes again get the very same answer, a refusal included, whoever lost it.

    Attributes:
        repeats: whether the last answer is kept, for who asks again. Without, the same bytes are a
            replay.
        again: these very bytes were recorded by `before_opening`, and killed before they were
            answered.
        stands: how the envelope began that is answered with nothing for as long as it stands,
            whatever came in between: that of the epoch's public keys. Whoever hands them out does
            not know who has them.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.repeats, self.again, self.stands = True, False, b""
        # How the last envelope began, and its answer: None while what it asks for is being opened.
        self.repeat: tuple[bytes, list[Delivery] | None] = (b"", [])

    def receive(self, data: bytes) -> list[Delivery]:
        """Take one envelope, return what leaves in answer; the ledger is durable by then.

        Bytes that are not authentic raise and change nothing, and so do those of an exchange that
        is over, or that come before what they rest on: who carries envelopes could bring them at
        any time. Any other authentic envelope that cannot be answered gets one refusal and ends
        the session.

        Raises:
            RemoteProtocolError: not authentic, a replay, out of its time, or for another run or
                party.
            LedgerError: the record could not be written; nothing is opened, nothing leaves.
        """
        engine = self._engine
        self.again = is_again(data, self.repeat[0])
        if self.again and self.repeat[1] is not None:  # None: killed between record and answer
            return self.repeat[1]
        engine.alive()
        if is_again(data, self.stands):
            return []
        incoming = engine.open(data, again=self.again)
        try:
            replies: list[Delivery] = engine.handler(incoming)(incoming)
        except LedgerError as error:
            engine.die(error)
            raise
        except Exception as error:
            engine.die(error)
            aggregator = self._context.roster.one(Role.AGGREGATOR).name
            replies = [refusal(engine, error, aggregator, self._place(incoming))]
        if self.repeats:
            self.repeat = (beginning(incoming.envelope), replies)
        try:
            engine.commit()
        except BaseException as error:  # whatever failed: this answer never leaves
            engine.die(error)
            raise
        return replies

    def _place(self, incoming: Incoming) -> Where:
        """Return where a refusal belongs; a client also repeats what it was given."""
        header = incoming.header
        if self._context.me.party.role is not Role.CLIENT:
            return Where(header.round, header.exchange)
        return Where(header.round, header.exchange, (), header.given, header.attempt)

    def before_opening(self, incoming: Incoming) -> None:
        """Make durable what is about to be opened: a restart must open these bytes, or none."""
        self.repeat = (beginning(incoming.envelope), None)
        self._engine.commit()

    def forget(self, scope: Scope) -> None:
        """Say nothing again once the session is over."""
        if scope is Scope.RUN:
            self.repeat, self.stands = (b"", []), b""
