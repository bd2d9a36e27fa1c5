"""What all roles that are asked share: one envelope, one answer, and no more after an error."""

from __future__ import annotations

from collections.abc import Mapping

from protocols.errors import LedgerError
from protocols.evidence.ledger import Ledger
from protocols.sessions.base import Parcel, Session
from protocols.wire.envelope import beginning, is_again
from protocols.wire.inbox import Letter
from protocols.wire.roster import Role
from protocols.wire.run_context import Papers
from protocols.wire.where import Where

__all__ = ["AnsweringSession"]


class AnsweringSession(Session):
    """A role that answers envelopes one by one.

    The very same bytes again get the very same answer, a refusal included, whoever lost it.
    """

    repeats = True
    """Whether the last answer is kept, for who asks again. Without, the same bytes are a replay."""

    def __init__(self, papers: Papers, ledger: Ledger, rounding: bytes) -> None:
        super().__init__(papers, ledger, rounding)
        # How the last envelope began, and its answer: None while what it asks for is being opened.
        self._repeat: tuple[bytes, list[Parcel] | None] = (b"", [])

    def receive(self, data: bytes) -> list[Parcel]:
        """Take one envelope, return what leaves in answer; the ledger is durable by then.

        Bytes that are not authentic raise and change nothing; an authentic envelope that cannot be
        answered gets one refusal and ends the session.

        Raises:
            RemoteProtocolError: not authentic, a replay, or for another run or party.
            LedgerError: the record could not be written; nothing is opened, nothing leaves.
        """
        again = is_again(data, self._repeat[0])
        if again and self._repeat[1] is not None:  # None: killed between record and answer
            return self._repeat[1]
        self.alive()
        letter = self._inbox.open(data, again=again)
        try:
            replies = self._replies(letter, again)
        except LedgerError as error:
            self.die(error)
            raise
        except Exception as error:
            self.die(error)
            aggregator = self.papers.roster.one(Role.AGGREGATOR).name
            replies = [self.refusal(error, aggregator, self._refused(letter))]
        if self.repeats:
            self._repeat = (beginning(letter.envelope), replies)
        try:
            self.commit()
        except BaseException as error:  # whatever failed: this answer never leaves
            self.die(error)
            raise
        return replies

    def _replies(self, letter: Letter, again: bool) -> list[Parcel]:
        """Do what an envelope asks for.

        Args:
            letter: opened and checked.
            again: these very bytes were recorded by `_before_opening`, and killed before they were
                answered.
        """
        raise NotImplementedError

    def _refused(self, letter: Letter) -> Where:
        """Return where a refusal belongs."""
        return Where(letter.header.round, letter.header.exchange)

    def _before_opening(self, letter: Letter) -> None:
        """Make durable what is about to be opened: a restart must open these bytes, or none."""
        self._repeat = (beginning(letter.envelope), None)
        self.commit()

    def die(self, error: BaseException) -> None:
        """End the session for good; nothing but its refusal is said again."""
        super().die(error)
        self._repeat = (b"", [])

    def close(self, result: Mapping[str, str] | None = None) -> None:
        """End; nothing is said again."""
        self._repeat = (b"", [])
        super().close(result)
