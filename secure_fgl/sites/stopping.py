"""A site that is stopped: its session ends between two exchanges, and goes on only if told to.

``stopped`` in the folder of a run is the operator's word. While it is there nothing is started. The
ledger gets no last entry, since whoever goes on writes into it again; its head is signed as it
stands, so that this site is held to all that it said and to nothing more.
"""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from protocols.errors import SecureFglError
from secure_fgl.errors import UsageError
from secure_fgl.run.clock import clock
from secure_fgl.sites.stopped import (
    NOTE,
    at_rest,
    go_on,
    numbers,
    only_one_start,
    opened,
    was_stopped,
)
from secure_fgl.store.files import held, open_plain, replace
from secure_fgl.store.sides.party_side import place_of, places_of
from secure_fgl.transports.broker.channel import SOCKET, socket_of

if TYPE_CHECKING:
    from secure_fgl.sites.process import PartyProcess

__all__ = [
    "go_on",
    "only_one_start",
    "sign_off",
    "stop",
    "was_stopped",
]

_LOOK_SECONDS = 0.1


def sign_off(process: PartyProcess) -> None:
    """Sign the head of the ledger as it stands and close all files; the kept state stays."""
    with process.files:
        process.session.ledger.commit()
        process.sign_head()


def stop(folder: str | Path, *, run: str | None = None, seconds: float) -> list[str]:
    """End this party's processes between two exchanges, with the heads of their ledgers signed.

    Args:
        folder: the party's.
        run: the run's name; None: all runs of this party.
        seconds: how long to wait for answers that are being computed; they do not leave.

    Returns:
        The names of the runs that were stopped.

    Raises:
        UsageError: it is no party's folder, the party never joined that run, or a run could not be
            stopped in order: its process does not end in time, or the disk takes neither a note nor
            a head. No answer of it leaves all the same, and all other runs are stopped.
        and what `open_process` raises, where no process is at work and the head of the only run is
        still to be signed.
    """
    party = Path(folder)
    if not (party / "identity.json").is_file():
        raise UsageError(f"{party} is not a party's folder.", fix="name the folder of site new")
    if party.stat().st_uid != os.geteuid():  # what lies there could have root end what it likes
        raise UsageError(
            f"{party} belongs to another user.",
            why="a site is stopped by the user whose folder it is; root becomes that user first",
            fix=f"sudo -u '#{party.stat().st_uid}' secure-fgl site stop {party}",
        )
    places = [place_of(party, run)] if run is not None else [*places_of(party).values()]
    failed: dict[str, SecureFglError] = {}

    def each(act: Callable[[Path], object]) -> None:
        """Do it to every run, whatever becomes of it at another one."""
        for place in places:
            try:
                act(place)
            except SecureFglError as error:
                failed.setdefault(place.name, error)
            except OSError as error:
                failed.setdefault(place.name, _unwritten(place, error))

    each(_mark)  # first, and everywhere: nothing is started any more
    each(_tell)
    deadline = time.monotonic() + seconds
    each(lambda place: _ended(party, place, deadline))
    if len(places) == 1 and failed:
        raise failed[places[0].name]
    if failed:
        raise UsageError(
            f"Not stopped in order: {', '.join(failed)}. All other runs were.",
            why="; ".join(error.what for error in failed.values()),
            fix="mend that, and run site stop again",
        )
    return [place.name for place in places]


def _mark(place: Path) -> None:
    """Write the operator's word; on a full disk an empty file, which says as much."""
    try:
        replace(place / NOTE, f"{clock()}\n".encode())
    except OSError:
        os.close(open_plain(place / NOTE, os.O_CREAT | os.O_WRONLY))


def _unwritten(place: Path, error: OSError) -> UsageError:
    return UsageError(
        f"The stop of {place.name} could not be written, or its ledger not signed "
        f"({error.strerror}).",
        why="the disk is full, or the folder is not writable; its process was told to end",
        fix="make room, and run site stop again",
    )


def _ended(party: Path, place: Path, deadline: float) -> None:
    told = False
    while not at_rest(place):
        told = told or _tell(place)
        if time.monotonic() > deadline:
            raise UsageError(
                "The party's process has not ended yet.",
                why="it computes an answer, which will not leave; then it signs its ledger",
                fix="run site stop again to wait longer",
            )
        time.sleep(_LOOK_SECONDS)
    from secure_fgl.charters.party import PartyKit
    from secure_fgl.sites.process import open_process

    if not was_stopped(place):  # a start --again that began meanwhile took it back
        _mark(place)
    _take_away(party, place)
    run = place / "run"
    signed = any((run / "heads").glob("*.checkpoint"))
    given_up = (run / "forgotten").is_dir() and not (run / "private").exists()  # or swept
    if (run / "roster.json").is_file() and not signed and not given_up:  # it was killed
        sign_off(open_process(PartyKit.load(party, place.name)))


def _take_away(party: Path, place: Path) -> None:
    """Remove the socket that a killed process left in the party's folder: this site left.

    The operator may be root, so nothing goes but a socket of the folder's owner.
    """
    listened = socket_of(party / SOCKET, place.name)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        folder = os.open(listened.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            entry = os.stat(listened.name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISSOCK(entry.st_mode) and entry.st_uid == place.stat().st_uid:
                os.unlink(listened.name, dir_fd=folder)
        finally:
            os.close(folder)


def _tell(folder: Path) -> bool:
    """Ask the supervisor to end; False while it has not said yet who it is.

    Raises:
        UsageError: it runs where processes have other numbers, in a container or on another
            machine. It ends all the same once it sees that it was stopped, and starts nothing.
    """
    file = opened(folder)
    try:
        told, _, where = os.pread(file, 128, 0).decode("ascii", "replace").partition(" ")
        if not (told.isdecimal() and where):
            return False
        if where != numbers():
            if held(file):
                return True  # it ended, whatever its number was
            raise UsageError(
                "The party's process runs in another container, or on another machine.",
                why="its number is another process's here, or nobody's; nothing was signalled",
                fix="run site stop there: docker compose exec party secure-fgl site stop PARTY",
            )
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            process = os.pidfd_open(int(told))
            try:
                # Held once the handle is there: the number is not somebody else's by now.
                mine = os.stat(f"/proc/{told}").st_uid == os.geteuid()
                if mine and not held(file):
                    signal.pidfd_send_signal(process, signal.SIGTERM)
            finally:
                os.close(process)
        return True
    finally:
        os.close(file)
