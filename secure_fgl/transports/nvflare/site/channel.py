"""The Unix socket between a party's own process and its relay in NVFlare's job process.

The party's process listens; the relay connects once for each task, waits for a greeting, asks, and
reads the answer. The kernel says of which user a caller is, and nobody but the party's own user and
the owner of its kit is greeted. What comes is bytes with their lengths and a word: nothing of it is
believed before the session has checked it.

A socket that nobody listens at is what a killed process leaves. One that is gone was taken away by
a process that ended in order.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import socket
import stat
import struct
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "GREETING_SECONDS",
    "SOCKET",
    "SOCKET_VARIABLE",
    "Absent",
    "Broken",
    "Busy",
    "Gone",
    "Stopped",
    "accepted",
    "connect",
    "listen",
    "of_run",
    "receive",
    "send",
]

SOCKET = "socket"
"""The sockets' name in a party's folder; a dot and the name of a run follow, see `of_run`."""
SOCKET_VARIABLE = "SECURE_FGL_SOCKET"
"""Environment variable that tells the engine's process at a site where its party listens, without
the name of the run: a job names its own."""
GREETING_SECONDS = 3.0
"""Who has not greeted by then works on something else: a process that waits greets at once."""

_GREETING = b"secure-fgl relay 2\n"
_RUN = re.compile(r"[0-9a-f]{32}")
_HEAD_LIMIT = 1 << 20  # bytes
_LIMIT = 1 << 31  # bytes of all envelopes of one frame; more is an error and nothing of ours
_MOST = 1 << 17  # envelopes of one frame
_SEND_SECONDS = 60.0
_LOOK_SECONDS = 0.2
_PIECE = 1 << 20


class Broken(Exception):
    """The connection is of no use any more, or what came is nothing of ours."""


class Absent(Broken):
    """There is no socket: no process of the party was started, or it was ended in order."""


class Gone(Broken):
    """Nobody listens at the socket, or the other side is gone, perhaps in the middle of a frame."""


class Busy(Broken):
    """Somebody listens, and does not greet."""


class Stopped(Exception):
    """What the caller asks while it waits said that it need not wait any more."""


def of_run(place: Path, run: str) -> Path:
    """Return where a party listens for a run; raises ValueError for what is no run's name.

    Each run has a socket of its own: who asks for a run that the party never joined finds none.
    """
    if not _RUN.fullmatch(run):
        raise ValueError("a job names no run")
    return place.with_name(f"{place.name}.{run}")


@contextlib.contextmanager
def _below(path: Path) -> Iterator[str]:
    """Yield a name for a socket that is short enough however long its folder's path is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def listen(path: Path, *, shared: bool = False) -> socket.socket:
    """Return the socket on which a party's process listens, open to nobody else.

    Args:
        path: of the socket. One that another process of this party left is replaced: the caller
            holds the party's lock.
        shared: the engine runs under a user of its own, in the group of the socket's folder, and
            may reach the socket.

    Raises:
        PermissionError: others can reach the folder in which it would lie, or write there.
        OSError: it cannot be made.
    """
    with _below(path) as name:  # what is checked and what is used is one folder, whoever renames it
        folder, place = os.stat(os.path.dirname(name)), Path(name)
        if folder.st_mode & (0o027 if shared else 0o077) or folder.st_uid != os.geteuid():
            raise PermissionError(f"{path.parent} is open to others")
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(place.lstat().st_mode):
                raise PermissionError(f"{path} is no socket")
            place.unlink()
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            mode = 0o660 if shared else 0o600
            os.fchmod(made.fileno(), mode)  # before it has a name: at no time is it open to more
            made.bind(name)
            os.chmod(place, mode)
            if shared:
                os.chown(place, -1, folder.st_gid)
            made.listen(8)
        except BaseException:
            made.close()
            raise
    return made


