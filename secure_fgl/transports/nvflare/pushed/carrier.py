"""At the server: pushes each bundle to its site, and fetches the answer.

A bundle rides in an auxiliary request of NVFlare's own topic for a task that is pushed. At the
site NVFlare runs it as a task that was fetched: through the same filters, to the same executor.

The answer is the reply, where it is there within half a second. Else the site says that its party
took the request, and is asked for the answer, each time for as long as the site may hold a request
open. So a connection that breaks costs `_PATIENCE_SECONDS` and not the whole deadline, and training
for hours costs two short messages every `_HOLD_SECONDS`. Whatever is lost is sent again under the
same name, and a site works on one name once.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nvflare.apis.fl_constant import FilterKey, ReservedTopic
from nvflare.apis.shareable import ReservedHeaderKey, Shareable
from nvflare.apis.signal import Signal
from nvflare.apis.utils.task_utils import apply_filters
from nvflare.private.privacy_manager import Scope

from secure_fgl.transports.nvflare.pushed.awaited import Awaited
from secure_fgl.transports.nvflare.site.codes import Code, Heard
from secure_fgl.transports.nvflare.wire import Word, heard, request, word

__all__ = ["PushCarrier"]

_log = logging.getLogger(__name__)
_FIRST_HOLD_SECONDS = 0.5  # below the second in which a site that missed a deadline takes the next
_HOLD_SECONDS = 20.0
_PATIENCE_SECONDS = 30.0  # without any progress of a transfer, beyond what the site may hold
_LOST_SECONDS = 60.0  # in which nothing came of a site; NVFlare calls it dead after as long
_PAUSES = (0.1, 0.2, 0.5, 1.0)  # before what was lost is sent again


class PushCarrier:
    """Carries each bundle to one site, and knows nothing of what is in it.

    Args:
        engine: NVFlare's, of the running job.
        abort: of the job.
    """

    def __init__(self, engine: Any, *, abort: Signal) -> None:
        self._engine, self._abort = engine, abort

    def carry(
        self,
        name: str,
        bundles: Mapping[str, Sequence[bytes]],
        seconds: float,
        unhurried: Collection[str],
    ) -> dict[str, Heard]:
        """Push each site its bundle; return what came, see `site.patience.Carrier`.

        Raises:
            JobAborted: NVFlare ends the job.
        """
        awaited, end = Awaited(list(bundles), unhurried), time.monotonic() + seconds
        for site, data in bundles.items():
            job = (awaited, site, name, data, end)
            threading.Thread(target=self._asked, args=job, daemon=True).start()
        return awaited.wait(seconds, self._abort)

    def _asked(
        self, awaited: Awaited, site: str, name: str, data: Sequence[bytes], end: float
    ) -> None:
        try:
            self._until_said(awaited, site, name, data, end)
        except Exception as error:  # a filter of the operator's, or of the engine's own
            _log.error("a request could not be sent (%s)", type(error).__name__)
            awaited.give_up(site, Heard(Code.FAILED))

    def _until_said(
        self, awaited: Awaited, site: str, name: str, data: Sequence[bytes], end: float
    ) -> None:
        """Send, and ask, until the site has said what it has to say, or nobody waits any more."""
        turn, lost, heard_at = uuid.uuid4().hex, 0, time.monotonic()
        there, taken = False, False  # the bundle is at the site; its party took it
        while awaited.expects(site) and (left := end - time.monotonic()) > 0:
            hold = min(left, _HOLD_SECONDS if taken else _FIRST_HOLD_SECONDS)
            asked = request(turn, None if there else data, seconds=left, hold=hold)
            patience = min(left, hold + _PATIENCE_SECONDS * 2**lost)
            sent = time.monotonic()
            reply = self._sent(site, name, asked, patience)
            if (said := word(reply)) is Word.LOST:
                if time.monotonic() - heard_at > _LOST_SECONDS:
                    awaited.give_up(site)
                time.sleep(_PAUSES[min(lost, len(_PAUSES) - 1)])
                lost += 1
                continue
            lost, heard_at = 0, time.monotonic()
            there, taken = said in (Word.TAKEN, Word.QUEUED), said is Word.TAKEN
            if said is None:
                awaited.give_up(site, heard(reply))
                return
            if taken:
                awaited.taken(site)
            if time.monotonic() - sent < hold / 2:  # a relay that does not hold costs no loop
                time.sleep(min(hold, _PAUSES[-1]))

    def _sent(self, site: str, name: str, asked: Shareable, seconds: float) -> Any:
        """Send one request and return its reply, None where nothing came.

        Filters of the server's operator see it as they see a task.
        """
        with self._engine.new_context() as fl_ctx:
            sent = apply_filters(
                Scope.TASK_DATA_FILTERS_NAME, asked, fl_ctx, {}, name, FilterKey.OUT,
                abort_signal=self._abort,
            )  # fmt: skip
            sent.set_header(ReservedHeaderKey.TASK_NAME, name)
            replies = self._engine.send_aux_request(
                targets=[site], topic=ReservedTopic.DO_TASK, request=sent, timeout=seconds,
                fl_ctx=fl_ctx, optional=True,
            )  # fmt: skip
            reply = (replies or {}).get(site)
            return reply and apply_filters(
                Scope.TASK_RESULT_FILTERS_NAME, reply, fl_ctx, {}, name, FilterKey.IN,
                abort_signal=self._abort,
            )  # fmt: skip
