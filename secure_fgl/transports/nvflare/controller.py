"""At the aggregator: a relay between its own process, which drives the run, and NVFlare's tasks.

It holds no session and no key, and nothing of a session is loaded here.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from secure_fgl.transports.nvflare.site import channel
from secure_fgl.transports.nvflare.site.codes import JOB, OVER, Heard
from secure_fgl.transports.nvflare.wire import heard, pack

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.2  # how often a wait looks whether the job was aborted
_GRACE_SECONDS = 1.0  # in which a site that missed its last task takes this one, if it is there


class JobAborted(Exception):
    """NVFlare ends the job while an exchange is under way."""


class AggregatorAway(Exception):
    """The aggregator's own process is not there."""


class _Awaited:
    """Collects the results of one exchange; NVFlare calls back in threads of its own."""

    def __init__(self, sites: Collection[str], unhurried: Collection[str]) -> None:
        self._left, self._unhurried = set(sites), set(unhurried)
        self._news, self._found = threading.Condition(), dict[str, Heard]()

    def taken(self, site: str) -> None:
        """Note that a site took its task: it is there, so it is waited for."""
        with self._news:
            self._unhurried.discard(site)

    def take(self, site: str, result: Any) -> None:
        """Note a site's result."""
        self.give_up(site, heard(result))

    def give_up(self, site: str, said: Heard | None = None) -> None:
        """Note what a site said, or that NVFlare expects nothing more from it."""
        with self._news:
            if site in self._left:
                self._left.discard(site)
                if said is not None:
                    self._found[site] = said
                self._news.notify_all()

    def wait(self, seconds: float, abort: Signal) -> dict[str, Heard]:
        """Return what has come once nobody is awaited any more or the time is up."""
        start = time.monotonic()
        with self._news:
            while self._left and (passed := time.monotonic() - start) < seconds:
                if abort.triggered:
                    raise JobAborted
                if self._left <= self._unhurried and passed > _GRACE_SECONDS:
                    break
                self._news.wait(min(seconds - passed, _LOOK_SECONDS))
            return dict(self._found)


class TaskCarrier:
    """Carries each bundle as a task for one site, and knows nothing of what is in it.

    Args:
        controller: hands the tasks out.
        fl_ctx, abort: of the running job.
    """

    def __init__(self, controller: Controller, *, fl_ctx: FLContext, abort: Signal) -> None:
        self._controller, self._context, self._abort = controller, fl_ctx, abort

    def carry(
        self,
        name: str,
        bundles: Mapping[str, Sequence[bytes]],
        seconds: float,
        unhurried: Collection[str],
    ) -> dict[str, Heard]:
        """Send each site its task; return what came, see `site.patience.Carrier`.

        Raises:
            JobAborted: NVFlare ends the job.
        """
        awaited = _Awaited(list(bundles), unhurried)
        tasks = [self._task(name, site, data, seconds, awaited) for site, data in bundles.items()]
        for task, site in zip(tasks, bundles, strict=True):
            self._controller.send(task=task, fl_ctx=self._context, targets=[site])
        try:
            return awaited.wait(seconds, self._abort)
        finally:
            for task in tasks:  # a late result finds no task and is dropped by NVFlare
                if task.completion_status is None:
                    self._controller.cancel_task(task)

    def _task(
        self, name: str, site: str, data: Sequence[bytes], seconds: float, awaited: _Awaited
    ) -> Task:
        def taken(client_task: ClientTask, fl_ctx: FLContext) -> None:
            awaited.taken(site)

        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
            awaited.take(client_task.client.name, client_task.result)
            client_task.result = None

        def done(task: Task, fl_ctx: FLContext) -> None:
            awaited.give_up(site)

        return Task(
            name=name, data=pack(data, seconds), timeout=int(seconds) + 1,
            before_task_sent_cb=taken, result_received_cb=received, task_done_cb=done,
        )  # fmt: skip


class Conductor(Controller):  # type: ignore[misc] # nvflare is untyped
    """Carries for the aggregator's own process for as long as the job runs.

    Args:
        run: of which the job is. An office that never joined it has no socket of that name.
        deadline: seconds that one exchange may take, and for which the aggregator's process may be
            away before the job is given up.

    Raises:
        ValueError: that is no run's name; the job fails before anything is opened.
    """

    def __init__(self, run: str, deadline: float = 600.0) -> None:
        super().__init__(task_check_period=0.05)
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
        carrier = TaskCarrier(self, fl_ctx=fl_ctx, abort=abort_signal)
        try:
            if why := self._carried(carrier, abort_signal):
                self.system_panic(f"the run stopped ({why})", fl_ctx)
        except JobAborted:
            _log.error("the job was aborted")
        except Exception as error:
            _log.error("the relay failed (%s)", type(error).__name__)
            self.system_panic(f"the run stopped ({type(error).__name__})", fl_ctx)

    def _carried(self, carrier: TaskCarrier, abort: Signal) -> str:
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
        """Drop a result that came after its exchange was over."""


def _serve(connection: socket.socket, carrier: TaskCarrier, abort: Signal) -> str:
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
