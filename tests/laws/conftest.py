"""Runs that many laws look at are made once per session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.laws.runs import Recording, config, record

Recorded = Callable[..., Recording]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """``recorded(name, policy, seed=1, again=0)`` returns the recording, making it if needed."""
    made: dict[Any, Recording] = {}

    def get(name: str, policy: str, seed: int = 1, again: int = 0) -> Recording:
        key = (name, policy, seed, again)
        if key not in made:
            path = tmp_path_factory.mktemp("law") / "run"
            made[key] = record(config(name, policy, seed=seed), path)
        return made[key]

    return get
