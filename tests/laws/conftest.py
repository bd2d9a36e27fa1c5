"""Runs that many laws look at are made once per session."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from tests.kept import kept
from tests.laws.runs import Recording, config, record, steady

Recorded = Callable[..., Recording]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let tests of one algorithm's recordings follow each other, whatever their module.

    Each worker makes the recordings that its tests look at: so few algorithms are made by two.
    """
    sharing = [item for item in items if "recorded" in getattr(item, "fixturenames", ())]
    ordered = iter(sorted(sharing, key=_algorithm))
    places = set(sharing)
    items[:] = [next(ordered) if item in places else item for item in items]


def _algorithm(item: pytest.Item) -> str:
    called = getattr(item, "callspec", None)
    return str(called.params.get("name", "fed_avg")) if called is not None else "fed_avg"


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
            # Once each, whatever a state holds; under the pilot's chain all hold most.
            once = policy in ("he", "shuffled") and not (again or more or chosen is not None)
            with kept() if once else nullcontext():
                made[key] = record(config(name, policy, **more), path, policy=chosen)
        return made[key]

    return get
