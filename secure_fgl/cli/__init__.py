"""The command line, one verb per file.

Nothing here imports torch, numpy or pydantic models before a verb runs, so that ``--help`` and
mistyped commands answer at once. Exit codes: ``secure_fgl/errors.py``.
"""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command that ``sys.argv`` holds and exit with its code."""
    if "--no-color" in sys.argv[1:]:
        # Before anything that prints is imported: help and usage errors must obey it as well.
        os.environ["NO_COLOR"] = "1"
    # A library's own pool of threads would keep a run's processes from being forked (ADR 0098).
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    from secure_fgl.cli._shared.app import app

    app(prog_name="secure-fgl")
