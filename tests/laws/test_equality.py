"""The same learning under every policy, and again in every repetition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from secure_fgl.catalogue import algorithm_names
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from tests.laws.conftest import Recorded
from tests.laws.runs import POLICIES, Recording

NAMES = algorithm_names()
KEYS = {
    "run_dir", "algorithm", "form", "backend", "rounds", "clients", "metrics", "bytes_up",
    "bytes_down", "exchanges", "wall_s", "protect_s", "peak_mb", "model_sha256", "verdict",
}  # fmt: skip


def learnt(recording: Recording) -> tuple[Any, Any]:
    return recording.result["model_sha256"], recording.result["metrics"]


@pytest.mark.parametrize("name", NAMES)
def test_every_policy_gives_the_same_model_and_metrics(name: str, recorded: Recorded) -> None:
    results = [recorded(name, policy).result for policy in POLICIES]
    assert len({result["model_sha256"] for result in results}) == 1
    assert results[0]["metrics"] == results[1]["metrics"] == results[2]["metrics"]
    assert len({result["backend"] for result in results}) == 2  # they did not take one road


@pytest.mark.parametrize("policy", ["he", "unsafe_plaintext"])
@pytest.mark.parametrize("name", NAMES)
def test_a_seed_fixes_the_model_and_another_seed_another(
    name: str, policy: str, recorded: Recorded
) -> None:
    first, again = recorded(name, policy), recorded(name, policy, again=1)
    other = recorded(name, policy, seed=2)
    assert learnt(first) == learnt(again) != learnt(other)
    if first.result["model_sha256"] is not None:  # None: the aggregator holds no model
        assert first.result["model_sha256"] != other.result["model_sha256"]


@pytest.mark.parametrize("name", NAMES)
def test_o15_two_runs_of_one_seed_share_no_secret(name: str, recorded: Recorded) -> None:
    """Keys, nonces and blinds come from the operating system, never from the seed."""
    first, again = recorded(name, "he"), recorded(name, "he", again=1)
    one, two = first.envelopes(), again.envelopes()
    assert not set(one) & set(two)
    bodies = [{e.body for e in found.values() if e.body} for found in (one, two)]
    assert not bodies[0] & bodies[1]
    nonces = [{e.header.nonce for e in found.values()} for found in (one, two)]
    assert not nonces[0] & nonces[1] and len(nonces[0]) == len(one)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", NAMES)
def test_the_result_has_the_keys_that_were_promised(
    name: str, policy: str, recorded: Recorded
) -> None:
    result = recorded(name, policy).result
    assert set(result) >= KEYS
    assert result["algorithm"] == name and result["rounds"] == 2 and result["clients"] == 5
    assert result["verdict"] == "self-consistent only"
    assert min(result[key] for key in ("bytes_up", "bytes_down", "exchanges")) > 0


def test_real_data_gives_the_same_model_under_encryption(data_root: Path, tmp_path: Path) -> None:
    results = {}
    for policy in ("he", "unsafe_plaintext"):
        example = Path(__file__).resolve().parents[2] / "examples" / "cora.yaml"
        settings = [f"policy={policy}", f"data.root={data_root}", "algorithm.rounds=3"]
        run = Federation.from_config(Config.load(example, settings)).run(tmp_path / policy)
        results[policy] = run.result
        assert set(run.result) >= KEYS
    he, clear = results["he"], results["unsafe_plaintext"]
    assert he["model_sha256"] == clear["model_sha256"] is not None
    assert he["metrics"] == clear["metrics"]
    assert he["metrics"]["test_accuracy"] > 0.3  # the largest class: learning took place
    assert he["data"]["synthetic"] is False
