"""A library that cannot be loaded here is said so, with what to do: Docker mounts /tmp noexec."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_IMPORT = (
    "from crypto.errors import NotLoaded\n"
    "try:\n"
    "    import crypto.oprf\n"
    "except NotLoaded as error:\n"
    "    print(*error.diagnostics(), sep='|')\n"
)


@pytest.mark.parametrize("refused", [True, False])
def test_a_libsodium_that_may_not_be_executed_is_named(refused: bool, tmp_path: Path) -> None:
    """Its loader raises what `ctypes` raises then; without that (the control) nothing is said."""
    root = str(Path(__file__).resolve().parents[2])
    fake = tmp_path / "fake"
    paths = [str(fake), root] if refused else [root]
    (fake / "rbcl").mkdir(parents=True)
    (fake / "rbcl" / "__init__.py").write_text(
        "raise OSError('/tmp/x: failed to map segment from shared object: not permitted')\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", _IMPORT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    what, _, todo = (told.stdout.strip() or "||").split("|")
    assert ("libsodium could not be loaded" in what) == ("TMPDIR" in todo) == refused
