"""At the aggregator: NVFlare's Controller drives the run over tasks, one for each site asked."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from nvflare.apis.client import Client
from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from protocols.errors import BadEnvelope, Refused
from protocols.sessions.engine import Delivery
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.transports.nvflare.budgets import budgets_of, cosigned
from secure_fgl.transports.nvflare.party import PartyKit, kit_of_this_process
from secure_fgl.transports.nvflare.party_process import conduct, open_process
from secure_fgl.transports.nvflare.wire import BUDGET, END, TASK, pack, unpack

_log = logging.getLogger(__name__)
_LOOK_SECONDS = 0.2  # how often a wait looks whether the job was aborted
_END_SECONDS = 30.0  # for closing a ledger; who is gone by then closes none


class JobAborted(Exception):
    """NVFlare ends the job while an exchange is under way."""


class _Awaited:
    """Collects the results of one exchange; NVFlare calls back in threads of its own."""

    def __init__(self, sites: Sequence[str], heard: Callable[[str], None]) -> None:
        self._left, self._news, self._heard = set(sites), threading.Condition(), heard
        self._found: dict[str, list[bytes]] = {}

    def take(self, site: str, result: Any) -> None:
        """Note a site's result; an error's code, or anything but bytes, is no answer."""
        found: list[bytes] = []
        try:
            found = unpack(result)
            self._heard(site)
        except BadEnvelope:
            _log.error("%s did not answer", site)
        with self._news:
            if site in self._left:
                self._left.discard(site)
                self._found[site] = found
                self._news.notify_all()

    def give_up(self, site: str) -> None:
        """Note that NVFlare expects nothing more from a site."""
        with self._news:
            self._left.discard(site)
            self._news.notify_all()

    def wait(self, seconds: float, abort: Signal) -> dict[str, list[bytes]]:
        """Return what has come once nobody is awaited any more or the time is up."""
        deadline = time.monotonic() + seconds
        with self._news:
            while self._left and (remaining := deadline - time.monotonic()) > 0:
                if abort.triggered:
                    raise JobAborted
                self._news.wait(min(remaining, _LOOK_SECONDS))
            return dict(self._found)


class TaskTransport:
    """Carries each delivery as a task for the one site where its party is.

    Args:
        controller: hands the tasks out.
        sites: the charter's: by party name, the engine's name of its site.
        deadline: seconds; who has not answered by then has vanished.
        fl_ctx, abort: of the running job.
        there: the sites that have this job; who is elsewhere is not waited for. None: all.

    Attributes:
        seconds: how long each exchange took.
        heard: called with the name of each party that answers, in the engine's threads.
    """

    def __init__(
        self,
        controller: Controller,
        sites: Mapping[str, str],
        *,
        deadline: float,
        fl_ctx: FLContext,
        abort: Signal,
        there: Collection[str] | None = None,
    ) -> None:
        self._there = frozenset(sites.values()) if there is None else frozenset(there)
        self._controller, self._sites, self._deadline = controller, dict(sites), deadline
        self._context, self._abort = fl_ctx, abort
        self._parties = {site: party for party, site in sites.items()}
        self.seconds: list[float] = []
        self.heard: Callable[[str], None] = lambda party: None

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Deliver `deliveries`; return what came back before the deadline, in the order of sites.

        Raises:
            JobAborted: NVFlare ends the job.
        """
        start = time.monotonic()
        found = self._run(TASK, deliveries, self._deadline)
        self.seconds.append(time.monotonic() - start)
        # An answer is addressed by its own signed header; this one is the only receiver here.
        return [Delivery(AGGREGATOR_NAME, data) for site in sorted(found) for data in found[site]]

    def heads(self, note: bytes, clients: Sequence[str]) -> dict[str, list[bytes]]:
        """Ask clients for the heads of their budgets, and return what came, by client.

        Args:
            note: what `Charter.end` returns.
            clients: whom to ask.
        """
        deliveries = [Delivery(client, note) for client in clients]
        found = self._run(BUDGET, deliveries, min(self._deadline, _END_SECONDS))
        names = {self._sites[client]: client for client in clients}
        return {names[site]: heads for site, heads in found.items() if heads}

    def end(self, note: bytes, cosigned: Mapping[str, Sequence[bytes]] | None = None) -> None:
        """Tell every site that the run is over, so that it ends its ledger.

        Args:
            note: what `Charter.end` returns.
            cosigned: by client, the heads of its budgets as the aggregator signed them.
        """
        more = cosigned or {}
        deliveries = [
            Delivery(party, data) for party in self._sites for data in (note, *more.get(party, ()))
        ]
        self._run(END, deliveries, min(self._deadline, _END_SECONDS))

    def _run(
        self, name: str, deliveries: Sequence[Delivery], seconds: float
    ) -> dict[str, list[bytes]]:
        bundles: dict[str, list[bytes]] = {}
        for delivery in deliveries:
            if (site := self._sites[delivery.to]) in self._there:
                bundles.setdefault(site, []).append(delivery.data)
        awaited = _Awaited(list(bundles), lambda site: self.heard(self._parties[site]))
        tasks = [self._task(name, site, data, awaited) for site, data in bundles.items()]
        for task, site in zip(tasks, bundles, strict=True):
            self._controller.send(task=task, fl_ctx=self._context, targets=[site])
        try:
            return awaited.wait(seconds, self._abort)
        finally:
            for task in tasks:  # a late result finds no task and is dropped by NVFlare
                if task.completion_status is None:
                    self._controller.cancel_task(task)

    def _task(self, name: str, site: str, data: list[bytes], awaited: _Awaited) -> Task:
        def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
            awaited.take(client_task.client.name, client_task.result)
            client_task.result = None

        def done(task: Task, fl_ctx: FLContext) -> None:
            awaited.give_up(site)

        return Task(
            name=name, data=pack(data), timeout=int(self._deadline) + 1,
            result_received_cb=received, task_done_cb=done,
        )  # fmt: skip


