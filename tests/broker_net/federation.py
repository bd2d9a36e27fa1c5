"""A run whose servers and parties each have a host of their own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters.broker import Broker
from secure_fgl.transports.broker.config import Cluster, new_root, write_config
from secure_fgl.transports.broker.server import server_program
from tests.broker_net.hosts import Lines
from tests.sites.stage import Parties, assemble, banks, side

CLIENTS = [f"client-{number}" for number in range(1, 6)]
PARTIES = [AGGREGATOR_NAME, *CLIENTS]
_SECONDS = 240.0  # six processes start on a machine that has other work
_PORT, _CLUSTER, _LEAVES = 4222, 6222, 7422


@dataclass
class Federation:
    """Five clients that agreed on a charter, and the servers that it names, each at its host."""

    lines: Lines
    base: Path
    servers: Sequence[str]
    rounds: int
    deadline: int
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    parties: Parties = field(init=False)

    def __post_init__(self) -> None:
        urls = tuple(f"tls://{self.at(server)}" for server in self.servers)
        broker = Broker(urls, new_root(self.base / "broker"), self.deadline)
        config = banks(rounds=self.rounds)
        self.parties = assemble(config, self.base / "parties", broker=broker)

    def at(self, host: str, port: int = _PORT) -> str:
        return f"{self.lines.addresses[host]}:{port}"

    def config(self, server: str, behind: Sequence[str] = ()) -> Path:
        """Write the configuration of one of the servers."""
        others = [self.at(other, _CLUSTER) for other in self.servers if other != server]
        cluster = Cluster(
            server, self.at(server, _CLUSTER) if others else "", others,
            self.at(server, _LEAVES) if behind else "", behind,
        )  # fmt: skip
        charters = [self.parties.charter]
        return write_config(charters, self.base / "broker", listen=self.at(server), cluster=cluster)

    def serve(self, host: str, config: Path) -> None:
        """Start a server."""
        command = [server_program(), "-c", str(config)]
        self.running[host] = self.lines.start(host, command, self.base / f"{host}.log")

    def start(self) -> None:
        """Start all parties."""
        for name, folder in self.parties.folders.items():
            command = [sys.executable, "-P", "-m", "secure_fgl.sites.start", str(folder)]
            self.running[name] = self.lines.start(name, command, self.base / f"{name}.log")

    def survivors(self) -> list[int]:
        """Return how many clients each total so far has."""
        ledger = side(self.parties.folders[AGGREGATOR_NAME]) / "ledger" / "aggregator.jsonl"
        lines = ledger.read_bytes().splitlines(keepends=True) if ledger.exists() else []
        entries = [json.loads(line) for line in lines if line.endswith(b"\n")]
        return [entry["survivors"] for entry in entries if entry["kind"] == "open"]

    def until(self, true: Callable[[], bool]) -> None:
        """Wait; fails with what a party or server printed where it does not come true."""
        deadline = time.monotonic() + _SECONDS
        while not true():
            failed = [h for h, p in self.running.items() if p.poll() not in (None, 0, -9)]
            if failed or time.monotonic() > deadline:
                logs = [self.base / f"{host}.log" for host in failed or self.running]
                raise AssertionError("\n".join(f"{p.name}: {p.read_text()[-400:]}" for p in logs))
            time.sleep(0.1)

    def until_over(self) -> None:
        """Wait until the run is over at every party."""
        self.until(lambda: all(self.running[name].poll() == 0 for name in PARTIES))
