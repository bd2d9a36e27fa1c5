"""A start of an installation in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

CALL = "import secure_fgl._floors as guard; guard.check(); print('started')"


def start(
    *path: Path, code: str = CALL, bare: bool = True, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run `code` with exactly these folders ahead of the standard library.

    Args:
        path: the folders.
        code: what to run.
        bare: leave out site-packages: the house under test is the copy, not the installation.
        more: environment variables.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path)), **more}
    command = [sys.executable, *(["-S"] if bare else []), "-B", "-P", "-c", code]
    return subprocess.run(  # noqa: PLW1510
        command, env=environment, capture_output=True, text=True, timeout=300
    )
