"""A run that is killed in its middle, by a process of its own, and goes on here.

Run as ``python -m secure_fgl.checking.killed`` with an order on standard input: the process plays
the run and ends itself before one message is answered, as a power button would: no handler, no
finally.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from protocols.sessions.engine import Delivery
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.plugins.in_use import Plugins
from secure_fgl.transports.memory import MemoryTransport

__all__ = ["kill"]

_PATIENCE_S = 600.0


def kill(config: Config, plugins: Plugins, out: Path, *, at: int) -> bool:
    """Play a run in another process until its `at`-th message; tell whether it was killed there."""
    house = str(Path(__file__).resolve().parents[2])
    order = {
        "at": at,
        "config": config.model_dump(mode="json"),
        "out": str(out),
        "plugins": list(map(str, plugins.files)),
    }
    done = subprocess.run(
        [sys.executable, "-P", "-m", "secure_fgl.checking.killed"],
        input=json.dumps(order).encode(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (house, _path())))},
        timeout=_PATIENCE_S,
        check=False,
    )
    return done.returncode == -signal.SIGKILL


def _path() -> str:
    return os.environ.get("PYTHONPATH", "")


class _Killing(MemoryTransport):
    """Ends the process before a message is answered."""

    at = 0
    carried = 0

    def exchange(self, deliveries: Sequence[Delivery]) -> list[Delivery]:
        answers: list[Delivery] = []
        for delivery in deliveries:
            type(self).carried += 1
            if self.carried == self.at:
                os.kill(os.getpid(), signal.SIGKILL)
            answers += super().exchange([delivery])
        return answers


def main() -> None:
    """Do what the order on standard input says."""
    order = json.loads(sys.stdin.buffer.read())
    _Killing.at = order["at"]
    federation = Federation(config=Config.literal(order["config"]), plugins=order["plugins"])
    federation.run(order["out"], connect=_Killing)


if __name__ == "__main__":
    main()