def accepted(listener: socket.socket, users: Collection[int]) -> socket.socket | None:
    """Return the connection of the next caller, greeted; None for a caller of another user."""
    connection, _ = listener.accept()
    try:
        told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", told)[1] in users:
            connection.settimeout(_SEND_SECONDS)
            connection.sendall(_GREETING)
            return connection
    except OSError:  # it hung up
        pass
    connection.close()
    return None


def connect(path: Path, *, seconds: float = GREETING_SECONDS) -> socket.socket:
    """Return a connection to the party's process that listens there, once it has greeted.

    Raises:
        Absent: there is no socket.
        Gone: nobody listens.
        Busy: who listens does not greet in time.
        Broken: what greets is nothing of ours.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        made.settimeout(seconds)
        with _below(path) as name:
            made.connect(name)
        if _exactly(made, len(_GREETING)) != _GREETING:
            raise Broken
        made.settimeout(_SEND_SECONDS)
        return made
    except BaseException as error:
        made.close()
        if isinstance(error, TimeoutError | BlockingIOError):
            raise Busy from error
        if isinstance(error, FileNotFoundError):
            raise Absent from error
        if isinstance(error, OSError):
            raise Gone from error
        raise


def send(
    connection: socket.socket,
    head: Mapping[str, Any],
    blobs: Sequence[bytes] = (),
    *,
    stopped: Callable[[], bool] = lambda: False,
) -> None:
    """Write one frame: a word with its facts, and bytes.

    Args:
        connection: from `accepted` or `connect`.
        head: the word with its facts.
        blobs: bytes.
        stopped: asked before each piece: who reads slowly keeps nobody from ending, or beating.

    Raises:
        Gone: nobody reads it.
        Stopped: `stopped` said so.
    """
    told = json.dumps({**head, "sizes": [len(blob) for blob in blobs]}).encode()
    try:
        connection.sendall(struct.pack(">I", len(told)) + told)
        for blob in (memoryview(data) for data in blobs):
            for start in range(0, len(blob), _PIECE):
                if stopped():
                    raise Stopped
                connection.sendall(blob[start : start + _PIECE])
    except OSError as error:
        raise Gone from error


def receive(
    connection: socket.socket,
    *,
    stopped: Callable[[], bool] = lambda: False,
    seconds: float | None = None,
) -> tuple[dict[str, Any], list[bytes]]:
    """Read one frame.

    Args:
        connection: from `accepted` or `connect`.
        stopped: asked while nothing comes.
        seconds: how long to wait for its beginning; None: for as long as it takes.

    Raises:
        Gone: the other side hung up.
        Broken: what came is no frame.
        Stopped: `stopped` said so.
        TimeoutError: it did not come in time.
    """
    _await(connection, stopped, seconds)
    (size,) = struct.unpack(">I", _exactly(connection, 4, stopped))
    try:
        if size > _HEAD_LIMIT:
            raise ValueError
        head = json.loads(_exactly(connection, size, stopped))
        sizes = head.pop("sizes")
        if not isinstance(sizes, list) or len(sizes) > _MOST or not all(map(_is_size, sizes)):
            raise ValueError
        if sum(sizes) > _LIMIT:
            raise ValueError
        return head, [_exactly(connection, size, stopped) for size in sizes]
    except (AttributeError, KeyError, RecursionError, TimeoutError, TypeError, ValueError) as error:
        raise Broken from error


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= _LIMIT


def _await(connection: socket.socket, stopped: Callable[[], bool], seconds: float | None) -> None:
    deadline = None if seconds is None else time.monotonic() + seconds
    while not select.select([connection], [], [], _LOOK_SECONDS)[0]:
        if stopped():
            raise Stopped
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError


def _exactly(
    connection: socket.socket, size: int, stopped: Callable[[], bool] = lambda: False
) -> bytes:
    found = bytearray()
    while len(found) < size:
        if stopped():  # who sends byte by byte keeps nobody from ending
            raise Stopped
        try:
            piece = connection.recv(min(_PIECE, size - len(found)))
        except TimeoutError:
            raise
        except OSError as error:
            raise Gone from error
        if not piece:
            raise Gone
        found += piece
    return bytes(found)
