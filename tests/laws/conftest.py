"""Runs that many laws look at are made once per session."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from protocols.guards import PROTECTING
from secure_fgl.catalogue import algorithm_names
from secure_fgl.federation import Federation
from tests.laws.runs import Recording, config, record

Recorded = Callable[..., Recording]
HERE = Path(__file__).parent
REFUSALS = {
    "test_refused_before_data_folder_or_ledger_exist",
    "test_a_message_type_that_is_not_listed_is_refused",
}
"""Laws that hold for what no protected policy admits, too."""


@cache
def unguarded(name: str) -> tuple[str, ...]:
    """Return which disclosures, in every form of an algorithm, only an Unsafe guard carries."""
    _, algorithm = Federation.from_config(config(name)).build()
    needed = [{d for kind in f.messages() for d in f.disclosures(kind)} for f in algorithm.forms]
    bare = {d for d, guards in PROTECTING.items() if guards == {"unsafe_clear"}}
    missing = [found & bare for found in needed]
    return tuple(sorted(set.union(*missing))) if all(missing) else ()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Where no guard protects a disclosure yet, its algorithms are held to the laws in clear."""
    for item in items:
        given = getattr(item, "callspec", None)
        name = given and given.params.get("name")
        if not name or HERE not in item.path.parents or item.function.__name__ in REFUSALS:  # type: ignore[attr-defined]
            continue
        if name not in algorithm_names() or given.params.get("policy") == "unsafe_plaintext":
            continue
        if missing := unguarded(name):
            why = f"no guard protects {' and '.join(missing)} yet"
            item.add_marker(pytest.mark.skip(reason=why))


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
