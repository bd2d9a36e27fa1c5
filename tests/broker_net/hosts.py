"""Hosts of their own in network namespaces, joined by lines that delay, lose and can be cut.

Each namespace has one TUN device, and a thread here passes packets between them. It does what
`tc netem` does, which many kernels lack, and needs no more than /dev/net/tun and `ip netns`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import select
import shutil
import signal
import struct
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import pytest

import secure_fgl

ROOT = Path(secure_fgl.__file__).parents[1]
_SET_INTERFACE, _TUN, _NO_HEAD = 0x400454CA, 0x0001, 0x1000
_NETWORK = "10.77.0."


def needed() -> None:
    """Skip a test where no namespaces can be made."""
    if os.geteuid() != 0 or shutil.which("ip") is None or not os.path.exists("/dev/net/tun"):
        pytest.skip("network namespaces need root, iproute2 and /dev/net/tun")


class Lines:
    """Hosts that reach each other and nobody else.

    A packet takes `delay` seconds, and the share `loss` of them is lost. Nothing passes to and from
    hosts in `cut`, and between pairs of hosts in `apart`.
    """

    def __init__(self, hosts: Sequence[str], *, delay: float = 0.0, loss: float = 0.0) -> None:
        self.addresses = {host: f"{_NETWORK}{number}" for number, host in enumerate(hosts, 2)}
        self.cut: set[str] = set()
        self.apart: set[frozenset[str]] = set()
        self._delay, self._loss, self._random = delay, loss, random.Random(1)
        self._devices: dict[int, int] = {}  # by the last byte of its address
        self._namespaces = {h: f"fgl{os.getpid()}-{n}" for n, h in enumerate(hosts)}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._pass_on, daemon=True)

    def __enter__(self) -> Lines:
        for number, (host, space) in enumerate(self._namespaces.items(), 2):
            _ip("netns", "add", space)
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            self._devices[number] = device
            request = struct.pack("16sH22x", space.encode(), _TUN | _NO_HEAD)
            fcntl.ioctl(device, _SET_INTERFACE, request)
            _ip("link", "set", space, "netns", space)
            _ip("-n", space, "addr", "add", f"{self.addresses[host]}/24", "dev", space)
            for link in ("lo", space):
                _ip("-n", space, "link", "set", link, "up")
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._over.set()
        self._thread.join()
        for device in self._devices.values():
            os.close(device)
        for space in self._namespaces.values():
            _ip("netns", "del", space)

    def start(self, host: str, command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
        """Start a program at a host, in a process group of its own."""
        inside = ["ip", "netns", "exec", self._namespaces[host], *command]
        with log.open("ab") as out:
            process = subprocess.Popen(
                inside, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True,
                env={**os.environ, "PYTHONPATH": str(ROOT)},
            )  # fmt: skip
        self._processes.append(process)
        return process

    def peers(self, host: str) -> set[str]:
        """Return the hosts to which a host has a TCP connection."""
        found = _ip("netns", "exec", self._namespaces[host], "ss", "-tnH", "state", "established")
        return {h for h, at in self.addresses.items() if f" {at}:" in found} - {host}

    def _pass_on(self) -> None:
        hosts = dict(zip(self._devices.values(), self._namespaces, strict=True))
        due: deque[tuple[float, int, bytes]] = deque()  # all take as long, so none overtakes
        while not self._over.is_set():
            wait = max(0.0, due[0][0] - time.monotonic()) if due else 0.1
            for device in select.select([*hosts], [], [], min(wait, 0.1))[0]:
                packet = os.read(device, 65536)
                to = self._devices.get(packet[19] if packet[0] >> 4 == 4 else 0)
                if to is None or not self._passes(frozenset((hosts[device], hosts[to]))):
                    continue
                due.append((time.monotonic() + self._delay, to, packet))
            while due and due[0][0] <= time.monotonic():
                _, to, packet = due.popleft()
                with contextlib.suppress(OSError):  # its queue is full: one more that is lost
                    os.write(to, packet)

    def _passes(self, ends: frozenset[str]) -> bool:
        return not (ends & self.cut or ends in self.apart or self._random.random() < self._loss)


def _ip(*arguments: str) -> str:
    done = subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
    return done.stdout
