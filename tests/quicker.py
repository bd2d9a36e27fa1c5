"""What only a process with thousands of runs pays for, and no process in use.

Each took minutes of the whole suite, since it grows with what earlier tests left behind.
"""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest


def leave_out(patched: pytest.MonkeyPatch) -> None:
    """Leave all of it out, of what the tests of this session have imported."""
    _sweeping_the_shared_keys(patched)
    _reading_the_source_of_callers(patched)


def _sweeping_the_shared_keys(patched: pytest.MonkeyPatch) -> None:
    """Read no day of the captures of all earlier runs, three times a run.

    None of those days ends within the session. In a folder of a test's own everything is swept.
    """
    captures: Any = sys.modules.get("secure_fgl.store.captures")
    if captures is None:
        return
    real, shared = captures.sweep, Path(os.environ["SECURE_FGL_STATE"]) / "captures"

    def sweep(folder: Path | None = None) -> None:
        if (folder or captures.default_folder() / "captures") != shared:
            real(folder)

    for name in ("secure_fgl.store.captures", "secure_fgl.store.finished_run"):
        if name in sys.modules:
            patched.setattr(sys.modules[name], "sweep", sweep)


def _reading_the_source_of_callers(patched: pytest.MonkeyPatch) -> None:
    """Tell PyTorch Geometric's Sequential its caller's file, all that it asks `inspect.stack` for.

    That function looks for the module and the source text of every caller.
    """
    sequential: Any = sys.modules.get("torch_geometric.nn.sequential")
    if sequential is None:
        return

    class Inspect:
        def __getattr__(self, name: str) -> Any:
            return getattr(inspect, name)

        def stack(self) -> list[SimpleNamespace]:
            frame, files = sys._getframe(1), []
            while frame is not None and len(files) < 2:
                files.append(SimpleNamespace(filename=frame.f_code.co_filename))
                frame = frame.f_back  # type: ignore[assignment]
            return files

    patched.setattr(sequential, "inspect", Inspect())
