"""What all tests of this transport share."""

from __future__ import annotations

import pytest

from tests import forked
from tests.sites.left import (
    folder_of_this_run,
    no_module_leaves_a_process,
    no_test_leaves_a_process,
)

__all__ = ["folder_of_this_run", "no_module_leaves_a_process", "no_test_leaves_a_process"]


@pytest.fixture(autouse=True)
def _quick_workers(no_test_leaves_a_process: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites within the test's process fork their workers; real sites start them afresh.

    It is made after the look at processes, so that whatever a test of its own started is ended by
    the time of that look.
    """
    forked.use(monkeypatch)
