"""The party's own process: keys, data, session and ledger behind a socket. Started by `start`.

It serves one caller, its carrier, and opens no connection itself: the kernel refuses it any
(`secure_fgl.isolation.separation`). The end of standard input ends it between two exchanges: as a
kill would, or in order where the site was stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from protocols.errors import LedgerError, Refused, RemoteProtocolError
from protocols.roles.aggregator import AggregatorSession
from protocols.wire.roles import Role
from secure_fgl.charters.party import PartyKit
from secure_fgl.cli._shared.verb import exit_code
from secure_fgl.errors import UsageError
from secure_fgl.isolation import worker
from secure_fgl.isolation.kernel import set_traceable
from secure_fgl.isolation.sandbox import discard, prepare
from secure_fgl.isolation.separation import close_network
from secure_fgl.reasons import explain
from secure_fgl.sites.process import PartyProcess, conduct, open_process
from secure_fgl.sites.status import State, read_status
from secure_fgl.sites.stopping import sign_off, was_stopped
from secure_fgl.store.files import Folder
from secure_fgl.store.sides.party_side import note
from secure_fgl.store.state_store import StateStores
from secure_fgl.transports.broker import channel
from secure_fgl.transports.broker.messages import (
    END,
    TASK,
    Code,
    Malformed,
    SiteReply,
    decode,
    encode,
)
from secure_fgl.transports.broker.requests import SiteTransport

__all__ = ["AGAIN", "Answerer", "Callers", "conduct_run", "main", "serve"]

AGAIN = 75
"""The exit code of a process that is to be started again; sysexits' EX_TEMPFAIL."""
UP = b"u"
"""What this process writes to its standard input's socket once it listens."""
_LOOK_SECONDS = 0.5
_SLACK_SECONDS = 60.0  # beyond an exchange's own, before the carrier counts as lost


class Answerer:
    """Answers for one party, one request at a time: a session is no place for two threads.

    Of what goes wrong a code leaves and nothing else: an error's text could hold what may not
    leave. The reason goes to the party's own log.

    Args:
        process: the party's session with its files; not an aggregator's.

    Attributes:
        over: the aggregator said that the run is over, and the ledger is closed.
        broken: what is kept could not be written, or the session could not end; only a new process,
            which takes the kept state up again, can go on.
        why: it is broken; a full disk may have no room for the log either.
    """

    def __init__(self, process: PartyProcess) -> None:
        self.process = process
        self.over = self.broken = False
        self.why: Exception | None = None
        self._noted: BaseException | None = None

    def answer(self, request: str, envelopes: Sequence[bytes]) -> SiteReply:
        """Return the reply to one request; raises nothing but what ends this process."""
        party = self.process.kit.party
        try:
            return SiteReply(Code.DONE, self._answer(request, envelopes))
        except RemoteProtocolError as error:
            note(party, "a request was not accepted", error)
            return SiteReply(Code.UNREADABLE)
        except Exception as error:  # whatever it is, its text stays here
            # A session that began to end has closed its files, and let go of the party's lock.
            self.broken = request == END or isinstance(error, LedgerError | OSError | MemoryError)
            self.why = error if self.broken else None
            note(party, "a request was not answered", error)
            return SiteReply(Code.FAILED)

    def _answer(self, request: str, envelopes: Sequence[bytes]) -> Sequence[bytes]:
        process, charter = self.process, self.process.kit.charter
        if len({*envelopes}) < len(envelopes):  # no request of ours asks one thing twice
            raise RemoteProtocolError("A request holds an envelope twice.")
        if request == TASK:
            answers = [d.data for data in envelopes for d in process.receive(data)]
            if (error := process.session.last_error) is not self._noted:
                self._noted = error
                note(process.kit.party, "this party refused, and its session is over", error)
            return answers
        if request != END:
            raise RemoteProtocolError("A request came that no party knows.")
        charter.check_end(b"".join(envelopes))
        process.close()
        self.over = True
        return []


