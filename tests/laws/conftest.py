"""Runs that many laws look at are made once per session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.laws.runs import Recording, config, record

Recorded = Callable[..., Recording]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """``recorded(name, policy, again=0, **more)`` returns the recording, making it if needed.

    `more` goes to :func:`config`.
    """
    made: dict[Any, Recording] = {}

    def get(name: str, policy: str, again: int = 0, **more: Any) -> Recording:
        key = (name, policy, again, *sorted(more.items()))
        if key not in made:
            path = tmp_path_factory.mktemp("law") / "run"
            made[key] = record(config(name, policy, **more), path)
        return made[key]

    return get
