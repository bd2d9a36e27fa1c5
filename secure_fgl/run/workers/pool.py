"""The workers of a run, seen from the process that holds everything but the clients."""

from __future__ import annotations

import gc
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from algorithms.tasks.site import Site
from protocols.errors import SecureFglError
from protocols.forms import Form
from protocols.sessions.engine import Delivery
from protocols.wire.control import CONTROL
from protocols.wire.roles import Role
from secure_fgl.isolation import frames, kernel
from secure_fgl.isolation.values import PlainCodec
from secure_fgl.run.driver import Meter
from secure_fgl.run.parties import Parties
from secure_fgl.run.workers import child
from secure_fgl.run.workers.failures import again
from secure_fgl.transports.memory import MemoryTransport, Receiver

__all__ = ["WorkerDied", "Workers"]


class WorkerDied(SecureFglError):
    """A process that played clients ended before the run did."""

    def __init__(self, clients: int) -> None:
        super().__init__(
            f"A process that played {clients} of the clients ended before the run did.",
            why="it was killed, ran out of memory, or a native library failed in it",
            fix="go on with --resume, with fewer workers (--set transport.workers=1) if memory is "
            "short; where the run keeps no state (resume: false), start it again",
        )


@dataclass
class _Worker:
    """One process, and the end of its channel that is here."""

    process: int
    channel: int
    clients: Sequence[str]


