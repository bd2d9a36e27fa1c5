"""Sandboxes with planted answers, for the laws of isolation."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

from algorithms.tasks import Site
from protocols.wire.roles import Role
from protocols.wire.roster import Identity
from secure_fgl.federation import Federation
from secure_fgl.isolation import sandbox
from secure_fgl.isolation.sandbox import Sandbox
from tests import forked
from tests.laws import planted
from tests.laws.planted import CLIENT, FORM, NAMES, Go
from tests.laws.runs import config

IDENTITY = Identity.from_seed("client-1", Role.CLIENT, bytes(32))
ROOT = Path(__file__).resolve().parents[2]
Asks = Callable[..., Any]


def fresh(channel: socket.socket) -> subprocess.Popen[bytes]:
    """Start a fresh interpreter, as `sandbox.spawn` does, on planted answers."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", "from tests.laws import planted; planted.serve(0)"],
        stdin=channel, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip


def forked_planted(channel: socket.socket) -> forked.ForkedWorker:
    with patch.object(forked.worker, "Answers", planted.PlantedAnswers):
        return forked.ForkedWorker(channel)


def opened(spawn: Callable[[socket.socket], Any], *, seconds: float = 60.0) -> Sandbox:
    chosen = config("fed_avg", "masks")
    federation = Federation(config=chosen)
    with patch.object(sandbox, "spawn", spawn):
        return Sandbox(chosen, federation.policy, federation.plan(), [CLIENT], seconds=seconds)


def asks(of: Sandbox, site: Site) -> Asks:
    """Return what asks the sandbox one exchange and returns its one message."""
    form = of.form(FORM, {CLIENT: site})

    def ask(name: str) -> Any:
        (exchange,) = form.exchanges
        (said,) = exchange.answer(site, Go(number=NAMES.index(name)))  # type: ignore[misc]
        return said

    return ask
