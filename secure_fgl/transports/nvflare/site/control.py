"""Between the supervisor and the process that it started."""

from __future__ import annotations

import contextlib
import select
import socket
import time
from collections.abc import Callable

__all__ = ["UP", "Control"]

UP = b"u"
"""What the supervisor is told once the process listens."""

_BEAT = b"b"
_BEAT_SECONDS = 5.0  # between two beats of a process that waits; see `watch`


class Control:
    """When this process is to end; and beats, while it waits.

    Args:
        channel: one end of a pair of sockets; the supervisor holds the other.
        stopped: tells whether the site was stopped, also where the supervisor hangs.
    """

    def __init__(
        self, channel: socket.socket, *, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self._channel, self._stopped, self._beat = channel, stopped, time.monotonic()

    def wait(self, listener: socket.socket) -> None:
        """Wait until somebody calls, or this process is to end."""
        while not select.select([listener, self._channel], [], [], _BEAT_SECONDS)[0]:
            self._beats()

    def up(self) -> None:
        """Say that this process listens."""
        self._say(UP)

    def ends(self) -> bool:
        """Tell whether the supervisor hung up, is gone, or the site was stopped.

        It is asked wherever this process waits, and nowhere where it computes: so here it beats.
        """
        self._beats()
        return bool(select.select([self._channel], [], [], 0)[0]) or self._stopped()

    def _beats(self) -> None:
        if (now := time.monotonic()) - self._beat >= _BEAT_SECONDS:
            self._beat = now
            self._say(_BEAT)

    def _say(self, word: bytes) -> None:
        with contextlib.suppress(OSError):
            # A supervisor that hangs reads nothing, and this process does not hang with it.
            self._channel.send(word, socket.MSG_DONTWAIT)
