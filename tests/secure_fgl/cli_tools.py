"""A tiny federation on the command line: five banks of a hundred records, seconds to train."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from typer.testing import CliRunner, Result

from protocols.policy.policy import PrivacyPolicy
from secure_fgl.cli._shared.app import app

ROOT = Path(__file__).resolve().parents[2]
COMMAND = (sys.executable, "-m", "secure_fgl.cli")
CONFIG = """
algorithm: {name: fed_avg, rounds: 2}
model: {name: gcn, hidden: 8}
data:
  name: synthetic_banks
  options: {customers: 40, transactions: 60}
  partition: {name: by_owner, clients: 5}
policy: pilot
"""


def few(preset: str = "unsafe_plaintext") -> PrivacyPolicy:
    """Return a preset for sites of fewer persons than ten: they train, as small tests need it."""
    return PrivacyPolicy.preset(preset).changed(minimum_records=1)


def invoke(*arguments: object) -> Result:
    """Run a command in this process; stdout and stderr are kept apart."""
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def start(arguments: Sequence[object], cwd: Path, **environment: str) -> subprocess.Popen[str]:
    """Start a command as a process of its own, which Ctrl-C reaches."""
    fixed = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    fixed.update({k: v for k, v in os.environ.items() if k.startswith("SECURE_FGL_STATE")})
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env={**fixed, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that starts jobs in the background lets them ignore SIGINT, and they pass it on.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - sets a flag only
    )


def config(folder: Path, text: str = CONFIG) -> Path:
    """Write a configuration and return its path."""
    path = folder / "tiny.yaml"
    path.write_text(text)
    return path
