"""A caller of a party's socket, as a carrier is one whose connection was handed over."""

from __future__ import annotations

import socket
from pathlib import Path

from secure_fgl.transports.broker import channel

__all__ = ["connect"]


def connect(path: Path, *, seconds: float = 3.0) -> socket.socket:
    """Return a connection to the party's process that listens there, once it has greeted.

    Raises:
        FileNotFoundError: there is no socket: no process was started, or it ended in order.
        OSError: nobody listens, or who listens does not greet in time.
        Gone: what greets is nothing of ours.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        made.settimeout(seconds)
        with channel.below(path) as name:
            made.connect(name)
        if channel._exactly(made, len(channel.GREETING), lambda: False) != channel.GREETING:
            raise channel.Gone
        made.settimeout(60.0)
    except BaseException:
        made.close()
        raise
    return made
