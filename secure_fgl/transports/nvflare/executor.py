"""At every site but the aggregator's: a relay between NVFlare and the party's own process.

Bytes in, bytes out. It holds no key, no data and no session, and nothing of a session is loaded
here. Where the party listens is decided by the site's operator, in the environment of the site's
process, and by nothing that a job or a task says.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from nvflare.apis.executor import Executor
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from protocols.errors import BadEnvelope
from secure_fgl.transports.nvflare.engine.listener import check_listener
from secure_fgl.transports.nvflare.pushed.turns import Turns, Work
from secure_fgl.transports.nvflare.site import channel
from secure_fgl.transports.nvflare.site.codes import Code, Heard
from secure_fgl.transports.nvflare.wire import (
    BUDGET,
    END,
    TASK,
    Word,
    hold,
    pack,
    patience,
    say,
    tell,
    turn,
    unpack,
)

_log = logging.getLogger(__name__)


class Seat(Executor):  # type: ignore[misc] # nvflare is untyped
    """Hands each request to the party's process and returns what it says.

    The server pushes them, and NVFlare hands them over as it does tasks that a site fetched. Where
    the process is away, or works on something else, the aggregator is told so at once: nobody waits
    for a deadline. Of an error it hears a code; the reason stays with the party.

    Args:
        run: of which the job is. A site that never joined it has no socket of that name.

    Raises:
        ValueError: that is no run's name; the job fails before anything is opened.
        UsageError: the engine listens in clear; the job fails, too.
    """

    def __init__(self, run: str) -> None:
        super().__init__()
        check_listener()
        channel.of_run(Path(channel.SOCKET), run)
        self._run, self._last, self._turns = run, Code.DONE, Turns()

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Hand the envelopes of one request over, once; return the answers, a code, or a word."""
        try:
            if task_name not in (TASK, BUDGET, END):
                raise BadEnvelope("A task came that no party knows.")
            name, asks = turn(shareable)
            work = None if asks else self._work(task_name, shareable, abort_signal)
            found = self._turns.take(name, work, hold(shareable), abort_signal)
        except BadEnvelope:
            found = Heard(Code.UNREADABLE)
        except Exception as error:  # whatever it is, its text stays here
            _log.error("the relay failed (%s)", type(error).__name__)
            found = Heard(Code.FAILED)
        if isinstance(found, Word):
            return tell(found)
        if found.code is not self._last:  # once, however often it is asked meanwhile
            _log.error("the party's process: %s", found.code)
        self._last = found.code
        return pack(found.envelopes) if found.code is Code.DONE else say(found.code)

    def _work(self, name: str, carried: Shareable, abort: Signal) -> Work:
        envelopes, end = unpack(carried), time.monotonic() + patience(carried)

        def work(taken: Callable[[], None]) -> Heard:
            try:
                return _asked(self._run, name, envelopes, end, abort, taken)
            except Exception as error:  # whatever it is, its text stays here
                _log.error("the relay failed (%s)", type(error).__name__)
                return Heard(Code.FAILED)

        return work


def _asked(
    run: str,
    name: str,
    envelopes: Sequence[bytes],
    end: float,
    abort: Signal,
    taken: Callable[[], None],
) -> Heard:
    place = os.environ.get(channel.SOCKET_VARIABLE)
    if not place:
        _log.error("%s is not set: no party is known here", channel.SOCKET_VARIABLE)
        return Heard(Code.FAILED)
    try:
        socket = channel.of_run(Path(place), run)
        left = max(0.0, end - time.monotonic())
        connection = channel.connect(socket, seconds=min(left, channel.GREETING_SECONDS))
        with contextlib.closing(connection):
            channel.send(connection, {"do": name, "run": run}, envelopes)
            taken()
            head, answers = channel.receive(
                connection,
                stopped=lambda: abort.triggered,
                seconds=max(0.0, end - time.monotonic()),
            )
        return Heard(Code(str(head.get("code"))), answers)
    except channel.Absent:
        return Heard(Code.LEFT)
    except (channel.Busy, channel.Stopped, TimeoutError):
        return Heard(Code.BUSY)
    except channel.Broken:
        return Heard(Code.AWAY)