class Conductor(Controller):  # type: ignore[misc] # nvflare is untyped
    """Runs the aggregator's session from the first key to the last score.

    Args:
        deadline: seconds that one exchange may take.
    """

    def __init__(self, deadline: float = 600.0) -> None:
        super().__init__(task_check_period=0.05)
        self._exchange_deadline = float(deadline)

    def start_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to prepare: the session is made when the job runs."""

    def stop_controller(self, fl_ctx: FLContext) -> None:
        """Nothing to clear away: every file is closed by then."""

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Run all rounds, or those that a killed job left.

        Whatever goes wrong ends the job with the error's type alone: NVFlare sends the text of a
        panic to every site. The run itself can go on with another job, unless a party refused.
        """
        try:
            kit = kit_of_this_process()
            transport = self._transport(kit, abort_signal, fl_ctx)
            if not (kit.run_folder / "result.json").is_file():
                self._conduct(kit, transport)
            end_run(kit, transport)
        except Exception as error:
            _log.error("the run stopped (%s)", type(error).__name__)
            self.system_panic(f"the run stopped ({type(error).__name__})", fl_ctx)

    def _conduct(self, kit: PartyKit, transport: TaskTransport) -> None:
        process = open_process(kit)
        try:
            conduct(process, transport)
        except Refused:  # the party that refused is out for good, and the run with it
            process.close()
            transport.end(kit.charter.end(kit.me.signing))
            raise
        finally:
            _note_times(kit, transport.seconds)

    def _transport(self, kit: PartyKit, abort: Signal, fl_ctx: FLContext) -> TaskTransport:
        sites = {party: site for party, site in kit.charter.sites.items() if party != kit.name}
        there = {client.name for client in fl_ctx.get_engine().get_clients()}
        return TaskTransport(
            self, sites, deadline=self._exchange_deadline, fl_ctx=fl_ctx, abort=abort, there=there
        )

    def process_result_of_unknown_task(
        self,
        client: Client,
        task_name: str,
        client_task_id: str,
        result: Shareable,
        fl_ctx: FLContext,
    ) -> None:
        """Drop a result that came after its exchange was over."""


def end_run(kit: PartyKit, transport: TaskTransport) -> None:
    """Cosign every client's budgets, and tell all sites that the run is over.

    A head that is none is left out: its site is not kept from ending its ledger.
    """
    note, clients = kit.charter.end(kit.me.signing), kit.charter.roster.clients
    notes: dict[str, list[bytes]] = {}
    if any(budgets_of(kit.charter, client) for client in clients):
        for client, heads in transport.heads(note, clients).items():
            try:
                notes[client] = cosigned(kit, client, heads)
            except BadEnvelope:
                _log.error("%s told no heads of its budgets", client)
    transport.end(note, notes)


def _note_times(kit: PartyKit, seconds: Sequence[float]) -> None:
    """Write how long each exchange took, for people who plan a deployment."""
    lines = "".join(f"{value:.4f}\n" for value in seconds)
    with (kit.run_folder / "exchanges.txt").open("a", encoding="utf-8") as file:
        file.write(lines)
