"""Put in front of the sites' path by a test: shows what travels, or stops a party at one moment.

Python imports this by its name before anything else runs. Two kinds of processes are tapped:

- Of an engine's job: all that tasks and results carry, of either direction, goes through the two
  functions that are wrapped here, and a copy of it is kept.
- Of a party's session, where a test asks for it by a variable: it waits at a moment that the test
  names by a file, its clock is off, or every secret that it draws is noted. Nothing of that is in
  the product.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

HOLD, CLOCK = "SECURE_FGL_TEST_HOLD", "SECURE_FGL_TEST_CLOCK"
"""A folder: the session waits while a file lies there that is called as a moment is. And by how
many seconds the clock of the party's processes is off."""

if any(module.endswith((".runner_process", ".worker_process")) for module in sys.orig_argv):
    from secure_fgl.transports.nvflare import wire

    _side = "server" if any(word.endswith(".runner_process") for word in sys.orig_argv) else "site"
    _file = Path(os.environ["SECURE_FGL_TEST_TAP"]) / f"{_side}-{os.getpid()}.bin"
    _pack, _unpack = wire.pack, wire.unpack

    def _keep(envelopes: list[bytes]) -> None:
        with _file.open("ab") as file:
            file.write(b"".join(envelopes))

    def pack(envelopes: Any, *more: Any) -> Any:
        _keep(list(envelopes))
        return _pack(envelopes, *more)

    def unpack(carried: Any) -> list[bytes]:
        found = _unpack(carried)
        _keep(found)
        return found

    wire.pack, wire.unpack = pack, unpack

if os.environ.get(CLOCK):
    _time, _off = time.time, float(os.environ[CLOCK])
    time.time = lambda: _time() + _off

if os.environ.get(HOLD) and "secure_fgl.sites.session" in sys.orig_argv:
    import secure_fgl  # noqa: F401 - it looks whose the floors are, first
    from secure_fgl.isolation.sandbox import Sandbox
    from secure_fgl.sites.process import PartyProcess
    from secure_fgl.transports.broker import channel

    _folder, _receive, _send = Path(os.environ[HOLD]), PartyProcess.receive, channel.send
    _ask = Sandbox._ask

    def _held(moment: str, *answers: bytes) -> None:
        """Wait while the test holds this moment; say that it came, and what is to leave."""
        asked = _folder / moment
        if not asked.exists():
            return
        (_folder / "part").write_bytes(b"".join(answers))
        (_folder / "part").rename(_folder / f"{moment}.held")
        while asked.exists():
            time.sleep(0.01)

    def _receiving(self: Any, data: bytes) -> Any:
        _held("asked")
        answers = _receive(self, data)
        _held("recorded", *(answer.data for answer in answers))
        return answers

    def _computing(self: Any, content: bytes) -> Any:
        _held("computing")
        return _ask(self, content)

    class _Half:
        """A connection that takes the first half of some bytes, waits, and takes the rest."""

        def __init__(self, connection: Any, half: int, envelopes: Any) -> None:
            self._connection, self._envelopes = connection, envelopes
            self._left: int | None = half

        def sendall(self, data: Any) -> None:
            if self._left is not None and self._left < len(data):
                self._connection.sendall(data[: self._left])
                _held("sending", *self._envelopes)
                data, self._left = data[self._left :], None
            elif self._left is not None:
                self._left -= len(data)
            self._connection.sendall(data)

    def _sending(connection: Any, head: Any, envelopes: Any = (), **more: Any) -> None:
        if envelopes:
            half = sum(map(len, envelopes)) // 2
            connection = _Half(connection, half, [bytes(data) for data in envelopes])
        _send(connection, head, envelopes, **more)

    PartyProcess.receive, channel.send, Sandbox._ask = _receiving, _sending, _computing

_DRAWN = os.environ.get("SECURE_FGL_TEST_DRAWN")

if _DRAWN and any(module.endswith(".site.session") for module in sys.orig_argv):
    from crypto import samplers

    _entropy = samplers.entropy
    _noted = Path(_DRAWN) / f"{os.getpid()}.hex"

    def entropy(count: int) -> bytes:
        """Return what the operating system drew; shorter than a key are nonces, which travel."""
        drawn = _entropy(count)
        if count >= samplers.KEY_BYTES:
            with _noted.open("a") as file:
                file.write(f"{drawn.hex()}\n")
        return drawn

    samplers.entropy = entropy
