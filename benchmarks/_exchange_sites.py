"""A server, carriers and parties that hold no session: each sends back what it is given."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters.broker import CARRIER, KEY_FILE, Broker, new_carrier_key
from secure_fgl.sites.session import Callers, OwnCarrier
from secure_fgl.transports.broker import channel
from secure_fgl.transports.broker.carrier import Connection
from secure_fgl.transports.broker.config import new_root, rights, write_config
from secure_fgl.transports.broker.messages import MOST, TASK, Code
from secure_fgl.transports.broker.server import free_port, start_server

RUN, BARE = "5e" * 16, "ba" * 16
ROOT = Path(__file__).resolve().parent.parent


@dataclass
class Sites:
    """What runs.

    Attributes:
        carrier: the aggregator's way to its carrier.
        names: of the sites.
        port: of the server.
        server: its process.
        carriers: their processes, the aggregator's among them.
        connections: by run and party, how its carrier reaches the server.
        folder: of all parties.
    """

    carrier: OwnCarrier
    names: list[str]
    port: int
    server: int
    carriers: list[int]
    connections: Mapping[tuple[str, str], Connection]
    folder: Path

    def seed(self, run: str, party: str) -> str:
        """Return the key of a party's connection."""
        return (self.folder / run / party / CARRIER / KEY_FILE).read_text("ascii").strip()


def _connections(charter: Any) -> Iterator[tuple[str, Connection]]:
    allowed = rights(charter)
    others = {name: allowed[name].subscribe[0] for name in allowed if name != AGGREGATOR_NAME}
    for name in allowed:
        yield name, Connection(
            charter.run, name, list(charter.broker.urls), charter.broker.root,
            listens=others.get(name, ""), inbox=f"fgl.{charter.run}.replies.{name}",
            asks=others if name == AGGREGATOR_NAME else {},
            limits=dict.fromkeys(others, MOST),
        )  # fmt: skip


@contextlib.contextmanager
def running(count: int) -> Iterator[Sites]:
    """Yield sites that are up; no process is left afterwards."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        names = [f"site-{number}" for number in range(1, count + 1)]
        port, connections = free_port(), dict[tuple[str, str], Connection]()
        broker = Broker((f"tls://localhost:{port}",), new_root(folder / "broker"))
        charters: list[Any] = []
        for run in (RUN, BARE):
            places = {name: folder / run / name for name in (AGGREGATOR_NAME, *names)}
            for place in places.values():
                place.mkdir(mode=0o700, parents=True)
            keys = {name: new_carrier_key(place) for name, place in places.items()}
            charters.append(SimpleNamespace(run=run, carriers=keys, broker=broker))
            for name, to in _connections(charters[-1]):
                connections[run, name] = to
                (places[name] / CARRIER / f"{run}.json").write_text(to.text())
        config = write_config(charters, folder / "broker", listen=f"localhost:{port}")
        server = start_server(config, port)
        stack.callback(_ended, server)

        def start(*words: str) -> int:
            process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-P", "-m", *words],
                env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL,
            )  # fmt: skip
            stack.callback(_ended, process)
            return process.pid

        listener = stack.enter_context(channel.bound(folder / RUN / AGGREGATOR_NAME / "socket"))
        listener.listen(8)
        for name in names:
            start("benchmarks._exchange_echo", "party", str(folder / RUN / name / "socket"))
            start("benchmarks._exchange_echo", "bare", str(folder / BARE / name / CARRIER), BARE)
        module = "secure_fgl.transports.broker.carrier"
        carriers = [
            start(module, "--alone", str(at / CARRIER), RUN, str(at / "socket"))
            for at in (folder / RUN / name for name in (AGGREGATOR_NAME, *names))
        ]
        own = OwnCarrier(Callers(listener, {os.geteuid()}, lambda: False))
        bundles = {name: [b"x"] for name in names}
        while [r.code for r in own.carry(TASK, bundles, 60.0, ()).values()] != [Code.DONE] * count:
            time.sleep(0.1)
        yield Sites(own, names, port, server.pid, carriers, connections, folder)


def _ended(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
