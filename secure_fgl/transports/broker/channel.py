"""The Unix socket between a party's own process and its carrier, which has the network.

The party listens; its carrier connects and keeps the connection. The kernel says of which user a
caller is, and the party greets its own user and the one that was named as the carrier's, nobody
else. Two verbs cross it: a site's carrier asks (`replies.TASK`, `replies.END`) and the party
replies; at the aggregator the party has its carrier *carry*, and the carrier returns what came.
Nothing that comes is believed before the session has checked it.

A socket at which nobody listens is what a killed process leaves. One that is gone was removed by a
process that ended in order.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import stat
import struct
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from secure_fgl.transports.broker.messages import MOST

__all__ = [
    "ASK", "CARRY", "GONE", "GREETING", "HERE", "LENGTH", "REFUSED", "SOCKET", "Gone", "Stopped",
    "accept", "below", "bound", "hand_over", "receive", "send", "socket_of",
]  # fmt: skip

SOCKET = "socket"
"""The sockets' name in a party's folder; a dot and the name of a run follow, see `socket_of`."""
CARRY = "carry"
"""The aggregator's verb: take these envelopes to these parties."""
GREETING = b"secure-fgl party 3\n"
LENGTH = struct.Struct(">Q")
"""Before each message: its length."""
ASK, HERE, REFUSED, GONE = b"c", b"h", b"r", b"g"
"""Between a carrier and what started it: a connection to the party, please; here it is; nobody
listens; there is no socket."""

_RUN = re.compile(r"[0-9a-f]{32}")
_SEND_SECONDS = 60.0
_LOOK_SECONDS = 0.5
_PIECE = 1 << 20


class Gone(Exception):
    """The other side is gone, perhaps in the middle of a message, or sends what is none."""


class Stopped(Exception):
    """What the caller asks while it waits said that it need not wait any more."""


def socket_of(folder: Path, run: str) -> Path:
    """Return where a party listens for a run; raises ValueError for what is no run's name."""
    if not _RUN.fullmatch(run):
        raise ValueError("not the name of a run")
    return folder.with_name(f"{folder.name}.{run}")


@contextlib.contextmanager
def below(path: Path) -> Iterator[str]:
    """Yield a name for a socket that is short enough however long its folder's path is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


def bound(path: Path, *, shared: bool = False) -> socket.socket:
    """Return the socket on which a party's process is to listen, open to nobody else.

    Args:
        path: of the socket. One that another process of this party left is replaced: the caller
            holds the party's lock.
        shared: the carrier runs under a user of its own, in the group of the socket's folder, and
            may reach the socket.

    Raises:
        PermissionError: others can reach the folder in which it would lie, or write there.
        OSError: it cannot be made.
    """
    with below(path) as name:  # what is checked and what is used is one folder, whoever renames it
        folder, at = os.stat(os.path.dirname(name)), Path(name)
        if folder.st_mode & (0o027 if shared else 0o077) or folder.st_uid != os.geteuid():
            raise PermissionError(f"{path.parent} is open to others")
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(at.lstat().st_mode):
                raise PermissionError(f"{path} is no socket")
            at.unlink()
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            mode = 0o660 if shared else 0o600
            os.fchmod(made.fileno(), mode)  # before it has a name: at no time is it open to more
            made.bind(name)
            os.chmod(at, mode)
            if shared:
                os.chown(at, -1, folder.st_gid)
        except BaseException:
            made.close()
            raise
    return made


def accept(listener: socket.socket, users: Collection[int]) -> socket.socket | None:
    """Return the connection of the next caller, greeted; None for a caller of another user."""
    connection, _ = listener.accept()
    try:
        sent = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        if struct.unpack("3i", sent)[1] in users:
            connection.settimeout(_SEND_SECONDS)
            connection.sendall(GREETING)
            return connection
    except OSError:  # it hung up
        pass
    connection.close()
    return None


def hand_over(control: socket.socket, path: Path) -> None:
    """Connect to the party that listens there, and hand the connection to a carrier that asked.

    Args:
        control: to the carrier.
        path: where the party listens.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as made:
        word = HERE
        try:
            made.setblocking(False)
            with below(path) as name:
                made.connect(name)
        except FileNotFoundError:
            word = GONE
        except OSError:  # nobody listens, or too many wait
            word = REFUSED
        with contextlib.suppress(OSError):  # the carrier is gone
            socket.send_fds(control, [word], [made.fileno()] if word == HERE else [])


def send(
    connection: socket.socket, message: bytes, *, stopped: Callable[[], bool] = lambda: False
) -> None:
    """Write one message.

    Args:
        connection: from `accept`.
        message: its bytes.
        stopped: asked before each piece: who reads slowly keeps nobody from ending.

    Raises:
        Gone: nobody reads it.
        Stopped: `stopped` said so.
    """
    view = memoryview(message)
    try:
        connection.sendall(LENGTH.pack(len(message)))
        for start in range(0, len(view), _PIECE):
            if stopped():
                raise Stopped
            connection.sendall(view[start : start + _PIECE])
    except OSError as error:
        raise Gone from error


def receive(
    connection: socket.socket,
    *,
    stopped: Callable[[], bool] = lambda: False,
    seconds: float | None = None,
) -> bytes:
    """Read one message.

    Args:
        connection: from `accept`.
        stopped: asked while nothing comes.
        seconds: how long to wait for its beginning; None: for as long as it takes.

    Raises:
        Gone: the other side hung up, or it is no message.
        Stopped: `stopped` said so.
        TimeoutError: it did not come in time.
    """
    deadline = None if seconds is None else time.monotonic() + seconds
    while not select.select([connection], [], [], _LOOK_SECONDS)[0]:
        if stopped():
            raise Stopped
        if deadline is not None and time.monotonic() > deadline:
            raise TimeoutError
    (size,) = LENGTH.unpack(_exactly(connection, LENGTH.size, stopped))
    if size > MOST:
        raise Gone
    return _exactly(connection, size, stopped)


def _exactly(connection: socket.socket, size: int, stopped: Callable[[], bool]) -> bytes:
    received = bytearray()
    while len(received) < size:
        if stopped():  # who sends byte by byte keeps nobody from ending
            raise Stopped
        try:
            piece = connection.recv(min(_PIECE, size - len(received)))
        except OSError as error:
            raise Gone from error
        if not piece:
            raise Gone
        received += piece
    return bytes(received)