class Callers:
    """The carrier's connection; a new carrier takes the place of one that is gone.

    Args:
        listener: where carriers call.
        users: whose processes may.
        ends: tells whether this process is to end.
    """

    def __init__(
        self, listener: socket.socket, users: Collection[int], ends: Callable[[], bool]
    ) -> None:
        self._listener, self._users, self.ends = listener, users, ends
        self._carrier: socket.socket | None = None

    def receive(self) -> bytes:
        """Return the carrier's next message; raises Stopped."""
        while True:
            watched = [self._listener, *filter(None, [self._carrier])]
            ready = select.select(watched, [], [], _LOOK_SECONDS)[0]
            if self.ends():
                raise channel.Stopped
            if self._listener in ready:
                self._accept()
            elif ready:
                with contextlib.suppress(channel.Gone, TimeoutError):
                    return channel.receive(self._connection(), stopped=self.ends)
                self.hang_up()

    def send(self, message: bytes, *, stopped: Callable[[], bool] | None = None) -> None:
        """Write to the carrier; raises Gone, or Stopped."""
        channel.send(self._connection(), message, stopped=stopped or self.ends)

    def asked(self, message: bytes, seconds: float) -> bytes:
        """Have the carrier carry, and the one that follows it if it is lost; raises Stopped."""
        while True:
            while self._carrier is None:
                if select.select([self._listener], [], [], _LOOK_SECONDS)[0]:
                    self._accept()
                if self.ends():
                    raise channel.Stopped
            try:
                self.send(message)
                return channel.receive(
                    self._connection(), stopped=self.ends, seconds=seconds + _SLACK_SECONDS
                )
            except (channel.Gone, TimeoutError):
                self.hang_up()

    def hang_up(self) -> None:
        """Forget the carrier."""
        if self._carrier is not None:
            self._carrier.close()
        self._carrier = None

    def _connection(self) -> socket.socket:
        if self._carrier is None:
            raise channel.Gone
        return self._carrier

    def _accept(self) -> None:
        if (carrier := channel.accept(self._listener, self._users)) is not None:
            self.hang_up()
            self._carrier = carrier


def serve(answerer: Answerer, callers: Callers) -> None:
    """Answer the carrier until the run is over, this process is to end, or it cannot go on."""
    while not (answerer.over or answerer.broken):
        try:
            request, envelopes = decode(callers.receive())
            reply = answerer.answer(str(request.get("do")), envelopes)
            if callers.ends() and not answerer.over:
                return  # what this site was to send when it was stopped does not leave
            callers.send(
                encode({"code": str(reply.code)}, reply.envelopes),
                stopped=lambda: callers.ends() and not answerer.over,
            )
        except channel.Stopped:
            return
        except (channel.Gone, Malformed):
            callers.hang_up()


class OwnCarrier:
    """The aggregator's way to its carrier; see `waiting.Carrier`."""

    def __init__(self, callers: Callers) -> None:
        self._callers = callers

    def carry(
        self,
        task: str,
        bundles: Mapping[str, Sequence[bytes]],
        seconds: float,
        unhurried: Collection[str],
    ) -> dict[str, SiteReply]:
        """Have the carrier carry them; raises Stopped."""
        counts = [[party, len(envelopes)] for party, envelopes in bundles.items()]
        head = {"do": channel.CARRY, "task": task, "parties": counts, "seconds": seconds}
        message = encode(
            {**head, "unhurried": sorted(unhurried)},
            [envelope for envelopes in bundles.values() for envelope in envelopes],
        )
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(Malformed, KeyError, TypeError, ValueError):
                return _replies(*decode(self._callers.asked(message, seconds)), bundles)
            self._callers.hang_up()
            if time.monotonic() > end:  # a carrier that is none of ours: nobody answered
                return {}


def _replies(
    head: Mapping[str, object], envelopes: Sequence[bytes], asked: Collection[str]
) -> dict[str, SiteReply]:
    """Return what a carrier says came; raises ValueError or TypeError for what it cannot say."""
    replies, rest, came = dict[str, SiteReply](), list(envelopes), head["replies"]
    if not isinstance(came, list):
        raise TypeError
    for party, code, count in came:
        if party not in asked or party in replies or type(count) is not int:
            raise ValueError
        if not 0 <= count <= len(rest):
            raise ValueError
        replies[party] = SiteReply(Code(code), rest[:count])
        del rest[:count]
    if rest:
        raise ValueError
    return replies


def conduct_run(kit: PartyKit, process: PartyProcess | None, callers: Callers) -> None:
    """Run all rounds, or those that are left, and tell all sites that the run is over.

    Args:
        kit: the aggregator's.
        process: its session; None where all rounds are done.
        callers: the carrier.

    Raises:
        Stopped: this process is to end.
        Refused: a party refused: it is out for good, and the run with it.
        and what else `process.conduct` raises.
    """
    session, charter = process.session if process is not None else None, kit.charter
    known = session.heads.heard if isinstance(session, AggregatorSession) else ()
    transport = SiteTransport(
        OwnCarrier(callers), charter.carriers, deadline=charter.broker.deadline,
        plan=charter.plan, least=charter.policy.smallest_cohort, known=known,
    )  # fmt: skip
    try:
        if process is not None:
            conduct(process, transport)
    except Refused:
        if process is not None:
            process.close()
        transport.end(charter.end(kit.me.signing))
        raise
    finally:
        lines = "".join(f"{value:.4f}\n" for value in transport.seconds)
        Folder(kit.run_folder).append("exchanges.txt", lines.encode())
    transport.end(charter.end(kit.me.signing))


