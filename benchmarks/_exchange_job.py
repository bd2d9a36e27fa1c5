"""What `bench_exchange.py` puts into NVFlare's job: our two relays, and other ways to carry.

Loaded in the engine's processes. `bare` is an exchange without us: one auxiliary request for each
site with the same bytes, answered by a function that sends them back; `each` is one bare request a
site, each in a thread, as we push. `inside` is pushed through
the engine's door and our relays, and sent back by the site's relay; `handed` is pushed, and handed
to the party's process; both are timed in the server's relay, as `bare` is. `polled` is what
exchanges were before they were pushed: a task for each site, which the site fetches.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from nvflare.apis.controller_spec import ClientTask, Task
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import Shareable
from nvflare.apis.signal import Signal

from secure_fgl.transports.broker.codes import TASK, Code, Heard
from secure_fgl.transports.nvflare.controller import Conductor
from secure_fgl.transports.nvflare.executor import Seat, _asked
from secure_fgl.transports.nvflare.pushed.awaited import Awaited
from secure_fgl.transports.nvflare.pushed.carrier import PushCarrier
from secure_fgl.transports.nvflare.wire import (
    Word,
    heard,
    hold,
    pack,
    patience,
    say,
    tell,
    turn,
    unpack,
)

BARE, POLLED, INTERVAL = "bench.bare", "bench.polled", "bench.interval"
EACH, INSIDE, HANDED = "bench.each", "bench.inside", "bench.handed"
_TOPIC = "bench.echo"


class _Carrier(PushCarrier):
    """Pushes, and carries in the other ways where the task's name says so."""

    controller: Controller

    def carry(
        self,
        name: str,
        bundles: Mapping[str, Sequence[bytes]],
        seconds: float,
        unhurried: Collection[str],
    ) -> dict[str, Heard]:
        """Carry once; what is timed here returns its own seconds and nothing else."""
        if name == TASK:
            return super().carry(name, bundles, seconds, unhurried)
        if name == POLLED:
            return self._polled(bundles, seconds)
        site, data = next(iter(bundles.items()))
        if name == INTERVAL:  # how often sites poll from now on
            with self._engine.new_context() as fl_ctx:
                runner = fl_ctx.get_prop(FLContextKey.RUNNER)
            runner.config.task_request_interval = json.loads(data[0])
            return {site: Heard(Code.DONE)}
        if name in (INSIDE, HANDED):
            took = self._within(TASK if name == HANDED else INSIDE, bundles, seconds)
        elif name == EACH:
            took = self._each(bundles, seconds)
        else:
            took = self._bare(bundles, seconds)
        return {site: Heard(Code.DONE, [json.dumps(took).encode()])}

    def _bare(self, bundles: Mapping[str, Sequence[bytes]], seconds: float) -> float:
        (data, *_) = bundles.values()  # every site is sent the same
        found: Mapping[str, Any] = {}
        while any("envelopes" not in found.get(site, ()) for site in bundles):
            start = time.perf_counter()  # anew until every site's job has begun
            with self._engine.new_context() as fl_ctx:
                found = self._engine.send_aux_request(
                    [*bundles], _TOPIC, pack(data), seconds, fl_ctx
                )
        for site in bundles:
            if unpack(found[site]) != list(data):
                raise ArithmeticError("What came back is not what was sent.")
        return time.perf_counter() - start

    def _each(self, bundles: Mapping[str, Sequence[bytes]], seconds: float) -> float:
        start, threads = time.perf_counter(), []
        for site, data in bundles.items():
            asked = {site: data}, seconds
            threads.append(threading.Thread(target=self._bare, args=asked, daemon=True))
            threads[-1].start()
        for thread in threads:
            thread.join()
        return time.perf_counter() - start

    def _within(self, name: str, bundles: Mapping[str, Sequence[bytes]], seconds: float) -> float:
        start = time.perf_counter()
        found = super().carry(name, bundles, seconds, ())
        took = time.perf_counter() - start
        if {site: list(said.envelopes) for site, said in found.items()} != dict(bundles):
            raise ArithmeticError("What came back is not what was sent.")
        return took

    def _polled(self, bundles: Mapping[str, Sequence[bytes]], seconds: float) -> dict[str, Heard]:
        awaited = Awaited(list(bundles), ())
        for site, data in bundles.items():

            def received(client_task: ClientTask, fl_ctx: FLContext) -> None:
                awaited.give_up(client_task.client.name, heard(client_task.result))

            task = Task(
                name=POLLED, data=pack(data, seconds), timeout=int(seconds) + 1,
                result_received_cb=received,
            )  # fmt: skip
            with self._engine.new_context() as context:
                self.controller.send(task=task, fl_ctx=context, targets=[site])
        return awaited.wait(seconds, self._abort)


class BenchConductor(Conductor):
    """The aggregator's relay, which can carry in other ways too."""

    carries = _Carrier

    def control_flow(self, abort_signal: Signal, fl_ctx: FLContext) -> None:
        """Carry until the benchmark says that it is over."""
        _Carrier.controller = self
        super().control_flow(abort_signal, fl_ctx)


class BenchSeat(Seat):
    """A site's relay, which also sends back what a bare exchange brings."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Have bare requests answered from the start of the job."""
        if event_type == EventType.START_RUN:
            fl_ctx.get_engine().register_aux_message_handler(_TOPIC, self._echo)

    @staticmethod
    def _echo(topic: str, request: Shareable, fl_ctx: FLContext) -> Shareable:
        return pack(unpack(request))

    def execute(
        self, task_name: str, shareable: Shareable, fl_ctx: FLContext, abort_signal: Signal
    ) -> Shareable:
        """Hand a request to the party; a polled one in NVFlare's own thread, as it was."""
        if task_name == INSIDE:
            return self._returned(shareable, abort_signal)
        if task_name != POLLED:
            return super().execute(task_name, shareable, fl_ctx, abort_signal)
        end, taken = time.monotonic() + patience(shareable), threading.Event()
        done: Callable[[], None] = taken.set
        found = _asked(self._run, TASK, unpack(shareable), end, abort_signal, done)
        return pack(found.envelopes) if found.code is Code.DONE else say(found.code)

    def _returned(self, shareable: Shareable, abort_signal: Signal) -> Shareable:
        """Send back what came, by way of a turn and by no process of a party."""
        envelopes = unpack(shareable)

        def work(taken: Callable[[], None]) -> Heard:
            taken()
            return Heard(Code.DONE, envelopes)

        found = self._turns.take(turn(shareable)[0], work, hold(shareable), abort_signal)
        return tell(found) if isinstance(found, Word) else pack(found.envelopes)


__all__: list[Any] = ["BenchConductor", "BenchSeat"]
