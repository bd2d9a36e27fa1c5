"""Clients of a simulation in several processes, forked once a run (docs/adr/0037-workers.md).

`how_many` says in how many. By `transport.workers`, where that is given; else in as many as there
are cores that this process may use, but none has fewer than `FEWEST` clients. One, which is this
process itself, where

- answers are isolated (one process computes them all) or a transport was handed over;
- this process has other Python threads, whose locks a fork would copy as they stand;
- an accelerator is in use, which no fork can go on with;
- the system is not Linux, where a worker would outlive a parent that is killed.

Workers and the process that forks them are one program with the same keys and code, so they send
each other what `multiprocessing` sends. Nothing here is a boundary: code that is kept apart runs in
`secure_fgl.isolation`.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from typing import Any, NamedTuple

from algorithms.tasks import Site
from protocols.errors import SecureFglError
from protocols.sessions.engine import Delivery, Session
from protocols.wire.roles import Role
from secure_fgl.config import Config
from secure_fgl.devices import chosen
from secure_fgl.errors import UsageError
from secure_fgl.isolation import kernel
from secure_fgl.reasons import RAISED_IN, raised_in
from secure_fgl.run import cores
from secure_fgl.run.cores import usable
from secure_fgl.run.driver import Meter
from secure_fgl.run.parties import Parties
from secure_fgl.transports.memory import MemoryTransport, Receiver

__all__ = ["FEWEST", "WorkerDied", "Workers", "again", "how_many", "portable"]

FEWEST = 2
"""Clients of one worker, from which on it is worth its start."""


def how_many(config: Config, clients: int, connect: Any = None) -> int:
    """Return how many processes play the clients; 1 is this one.

    Args:
        config: of the run.
        clients: how many there are.
        connect: makes a transport of the caller's own; None for the one in memory.

    Raises:
        UsageError: several are asked for where they cannot be.
    """
    wanted = config.transport.workers
    if wanted is not None:
        wanted = min(wanted, clients)
    if wanted == 1:
        return 1
    found = _hindrance(config, connect)
    if wanted is not None:
        if found:
            raise UsageError(
                f"The clients cannot be played in {wanted} processes: {found}.",
                fix="set transport.workers to 1, or leave it out",
            )
        return wanted
    alone = found or threading.active_count() > 1
    return 1 if alone else max(1, min(usable(), clients // FEWEST))


def _hindrance(config: Config, connect: Any) -> str:
    """Say what stands against several processes; empty if nothing does."""
    if config.isolated:
        return "answers are isolated, and one process computes them all"
    if connect is not None:
        return "a transport was handed over, which calls the sessions in this process"
    if not sys.platform.startswith("linux"):
        return "that needs Linux"
    if config.device != "cpu" and chosen(config) != "cpu":
        return "a GPU is used, which no fork can go on with"
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return "an accelerator is in use in this process"
    return ""


class WorkerDied(SecureFglError):
    """A process that played clients ended before the run did."""

    def __init__(self, clients: int) -> None:
        super().__init__(
            f"A process that played {clients} of the clients ended before the run did.",
            why="it was killed, ran out of memory, or a native library failed in it",
            fix="go on with --resume, with fewer workers (--set transport.workers=1) if memory is "
            "short; where the run keeps no state (resume: false), start it again",
        )


def portable(error: BaseException) -> tuple[Any, ...]:
    """Return what `again` makes an error of in another process.

    It stays on this machine: of an error that is not ours the text may hold data, as it may where
    everything runs in one process, and it is shown in the same cases (``--verbose``).
    """
    places, trace = raised_in(error), "".join(traceback.format_exception(error))
    values = (type(error), error.__reduce__()[1], {**vars(error), RAISED_IN: places}, trace)
    try:
        ForkingPickler.loads(ForkingPickler.dumps(values))
    except Exception:  # of a class, or with a value, that cannot be sent
        return type(error).__name__, (str(error),), {RAISED_IN: places}, trace
    return values


def again(
    kind: type[BaseException] | str, arguments: tuple[Any, ...], values: dict[str, Any], trace: str
) -> BaseException:
    """Return the error that was given to `portable`: the same class, text and place."""
    cls = type(kind, (Exception,), {}) if isinstance(kind, str) else kind
    error: BaseException = cls.__new__(cls, *arguments)
    vars(error).update(values)
    error.add_note(f"In the worker:\n{trace}")
    return error


@dataclass(frozen=True)
class _Clients:
    """The clients of one worker, on the worker's side. Each request has one reply.

    Attributes:
        sessions: by name.
        sites: by name.
        meter: takes the time of answers.
    """

    sessions: Mapping[str, Session]
    sites: Mapping[str, Site]
    meter: Meter

    def serve(self, channel: Connection, parent: int) -> None:
        """Answer until this process is ended; the body of a worker."""
        try:
            kernel.die_with(parent)
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends this process, in order
            cores.only_one()
            while True:
                method, arguments = channel.recv()
                channel.send(getattr(self, method)(*arguments))
        finally:
            os._exit(0)  # whatever the parent left to be done at its end is the parent's

    def carry(self, deliveries: list[tuple[str, bytes]]) -> tuple[Any, ...]:
        """Hand envelopes to their sessions, as far as the first error.

        Returns:
            The answers to each delivery, why clients refused, by name, what a session raised, and
            the seconds of learning.
        """
        before, answers, errors, failed = self.meter.learning, [], {}, None
        for name, data in deliveries:
            session = self.sessions[name]
            try:
                replies = session.receive(data)
                answers.append([(reply.to, bytes(reply.data)) for reply in replies])
            except Exception as error:
                failed = portable(error)
                break
            finally:
                if session.last_error is not None:
                    errors[name] = portable(session.last_error)
        return answers, errors, failed, self.meter.learning - before

    def end(self, name: str, memories: bool) -> tuple[Any, ...]:
        """End a session; return its checkpoint, what went wrong, and what its site remembers."""
        session, site, failed = self.sessions[name], self.sites[name], None
        try:
            session.close(None)
        except Exception as error:  # the other sessions are ended all the same
            session.last_error, failed = error, portable(error)
        note = session.ledger.checkpoint(session.context.me.signing)
        return note, failed, (site.memory, site.draws) if memories else None

    def used(self) -> int:
        """Return the largest memory of this process, in KiB."""
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


class _Worker(NamedTuple):
    """One process, and the end of its channel that is here."""

    process: BaseProcess
    channel: Connection
    clients: tuple[str, ...]


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
        meter: Meter,
    ) -> None:
        self._parties, self._sites, self._meter = parties, sites, meter
        names = list(parties.roster.names(Role.CLIENT))
        # Neighbours in different processes: a batch of envelopes then keeps all of them at work.
        self._shares = [share for n in range(count) if (share := names[n::count])]
        self._workers: list[_Worker] = []
        self._local: Mapping[str, Receiver] = {}
        self.lost, self.peak = False, 0

    def processes(self) -> list[int]:
        """Return the ids of all processes."""
        return [worker.process.pid for worker in self._workers if worker.process.pid is not None]

    def _start(self) -> None:
        sessions = dict(self._parties.others)
        gc.freeze()  # what is collected would be copied, page by page
        try:
            for names in self._shares:
                own = {name: sessions[name] for name in names}
                sites = {name: self._sites[name] for name in names}
                self._workers.append(self._fork(_Clients(own, sites, self._meter)))
        finally:
            gc.unfreeze()
        for name in [name for names in self._shares for name in names]:
            del sessions[name]
        self._parties.others = sessions
        self._local = sessions

    def _fork(self, clients: _Clients) -> _Worker:
        fork = multiprocessing.get_context("fork")
        ours, theirs = fork.Pipe()
        with theirs:
            process = fork.Process(target=clients.serve, args=(theirs, os.getpid()), daemon=True)
            process.start()
        return _Worker(process, ours, tuple(clients.sessions))

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Deliver all, to all workers at once, and return the answers in order.

        Raises:
            WorkerDied: one ended; nothing is closed, so the run can go on.
            Exception: what a session raised, of several the one that was asked first.
        """
        if not self._workers:
            self._start()
        try:
            return self._exchange(deliveries)
        except KeyboardInterrupt:  # replies are on their way that nobody will wait for
            self.kill()
            raise

    def _exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        indices = [
            [index for index, delivery in enumerate(deliveries) if delivery.to in worker.clients]
            for worker in self._workers
        ]
        working = [(w, mine) for w, mine in zip(self._workers, indices, strict=True) if mine]
        for worker, mine in working:
            asked = [(deliveries[index].to, bytes(deliveries[index].data)) for index in mine]
            self._send(worker, "carry", asked)
        answers, failures = self._carried_here(deliveries)
        learning = [0.0]
        for worker, mine in working:
            theirs, errors, failed, seconds = self._receive(worker)
            learning.append(seconds)
            for index, sent in zip(mine, theirs, strict=False):
                answers[index] = [Delivery(to, data) for to, data in sent]
            self._parties.reasons.update({name: again(*error) for name, error in errors.items()})
            if failed is not None:
                failures.append((mine[len(theirs)], again(*failed)))
        self._meter.learning += max(learning)
        if failures:
            raise min(failures, key=lambda failure: failure[0])[1]
        return [answer for index in range(len(deliveries)) for answer in answers[index]]

    def _carried_here(
        self, deliveries: Sequence[Delivery]
    ) -> tuple[dict[int, list[Delivery]], list[tuple[int, BaseException]]]:
        """Deliver to the sessions of this process, as far as the first error."""
        answers: dict[int, list[Delivery]] = {}
        for index, delivery in enumerate(deliveries):
            if delivery.to not in self._local:
                continue
            try:
                answers[index] = self._local[delivery.to].receive(bytes(delivery.data))
            except Exception as error:
                return answers, [(index, error)]
        return answers, []

    def end(self, *, memories: bool) -> tuple[dict[str, str], list[BaseException]]:
        """End all clients' sessions; return their checkpoints, and what went wrong.

        Args:
            memories: whether sites are to remember here what they do there.
        """
        checkpoints: dict[str, str] = {}
        errors: list[BaseException] = []
        try:
            for turn in range(max(map(len, self._shares))):  # a request more could fill a channel
                asked = [(w, w.clients[turn]) for w in self._workers if turn < len(w.clients)]
                for worker, name in asked:
                    self._send(worker, "end", name, memories)
                for worker, name in asked:
                    checkpoints[name], failed, memory = self._receive(worker)
                    if failed is not None:
                        errors.append(again(*failed))
                    if memory is not None:
                        self._sites[name].memory, self._sites[name].draws = memory
            for worker in self._workers:
                self._send(worker, "used")
                self.peak = max(self.peak, self._receive(worker))
        except WorkerDied as error:
            errors.append(error)
        self.kill()
        return checkpoints, errors

    def kill(self) -> None:
        """End all processes at once. Harmless when repeated; a request to one then fails."""
        for worker in self._workers:
            worker.channel.close()
            worker.process.kill()
            worker.process.join()

    def _send(self, worker: _Worker, method: str, *arguments: Any) -> None:
        try:
            worker.channel.send((method, arguments))
        except OSError as error:
            raise self._died(worker) from error

    def _receive(self, worker: _Worker) -> Any:
        try:
            return worker.channel.recv()
        except (EOFError, OSError) as error:
            raise self._died(worker) from error

    def _died(self, worker: _Worker) -> WorkerDied:
        self.lost = True
        self.kill()
        return WorkerDied(len(worker.clients))
