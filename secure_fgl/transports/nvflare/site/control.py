"""Between the supervisor and the process that it started."""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Callable

__all__ = ["UP", "Control"]

UP = b"u"
"""What the supervisor is told once the process listens."""


class Control:
    """When this process is to end.

    Args:
        channel: one end of a pair of sockets; the supervisor holds the other.
        stopped: tells whether the site was stopped, also where the supervisor hangs.
    """

    def __init__(
        self, channel: socket.socket, *, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self._channel, self._stopped = channel, stopped

    def wait(self, listener: socket.socket) -> None:
        """Wait until somebody calls, or this process is to end."""
        select.select([listener, self._channel], [], [])

    def up(self) -> None:
        """Say that this process listens."""
        with contextlib.suppress(OSError):
            self._channel.sendall(UP)

    def ends(self) -> bool:
        """Tell whether the supervisor hung up, is gone, or the site was stopped."""
        return bool(select.select([self._channel], [], [], 0)[0]) or self._stopped()
