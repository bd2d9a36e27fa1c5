"""The party's own process: its session, behind a socket. Started by `supervisor`, never by hand.

It serves one caller at a time, so that no two threads are in one session. Standard input is a
socket to the supervisor, whose end ends this process between two exchanges: as a kill would, or in
order where the site was stopped.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from protocols.errors import Refused
from protocols.wire.roles import Role
from secure_fgl.cli._shared.verb import exit_code
from secure_fgl.errors import UsageError
from secure_fgl.reasons import explain
from secure_fgl.store.sides.site_log import note
from secure_fgl.store.state_store import StateStores
from secure_fgl.transports.nvflare.party import PartyKit
from secure_fgl.transports.nvflare.party_process import PartyProcess, open_process
from secure_fgl.transports.nvflare.sessions.status import State, read_status
from secure_fgl.transports.nvflare.site import channel
from secure_fgl.transports.nvflare.site.answering import Answerer
from secure_fgl.transports.nvflare.site.conducting import RelayCarrier, conduct_run
from secure_fgl.transports.nvflare.site.control import Control
from secure_fgl.transports.nvflare.site.leaving import sign_off, was_stopped
from secure_fgl.transports.nvflare.site.supervisor import NOT_SEPARATED

__all__ = ["AGAIN", "serve"]

AGAIN = 75
"""The exit code of a process that is to be started again; sysexits' EX_TEMPFAIL."""

_ASK_SECONDS = 10.0  # a caller that is greeted asks at once, and keeps nobody else waiting


def serve(
    answerer: Answerer, listener: socket.socket, users: frozenset[int], control: Control
) -> None:
    """Answer callers until the run is over, this process is to end, or it cannot go on."""
    while not (answerer.over or answerer.broken or control.ends()):
        control.wait(listener)
        if control.ends():
            return
        if (connection := channel.accepted(listener, users)) is not None:
            with connection, contextlib.suppress(channel.Broken, channel.Stopped, TimeoutError):
                _serve_one(answerer, connection, control)


def _serve_one(answerer: Answerer, connection: socket.socket, control: Control) -> None:
    asked, envelopes = channel.receive(connection, stopped=control.ends, seconds=_ASK_SECONDS)
    name = asked.get("do") if asked.get("run") == answerer.run else None
    heard = answerer.answer(name if isinstance(name, str) else "", envelopes)
    if control.ends() and not answerer.over:
        return  # what this site was to say when it was stopped does not leave
    channel.send(
        connection, {"code": str(heard.code)}, heard.envelopes,
        stopped=lambda: control.ends() and not answerer.over,
    )  # fmt: skip


def run(kit: PartyKit, place: Path, users: frozenset[int], control: Control) -> int:
    """Open the session, serve, and return the exit code.

    Raises:
        what `open_process` raises, and OSError where the socket cannot be made.
    """
    conducts = kit.me.party.role is Role.AGGREGATOR
    if not conducts and _is_over(kit):
        return 0  # its keys are given up, and nobody asks any more; a reboot starts all units
    done = conducts and (kit.run_folder / "result.json").is_file()
    if done:  # killed just then: no key of its kept state stays (O9)
        StateStores(kit.charter.run, kit.run_folder, kit.keys).tidy()
    process = None if done else open_process(kit)
    if process is not None and not process.session.ended:
        # A head that was signed at a stop does not cover what comes now.
        (kit.run_folder / "heads" / f"{kit.name}.checkpoint").unlink(missing_ok=True)
    shared = bool(users - {os.geteuid(), 0})  # root reaches it anyway
    with channel.listen(place, shared=shared) as listener:
        control.up()
        over = _conducted(kit, process, listener, users, control) if conducts else False
        if process is not None and not conducts:
            answerer = Answerer(process)
            serve(answerer, listener, users, control)
            over = answerer.over
            if answerer.why is not None:
                _say(answerer.why)
        if over or was_stopped(kit.folder):
            place.unlink(missing_ok=True)  # before the ledger is signed: nobody waits for that
    if not over and process is not None and was_stopped(kit.folder):
        sign_off(process)
    return 0 if over or was_stopped(kit.folder) else AGAIN


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


def _conducted(
    kit: PartyKit,
    process: PartyProcess | None,
    listener: socket.socket,
    users: frozenset[int],
    control: Control,
) -> bool:
    """Drive the run; False where this process is to end before it is over."""
    try:
        conduct_run(kit, process, RelayCarrier(listener, users, control, kit.charter.run))
    except channel.Stopped:
        return False
    except Exception as error:
        _tell(kit.party, "the run stopped", error)
        return isinstance(error, Refused)  # else the next job's relay goes on where this one was
    return True


def _tell(folder: Path, what: str, error: Exception) -> None:
    """Say why something failed, to this site's operator alone."""
    note(folder, what, error)
    _say(error)


def _say(error: Exception) -> None:
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
    for number in (signal.SIGINT, signal.SIGTERM):  # they are the supervisor's to take
        signal.signal(number, signal.SIG_IGN)
    if os.geteuid() in given.users:
        sys.stderr.write(f"{NOT_SEPARATED}\n")
    supervisor = socket.socket(fileno=os.dup(0))
    try:
        kit = PartyKit.load(given.party, given.run)
        control = Control(supervisor, stopped=lambda: was_stopped(kit.folder))
        return run(kit, given.socket, frozenset(given.users), control)
    except Exception as error:
        _tell(given.party, "the session did not start, or stopped", error)
        return exit_code(error)


if __name__ == "__main__":
    raise SystemExit(main())