def run(kit: PartyKit, path: Path, users: frozenset[int], supervisor: socket.socket) -> int:
    """Open the session, serve, and return the exit code.

    Raises:
        what `open_process` raises, OSError where the socket cannot be made, and CannotIsolate where
        this process would keep its network.
    """
    conducts = kit.me.party.role is Role.AGGREGATOR
    if not conducts and _is_over(kit):
        return 0  # its keys are given up, and nobody asks any more; a reboot starts all units
    done = conducts and (kit.run_folder / "result.json").is_file()
    if done:  # killed just then: no key of its kept state stays (O9)
        StateStores(kit.charter.run, kit.run_folder, kit.keys).tidy()
    shared = bool(users - {os.geteuid(), 0})  # root reaches it anyway
    with channel.bound(path, shared=shared) as listener:
        close_network()  # before any plug-in is loaded
        process = None if done else open_process(kit)
        if process is not None and not process.session.ended:
            # A head that was signed at a stop does not cover what comes now.
            (kit.run_folder / "heads" / f"{kit.name}.checkpoint").unlink(missing_ok=True)
        listener.listen(8)
        with contextlib.suppress(OSError):
            supervisor.send(UP, socket.MSG_DONTWAIT)
        callers = Callers(listener, users, lambda: _ends(supervisor, kit))
        over = _worked(kit, process, callers)
        if over or was_stopped(kit.folder):
            path.unlink(missing_ok=True)  # before the ledger is signed: nobody waits for that
    if not over and process is not None and was_stopped(kit.folder):
        sign_off(process)
    return 0 if over or was_stopped(kit.folder) else AGAIN


def _ends(supervisor: socket.socket, kit: PartyKit) -> bool:
    """Tell whether `start` hung up, is gone, or the site was stopped."""
    return bool(select.select([supervisor], [], [], 0)[0]) or was_stopped(kit.folder)


def _worked(kit: PartyKit, process: PartyProcess | None, callers: Callers) -> bool:
    """Serve or conduct; return whether the run is over here."""
    if process is None or kit.me.party.role is Role.AGGREGATOR:
        try:
            conduct_run(kit, process, callers)
        except channel.Stopped:
            return False
        except Exception as error:
            _report(kit.party, "the run stopped", error)
            return isinstance(error, Refused)  # else another process goes on where this one was
        return True
    answerer = Answerer(process)
    serve(answerer, callers)
    if answerer.why is not None:
        _print(answerer.why)
    return answerer.over


def _is_over(kit: PartyKit) -> bool:
    """Tell whether this party closed its ledger, as its own status notes it last of all.

    Of one that refused the status stays so; its head is signed and its kept state is given up.
    """
    try:
        state = read_status(kit.folder).state
    except UsageError:  # nothing began here yet
        return False
    if state != State.REFUSED:
        return state == State.OVER
    head = kit.run_folder / "heads" / f"{kit.name}.checkpoint"
    return head.is_file() and not (kit.run_folder / "private").exists()


def _report(folder: Path, what: str, error: Exception) -> None:
    """Say why something failed, to this site's operator alone."""
    note(folder, what, error)
    _print(error)


def _print(error: Exception) -> None:
    for line in explain(error):
        sys.stderr.write(f"{line}\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Be one party's process; see the head of this file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("party", type=Path)
    parser.add_argument("run")
    parser.add_argument("socket", type=Path)
    parser.add_argument("users", type=int, nargs="+")
    given = parser.parse_args(arguments)
    for number in (signal.SIGINT, signal.SIGTERM):  # they are for `start`, which tells this process
        signal.signal(number, signal.SIG_IGN)
    supervisor = socket.socket(fileno=os.dup(0))
    try:
        prepare(worker.serve)  # before the file of the keys is read
        set_traceable(False)
        kit = PartyKit.load(given.party, given.run)
        if kit.me.party.role is not Role.CLIENT:
            discard()  # it answers nothing
        return run(kit, given.socket, frozenset(given.users), supervisor)
    except Exception as error:
        _report(given.party, "the session did not start, or stopped", error)
        return exit_code(error)


if __name__ == "__main__":
    raise SystemExit(main())
