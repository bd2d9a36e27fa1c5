"""How many exchanges a round takes: two under `masks`, three where a key authority opens it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from secure_fgl.config import Config
from secure_fgl.federation import Federation
from tests.laws.runs import config

pytestmark = pytest.mark.usefixtures("kept_state")

MOST = {"masks": 2, "he": 3, "ckks": 3}
SAME = ("model_sha256", "metrics", "lost_rounds", "rounds", "form")


def played(folder: Path, policy: str, rounds: int, **faults: Any) -> dict[str, Any]:
    chosen = config("fed_avg", policy, rounds=rounds)
    if faults:
        chosen = Config.parse({**chosen.model_dump(mode="json"), "faults": faults})
    result: dict[str, Any] = Federation.from_config(chosen).run(folder).result
    return result


@pytest.mark.parametrize("policy", MOST)
def test_a_round_without_drop_outs_takes_so_many_exchanges(policy: str, tmp_path: Path) -> None:
    """Set-up, the last score and the farewell come once in a run and fall out of the difference."""
    first, later = (played(tmp_path / f"{n}", policy, n) for n in (1, 3))
    assert (later["exchanges"] - first["exchanges"]) / 2 == MOST[policy]


def test_a_round_in_which_a_client_vanishes_takes_one_more(tmp_path: Path) -> None:
    whole = played(tmp_path / "whole", "masks", 2)
    lacking = played(tmp_path / "lacking", "masks", 2, drop="2@2")
    assert lacking["exchanges"] - whole["exchanges"] == 1 and not lacking["lost_rounds"]


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_one_answer_leads_to_the_same_model_as_two_steps(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = played(tmp_path / "at_once", policy, 2)
    monkeypatch.setattr("protocols.disclosures.sum.aggregator.one_answer", lambda *_: False)
    two_steps = played(tmp_path / "two_steps", policy, 2)
    assert {name: at_once[name] for name in SAME} == {name: two_steps[name] for name in SAME}
    # Two rounds and the score after the last one.
    assert two_steps["exchanges"] - at_once["exchanges"] == 3
    for key in ("bytes_up", "bytes_down"):
        assert at_once[key] < two_steps[key]
