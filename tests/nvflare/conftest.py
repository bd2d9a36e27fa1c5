"""What all tests of this transport share."""

from __future__ import annotations

import pytest

from tests import forked


@pytest.fixture(autouse=True)
def _quick_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites within the test's process fork their workers; real sites start them afresh."""
    forked.use(monkeypatch)
