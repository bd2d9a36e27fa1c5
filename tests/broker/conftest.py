"""What all tests of this transport share."""

from __future__ import annotations

import pytest

from tests import forked
from tests.broker.stage import Memory
from tests.sites.left import (
    folder_of_this_run,
    no_module_leaves_a_process,
    no_test_leaves_a_process,
)

__all__ = ["folder_of_this_run", "no_module_leaves_a_process", "no_test_leaves_a_process"]


@pytest.fixture(scope="session")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    """Runs in one process, made once."""
    with pytest.MonkeyPatch.context() as patch:
        forked.use(patch)
        return Memory(tmp_path_factory.mktemp("memory"))
