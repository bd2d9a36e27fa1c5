"""What a party says to the tasks that reach it: its session's answers, or one of two codes."""

from __future__ import annotations

from collections.abc import Sequence

from protocols.errors import LedgerError, RemoteProtocolError
from secure_fgl.store.sides.site_log import note
from secure_fgl.transports.nvflare.party_process import PartyProcess
from secure_fgl.transports.nvflare.site.codes import END, TASK, Code, Heard

__all__ = ["Answerer"]


class Answerer:
    """Answers for one party, one task at a time: a session is no place for two threads.

    What goes wrong is told by a code alone: an error's text could hold what may not leave. The
    reason goes to the party's own log.

    Args:
        process: the party's session with its files; not an aggregator's.

    Attributes:
        run: of which tasks are answered.
        over: the aggregator said that the run is over, and the ledger is closed.
        broken: what is kept could not be written, or the session could not end; only a new process,
            which takes the kept state up again, can go on.
        why: it is broken; a full disk may have no room for the log either.
    """

    def __init__(self, process: PartyProcess) -> None:
        self.process, self.run = process, process.kit.charter.run
        self.over = self.broken = False
        self.why: Exception | None = None
        self._told: BaseException | None = None

    def answer(self, name: str, envelopes: Sequence[bytes]) -> Heard:
        """Return what is said to one task; raises nothing but what ends this process."""
        kit = self.process.kit
        try:
            return Heard(Code.DONE, self._answer(name, envelopes))
        except RemoteProtocolError as error:
            note(kit.party, "a task was not accepted", error)
            return Heard(Code.UNREADABLE)
        except Exception as error:  # whatever it is, its text stays here
            # A session that began to end has closed its files, and let go of the party's lock.
            self.broken = name == END or isinstance(error, LedgerError | OSError | MemoryError)
            self.why = error if self.broken else None
            note(kit.party, "a task was not answered", error)
            return Heard(Code.FAILED)

    def _answer(self, name: str, envelopes: Sequence[bytes]) -> Sequence[bytes]:
        process, charter = self.process, self.process.kit.charter
        if name == TASK:
            answers = [d.data for data in envelopes for d in process.receive(data)]
            if (error := process.session.last_error) is not self._told:
                self._told = error
                note(process.kit.party, "this party refused, and its session is over", error)
            return answers
        if name != END:
            raise RemoteProtocolError("A task came that no party knows.")
        charter.check_end(b"".join(envelopes))
        process.close()
        self.over = True
        return []
