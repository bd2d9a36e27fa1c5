"""What no guard protects yet is held in clear to laws that others are held to under guards.

With the guards these cases go: `unguarded` is then empty, and the laws themselves take over.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from secure_fgl.catalogue import algorithm_names
from tests.laws.conftest import Recorded, unguarded
from tests.laws.killing import play
from tests.laws.runs import config, record
from tests.laws.test_equality import learnt, without_client
from tests.laws.test_resume import _killed_at, _same

NAMES = [name for name in algorithm_names() if unguarded(name)]
CLEAR = "unsafe_plaintext"


@pytest.mark.parametrize("algorithm", NAMES)
def test_o5_with_a_client_that_vanished_it_learns_what_its_absence_gives(
    algorithm: str, recorded: Recorded, tmp_path: Path
) -> None:
    with without_client(2, round=2):
        control = record(config(algorithm, CLEAR, rounds=3), tmp_path / "run")
    dropped = recorded(algorithm, CLEAR, rounds=3, drop="2@2")
    assert learnt(dropped) == learnt(control) != learnt(recorded(algorithm, CLEAR, rounds=3))
    assert dropped.result["lost_rounds"] == []


@pytest.mark.parametrize("algorithm", NAMES)
def test_a_seed_fixes_the_metrics_and_another_seed_others(
    algorithm: str, recorded: Recorded
) -> None:
    first, again = recorded(algorithm, CLEAR), recorded(algorithm, CLEAR, again=1)
    assert learnt(first) == learnt(again) != learnt(recorded(algorithm, CLEAR, seed=2))


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("algorithm", NAMES)
def test_o5_killed_anywhere_it_goes_on(
    algorithm: str, after: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))
    expected = play(config(algorithm, CLEAR), tmp_path / "whole")
    step = max(1, expected.messages // 5)
    for at in range(1, expected.messages + 1, step):
        out = tmp_path / f"run-{at}"
        _same(_killed_at(config(algorithm, CLEAR), out, at, after=after), expected, out)


@pytest.mark.parametrize("algorithm", NAMES)
def test_the_totals_of_the_plan_bound_what_a_client_sends(
    algorithm: str, recorded: Recorded
) -> None:
    recording = recorded(algorithm, CLEAR)
    envelopes = recording.envelopes().items()
    sent = sum(len(data) for data, e in envelopes if e.header.sender == "client-1")
    planned = [i for i in recording.plan.items if i.sender == "client" and "refusal" not in i.id]
    assert sent == sum(item.bytes * item.times for item in planned)
