"""Code of a stranger's: whatever of it runs leaves a file that says what, and at which site.

It lies where every site's Python finds it, and one job brings a copy of it along.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from nvflare.apis.executor import Executor
from nvflare.apis.filter import Filter
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.impl.controller import Controller


def _leave(what: str) -> None:
    kit = next(Path(word).name for word in sys.orig_argv if Path(word, "startup").is_dir())
    (Path(os.environ["SECURE_FGL_TEST_MARKERS"]) / f"{__name__}.{what}@{kit}").touch()


_leave("imported")


class _Leaves:
    def __init__(self) -> None:
        super().__init__()
        _leave(type(self).__name__)


class Sits(_Leaves, Executor):
    """In the place of our `Seat`."""

    def execute(self, task_name, shareable, fl_ctx, abort_signal):
        return shareable


class Conducts(_Leaves, Controller):
    """In the place of our `Conductor`."""

    def start_controller(self, fl_ctx):
        pass

    def stop_controller(self, fl_ctx):
        pass

    def control_flow(self, abort_signal, fl_ctx):
        pass

    def process_result_of_unknown_task(self, client, task_name, client_task_id, result, fl_ctx):
        pass


class Filters(_Leaves, Filter):
    """Beside our classes: it would see all that tasks and results carry."""

    def process(self, shareable, fl_ctx):
        return shareable


class Adds(_Leaves, FLComponent):
    """Beside our classes: it would hear of every event."""


class Nests(_Leaves):
    """Inside of our class, as an argument of it."""
