"""Workers that are forked off the test instead of started afresh: the same code, seconds earlier.

What a fork inherits (planted answers, too) is the tests' convenience;
`secure_fgl.isolation.sandbox` starts a fresh interpreter, and tests that need to see that do not
use this.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import socket
import time

import pytest

from secure_fgl.isolation import sandbox, worker

LATE = ("torch._dynamo", "torch._inductor.config", "torch_geometric.nn.conv.gcn_conv", "tenseal")
"""What a run imports once it trains or encrypts: two seconds, in every child anew."""


@functools.cache
def warm() -> None:
    """Import before a fork what the child would import after it."""
    for name in LATE:
        importlib.import_module(name)


class ForkedWorker:
    """A forked child that serves a channel."""

    def __init__(self, channel: socket.socket) -> None:
        warm()
        self.pid = os.fork()
        self._status: int | None = None
        if self.pid == 0:
            try:
                worker.serve(channel.fileno())
            finally:
                os._exit(0)

    def kill(self) -> None:
        if self._status is None:
            os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        deadline = time.monotonic() + (timeout or 0.0)
        while self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG if timeout is not None else 0)
            if pid:
                self._status = status
            elif time.monotonic() > deadline:
                raise TimeoutError
            else:
                time.sleep(0.001)
        return self._status


def use(patch: pytest.MonkeyPatch) -> None:
    """Let sandboxes fork their workers."""
    patch.setattr(sandbox, "spawn", ForkedWorker)