class Workers:
    """A transport to sessions, of which the clients' run in processes of their own.

    They are forked at the first exchange, when every session is set up, and have what this process
    has by then: data, plug-ins and settings are shared and not loaded again. From then on this
    process has no client's session any more. The same envelopes are carried in the same order as
    by `MemoryTransport`, and answers come back in theirs.

    Args:
        parties: all sessions.
        count: how many processes.
        sites: the clients'; after the run they remember what the workers' did.
        form: the admitted form; its messages may be part of what a site remembers.
        meter: takes the time that clients spend learning, of the slowest worker an exchange.

    Attributes:
        batch: as of `MemoryTransport`, so that ledgers are the same with any number of workers.
        lost: whether one died.
        peak: KiB of memory that the largest of them took.
    """

    batch = MemoryTransport.batch

    def __init__(
        self,
        parties: Parties,
        count: int,
        sites: Mapping[str, Site],
        form: Form[Any],
        meter: Meter,
    ) -> None:
        self._parties, self._sites, self._meter = parties, sites, meter
        self._codec = PlainCodec({*CONTROL, *form.messages()})
        names = list(parties.roster.names(Role.CLIENT))
        # Neighbours in different processes: a batch of envelopes then keeps all of them at work.
        self._shares = [share for n in range(count) if (share := names[n::count])]
        self._workers: list[_Worker] = []
        self._of: dict[str, _Worker] = {}
        self._local: Mapping[str, Receiver] = {}
        self.lost, self.peak = False, 0

    @property
    def started(self) -> bool:
        """Whether the clients' sessions are elsewhere by now."""
        return bool(self._workers)

    def processes(self) -> list[int]:
        """Return the ids of all processes."""
        return [worker.process for worker in self._workers]

    def _start(self) -> None:
        sessions = dict(self._parties.others)
        gc.freeze()  # what is collected would be copied, page by page
        try:
            for names in self._shares:
                own = {name: sessions[name] for name in names}
                sites = {name: self._sites[name] for name in names}
                played = child.Played(own, sites, self._codec, self._meter)
                self._workers.append(self._fork(played))
        finally:
            gc.unfreeze()
        self._of = {name: worker for worker in self._workers for name in worker.clients}
        for name in self._of:
            del sessions[name]
        self._parties.others = sessions
        self._local = sessions

    def _fork(self, played: child.Played) -> _Worker:
        ours, theirs = socket.socketpair()
        parent = os.getpid()
        with ours, theirs:
            process = os.fork()
            if process == 0:
                try:
                    kernel.die_with(parent)
                    ours.close()
                    for other in self._workers:  # else they would not hear that this end closed
                        os.close(other.channel)
                    child.serve(played, theirs.fileno())
                finally:
                    os._exit(0)
            return _Worker(process, ours.detach(), tuple(played.sessions))

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Deliver all, to all workers at once, and return the answers in order.

        Raises:
            WorkerDied: one ended; nothing is closed, so the run can go on.
            Exception: what a session raised, of several the one that was asked first.
        """
        if not self.started:
            self._start()
        try:
            return self._exchange(deliveries)
        except KeyboardInterrupt:  # replies are on their way that nobody will wait for
            self.kill()
            raise

    def _exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        asked: dict[int, list[int]] = {}
        for place, delivery in enumerate(deliveries):
            if delivery.to in self._of:
                asked.setdefault(self._of[delivery.to].process, []).append(place)
        working = [worker for worker in self._workers if worker.process in asked]
        for worker in working:
            mine = [deliveries[place] for place in asked[worker.process]]
            content = {"deliveries": [(d.to, bytes(d.data)) for d in mine]}
            self._say(worker, child.CARRY, content)
        answers: dict[int, list[Delivery]] = {}
        failures: list[tuple[int, BaseException]] = []
        for place, delivery in enumerate(deliveries):
            if delivery.to in self._of:
                continue
            try:
                answers[place] = self._local[delivery.to].receive(bytes(delivery.data))
            except Exception as error:
                failures.append((place, error))
                break
        learning = [0.0]
        for worker in working:
            places = asked[worker.process]
            _, told = self._hear(worker)
            learning.append(told["learning"])
            for place, said in zip(places, told["answers"], strict=False):
                answers[place] = [Delivery(to, data) for to, data in said]
            self._parties.reasons.update({n: again(e) for n, e in told["errors"].items()})
            if told["failed"] is not None:
                failures.append((places[len(told["answers"])], again(told["failed"])))
        self._meter.learning += max(learning)
        if failures:
            raise min(failures, key=lambda failure: failure[0])[1]
        return [answer for place in range(len(deliveries)) for answer in answers[place]]

    def end(self, *, memories: bool) -> tuple[dict[str, str], list[BaseException]]:
        """End all clients' sessions; return their checkpoints, and what went wrong.

        Args:
            memories: whether sites are to remember here what they do there.
        """
        notes: dict[str, str] = {}
        errors: list[BaseException] = []
        try:
            for worker in self._workers:
                self._say(worker, child.END, {"memories": memories})
            for worker in self._workers:
                kind, told = self._hear(worker)
                while kind == child.CLIENT:
                    self._ended(told, notes, errors)
                    kind, told = self._hear(worker)
                self.peak = max(self.peak, told["peak"])
                if told["failed"] is not None:
                    errors.append(again(told["failed"]))
        except WorkerDied as error:
            errors.append(error)
        self.kill()
        return notes, errors

    def _ended(
        self, told: dict[str, Any], notes: dict[str, str], errors: list[BaseException]
    ) -> None:
        name = told["name"]
        notes[name] = told["note"]
        if told["failed"] is not None:
            errors.append(again(told["failed"]))
        if "memory" in told:
            site = self._sites[name]
            site.memory, site.draws = told["memory"], told["draws"]

    def kill(self) -> None:
        """End all processes at once. Harmless when repeated; whoever is asked then has died."""
        for worker in self._workers:
            if worker.channel < 0:
                continue
            os.close(worker.channel)
            worker.channel = -1
            os.kill(worker.process, signal.SIGKILL)  # ours, and not waited for yet
            with suppress(ChildProcessError):
                os.waitpid(worker.process, 0)

    def _say(self, worker: _Worker, kind: bytes, content: Any) -> None:
        try:
            frames.write(worker.channel, kind, self._codec.pack(content))
        except OSError as error:
            raise self._died(worker) from error

    def _hear(self, worker: _Worker) -> tuple[bytes, Any]:
        try:
            data = frames.read(worker.channel)
        except OSError as error:
            raise self._died(worker) from error
        if data is None:
            raise self._died(worker)
        return data[:1], self._codec.unpack(data[1:])

    def _died(self, worker: _Worker) -> WorkerDied:
        self.lost = True
        self.kill()
        return WorkerDied(len(worker.clients))
