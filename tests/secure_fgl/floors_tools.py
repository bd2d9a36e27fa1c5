"""Installations to break: a record as a wheel leaves it, and a start in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from base64 import urlsafe_b64encode
from hashlib import sha256
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


def record(house: Path) -> Path:
    """Write the RECORD that an installed wheel of this house would have; return its folder."""
    facts = house / "secure_fgl-0.1.0.dist-info"
    facts.mkdir(exist_ok=True)
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: secure-fgl\nVersion: 0.1.0\n")
    lines = [f"{facts.name}/RECORD,,"]
    for file in sorted(house.rglob("*")):
        name = file.relative_to(house).as_posix()
        if file.is_file() and facts not in file.parents and "__pycache__" not in name:
            digest = urlsafe_b64encode(sha256(file.read_bytes()).digest()).decode().rstrip("=")
            lines.append(f"{name},sha256={digest},{file.stat().st_size}")
    (facts / "RECORD").write_text("\n".join(lines) + "\n")
    return facts
