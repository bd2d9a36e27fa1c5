"""Law: killed while totals for one client each are under way, a run goes on to the same end."""

from __future__ import annotations

from pathlib import Path

import pytest

from secure_fgl.checking import subject
from secure_fgl.config import Config
from secure_fgl.store.finished_run import Run
from tests.laws.killing import play

pytestmark = pytest.mark.long  # a run, and one that is killed, for each place


@pytest.fixture(autouse=True)
def _keys_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))


def _config(policy: str, path: Path) -> Config:
    document = subject.document("fed_sage_plus", policy, rounds=1, store=path / "budgets")
    options = {"alpha": 1.0, "joint": 2, "codes": 8, "steps": 5}
    document["algorithm"]["options"] = {"fed_sage_plus": options}
    return Config.parse(document)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7])
def test_totals_for_one_client_survive_a_kill(tmp_path: Path, share: float) -> None:
    """Under masks noise is drawn anew, so what ends alike is a run in clear."""
    chosen = _config("unsafe_plaintext", tmp_path)
    whole = play(chosen, tmp_path / "whole")
    assert whole.result is not None, whole.error
    out = tmp_path / "run"
    assert play(chosen, out, at=int(whole.messages * share)).killed
    ended = play(chosen, out, resume=True)
    assert ended.result is not None, ended.error
    assert ended.result["model_sha256"] == whole.result["model_sha256"]
    assert Run(out).verify().verdict == "self-consistent only"


@pytest.mark.parametrize("share", [0.5, 0.7])
def test_under_masks_and_noise_a_killed_run_is_whole(tmp_path: Path, share: float) -> None:
    chosen, out = _config("calibrated", tmp_path), tmp_path / "run"
    messages = play(_config("calibrated", tmp_path / "other"), tmp_path / "whole").messages
    assert play(chosen, out, at=int(messages * share), after=True).killed
    ended = play(chosen, out, resume=True)
    assert ended.result is not None, ended.error
    assert ended.result["lost_rounds"] == []
    assert Run(out).verify().verdict == "self-consistent only"
