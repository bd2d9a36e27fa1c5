"""At every site but the aggregator's: the party's session behind NVFlare's Executor.

Bytes in, bytes out. Which party runs here is decided by the site's operator, in the environment of
the site's process, and by nothing that a job or a task says.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from protocols.errors import RemoteProtocolError
from secure_fgl.transports.nvflare.budgets import keep, own_heads
from secure_fgl.transports.nvflare.party import kit_of_this_process, note_here
from secure_fgl.transports.nvflare.party_process import PartyProcess, open_process
from secure_fgl.transports.nvflare.wire import BUDGET, END, TASK, failed, pack, unpack

_log = logging.getLogger(__name__)


class Seat(Executor):  # type: ignore[misc] # nvflare is untyped
    """Holds the session of the party at this site for as long as the job runs.

    What goes wrong is written to the engine's log by the error's type alone, and the aggregator
    hears one of two codes: an error's text could hold what may not leave. Its reason goes to the
    party's own ``site.log``.
    """

    def __init__(self) -> None:
        super().__init__()
        self._process: PartyProcess | None = None
        self._lock = threading.Lock()  # a session is no place for two threads

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Open the session when the job starts: data are loaded before the first envelope comes.

        The end of a job says nothing about the end of the run, as a killed server ends jobs too.
        So only the aggregator's last task closes the ledger.
        """
        if event_type == EventType.START_RUN:
            self._guarded(self._sit_down)

    def _sit_down(self) -> Shareable:
        self._process = open_process(kit_of_this_process())
        return pack([])

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Hand each envelope of the task to the session and return its answers."""
        if task_name == BUDGET:
            return self._guarded(lambda: self._tell_budgets(shareable))
        if task_name == END:
            return self._guarded(lambda: self._close(shareable))
        return self._guarded(lambda: self._answer(task_name, shareable))

    def _answer(self, task_name: str, shareable: Shareable) -> Shareable:
        if task_name != TASK or self._process is None:
            raise RemoteProtocolError("A task came that this site has no session for.")
        answers: list[bytes] = []
        for envelope in unpack(shareable):
            answers += [delivery.data for delivery in self._process.receive(envelope)]
        return pack(answers)

    def _tell_budgets(self, shareable: Shareable) -> Shareable:
        """Say how far this site's budgets are spent, once the run is over."""
        if self._process is None:
            raise RemoteProtocolError("A task came that this site has no session for.")
        kit = self._process.kit
        kit.charter.check_end(b"".join(unpack(shareable)))
        return pack(own_heads(kit))

    def _close(self, shareable: Shareable) -> Shareable:
        process = self._process
        if process is not None:
            end, *notes = unpack(shareable) or [b""]
            process.kit.charter.check_end(end)
            process.close()
            self._process = None
            keep(process.kit, notes)  # last: a note that is none must not keep the ledger open
        return pack([])

    def _guarded(self, act: Any) -> Shareable:
        with self._lock:
            try:
                done: Shareable = act()
                return done
            except RemoteProtocolError as error:
                _log.error("an envelope was not accepted (%s)", type(error).__name__)
                note_here("an envelope was not accepted", error)
                return failed(readable=False)
            except Exception as error:  # whatever it is, its text stays here
                _log.error("the session stopped (%s)", type(error).__name__)
                note_here("the session stopped", error)
                return failed(readable=True)
