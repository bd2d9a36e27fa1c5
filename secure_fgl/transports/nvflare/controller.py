"""At the aggregator: a relay between its own process, which drives the run, and the sites.

It holds no session and no key, and nothing of a session is loaded here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import time
from pathlib import Path

from nvflare.apis.client import Client
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from secure_fgl.transports.nvflare.engine.listener import check_listener
from secure_fgl.transports.nvflare.pushed.awaited import JobAborted
from secure_fgl.transports.nvflare.pushed.carrier import PushCarrier
from secure_fgl.transports.nvflare.site import channel
from secure_fgl.transports.nvflare.site.codes import JOB, OVER

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.2  # how often a wait looks whether the job was aborted


class AggregatorAway(Exception):
    """The aggregator's own process is not there."""


class Conductor(Controller):  # type: ignore[misc] # nvflare is untyped
    """Carries for the aggregator's own process for as long as the job runs.

    Args:
        run: of which the job is. An office that never joined it has no socket of that name.
        deadline: seconds that one exchange may take, and for which the aggregator's process may be
            away before the job is given up.

    Raises:
        ValueError: that is no run's name; the job fails before anything is opened.
        UsageError: the engine listens in clear; the job fails, too.

    Attributes:
        carries: what makes the carrier of a job.
    """

    carries: type[PushCarrier] = PushCarrier

    def __init__(self, run: str, deadline: float = 600.0) -> None:
        super().__init__()
        check_listener()
        channel.of_run(Path(channel.SOCKET), run)
        self._run, self._exchange_deadline = run, float(deadline)

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to prepare."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to clear away."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Carry until the aggregator says that the job is over.

        Whatever goes wrong ends the job with the error's type alone: NVFlare sends the text of a
        panic to every site. The run itself can go on with another job, unless a party refused.
        """
        carrier = self.carries(fl_ctx.get_engine(), abort=abort_signal)
        try:
            if why := self._carried(carrier, abort_signal):
                self.system_panic(f"the run stopped ({why})", fl_ctx)
        except JobAborted:
            _log.error("the job was aborted")
        except Exception as error:
            _log.error("the relay failed (%s)", type(error).__name__)
            self.system_panic(f"the run stopped ({type(error).__name__})", fl_ctx)

    def _carried(self, carrier: PushCarrier, abort: Signal) -> str:
        """Serve the aggregator's process, and the one that is started in its place."""
        ever = False
        while True:
            with contextlib.closing(self._called(abort, ever)) as connection:
                ever = True
                try:
                    said = {"do": JOB, "run": self._run, "deadline": self._exchange_deadline}
                    channel.send(connection, said)
                    return _serve(connection, carrier, abort)
                except channel.Broken:
                    _log.error("the aggregator's process is away")

    def _called(self, abort: Signal, ever: bool) -> socket.socket:
        """Call the aggregator's process until it greets.

        Raises:
            AggregatorAway: it did not in time, or was there and ended in order.
        """
        place = os.environ.get(channel.SOCKET_VARIABLE, "")
        deadline = time.monotonic() + self._exchange_deadline
        while True:
            if abort.triggered:
                raise JobAborted
            try:
                return channel.connect(channel.of_run(Path(place), self._run))
            except channel.Broken as error:
                left = ever and isinstance(error, channel.Absent)
                if not place or left or time.monotonic() > deadline:
                    raise AggregatorAway from error
            time.sleep(_LOOK_SECONDS)

    def process_result_of_unknown_task(
        self,
        client: Client,
        task_name: str,
        client_task_id: str,
        result: Shareable,
        fl_ctx: FLContext,
    ) -> None:
        """Drop it: there are no tasks, so no result of one is awaited."""


def _serve(connection: socket.socket, carrier: PushCarrier, abort: Signal) -> str:
    """Carry what the aggregator's process asks for; return why the run stopped, empty if over."""
    while True:
        try:
            head, blobs = channel.receive(connection, stopped=lambda: abort.triggered)
        except channel.Stopped as error:
            raise JobAborted from error
        if head.get("do") == OVER:
            why = str(head.get("why"))
            return why if not why or why.isidentifier() else "error"
        bundles: dict[str, list[bytes]] = {}
        for site, count in head["sites"]:
            bundles[site], blobs = blobs[:count], blobs[count:]
        found = carrier.carry(
            str(head["task"]), bundles, float(head["seconds"]), set(head["unhurried"])
        )
        told = [[site, str(said.code), len(said.envelopes)] for site, said in found.items()]
        answers = [data for said in found.values() for data in said.envelopes]
        channel.send(connection, {"found": told}, answers)
