"""Runs that many laws look at are made once per session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.laws.runs import Recording, config, record, steady

Recorded = Callable[..., Recording]


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """``recorded(name, policy, again=0, **more)`` returns the recording, making it if needed.

    `more` goes to :func:`config`; with ``repeats=True`` the run is one that can be repeated to the
    bit, see :func:`steady`.
    """
    made: dict[Any, Recording] = {}

    def get(
        name: str, policy: str, again: int = 0, *, repeats: bool = False, **more: Any
    ) -> Recording:
        chosen = steady(name, policy) if repeats else None
        key = (name, policy, again, chosen is not None, *sorted(more.items()))
        if key not in made:
            path = tmp_path_factory.mktemp("law") / "run"
            made[key] = record(config(name, policy, **more), path, policy=chosen)
        return made[key]

    return get
