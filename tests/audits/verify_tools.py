"""What the tests of verify share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from audits.evidence.run_files import RunView
from audits.evidence.steps import Status, Verification
from audits.evidence.verify import verify
from protocols.errors import RemoteProtocolError
from protocols.evidence.ledger import Entry
from protocols.policy.policy import PrivacyPolicy
from tests.audits.forging import entries_of
from tests.audits.toy_run import CLIENTS, Bus, Toy, run_toy

CLIENT = CLIENTS[1]


@pytest.fixture(scope="module")
def toy() -> Toy:
    return run_toy()


@pytest.fixture(scope="module")
def other() -> Toy:
    return run_toy(rounds=1)


@pytest.fixture
def view(toy: Toy) -> RunView:
    return toy.view()


def step(found: Verification, name: str) -> Status:
    return next(s.status for s in found.steps if s.name == name)


def fails_at(name: str, view: RunView) -> None:
    found = verify(view)
    assert found.failed is not None, "nothing failed"
    assert found.failed.name == name, found.failed
    assert not found.ok
    assert found.verdict == f"FAILED at {name}"


def with_ledger(view: RunView, party: str, data: bytes) -> RunView:
    return replace(view, ledgers={**view.ledgers, party: data})


def lines(view: RunView, party: str) -> list[bytes]:
    return view.ledgers[party].splitlines(keepends=True)


def _entries(view: RunView, party: str) -> list[Entry]:
    return entries_of(view.ledgers[party])


def without(kind: str, **facts: object) -> Callable[[list[Entry]], list[Entry]]:
    """Drop the last entry of a kind with these facts."""

    def change(entries: list[Entry]) -> list[Entry]:
        place = max(
            n
            for n, e in enumerate(entries)
            if e["kind"] == kind and all(e[k] == v for k, v in facts.items())
        )
        return [*entries[:place], *entries[place + 1 :]]

    return change


def refused(policy: str = "he") -> Toy:
    """A run in which the third client's update holds NaN: it refuses, and the run ends."""
    bus = Bus(
        PrivacyPolicy.preset(policy),
        2,
        CLIENTS,
        lambda name: float("nan") if name == CLIENTS[2] else 0.25,
        synthetic=True,
    )
    with pytest.raises(RemoteProtocolError):
        bus.play(2)
    return bus.finish(whole=False)
