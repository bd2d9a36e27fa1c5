"""Clients that vanish, as the simulator plays them from the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from protocols.policy import PrivacyPolicy
from secure_fgl import Federation
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.faults import drops
from secure_fgl.runs import Run
from tests.secure_fgl.cli_tools import CONFIG

NAMES = ("client-1", "client-2", "client-3", "client-4", "client-5")


def played(folder: Path, faults: str, policy: str = "masks", **more: Any) -> Run:
    document = {**Config.load(config_file(folder)).model_dump(mode="json"), **more}
    document["policy"], document["faults"] = policy, {"drop": faults}
    document["algorithm"]["rounds"] = 3
    return Federation.from_config(Config.parse(document)).run(folder / f"run{faults}")


def config_file(folder: Path) -> Path:
    path = folder / "tiny.yaml"
    path.write_text(CONFIG)
    return path


def test_a_list_of_drops_is_read() -> None:
    one, other = drops("2@3,4@5:before_shares", NAMES, 5)
    assert (one.client, one.round, one.moment) == ("client-2", 3, "")
    assert (other.client, other.round, other.moment) == ("client-4", 5, "before_shares")
    assert drops("", NAMES, 5) == ()


@pytest.mark.parametrize("text", ["2", "2@", "@3", "0@1", "2@3:later", "2@3;4@5", "a@b"])
def test_what_is_no_list_of_drops_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="configuration is not valid"):
        Config.parse({"faults": {"drop": text}})


def test_a_client_that_does_not_exist_cannot_vanish(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="client 6"):
        played(tmp_path, "6@2")


def test_a_client_cannot_vanish_after_the_last_round(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="round 9"):
        played(tmp_path, "1@9")
    assert not list(tmp_path.glob("run*"))  # refused before anything is made


def test_a_round_below_the_smallest_cohort_is_skipped_and_the_run_goes_on(tmp_path: Path) -> None:
    run = played(tmp_path, "1@2,2@2")
    assert run.result["lost_rounds"] == [2]
    assert run.verify().ok
    assert run.metrics["test_accuracy"] is not None
    whole = played(tmp_path, "")
    assert run.model_sha256 != whole.model_sha256


def test_a_last_round_that_is_lost_takes_the_closing_score_with_it(tmp_path: Path) -> None:
    run = played(tmp_path, "1@3,2@3")
    assert run.result["lost_rounds"] == [3]
    assert run.metrics["best_round"] < 3
    assert run.verify().ok


def test_keys_are_agreed_on_once_an_epoch(tmp_path: Path) -> None:
    document = PrivacyPolicy.preset("masks").document()
    policy = PrivacyPolicy.model_validate({**document, "rekey_rounds": 2})
    document = Config.load(config_file(tmp_path)).model_dump(mode="json")
    document["algorithm"]["rounds"] = 4
    federation = Federation(config=Config.parse(document), policy=policy)
    run = federation.run(tmp_path / "run")
    keys = [
        line
        for file in sorted((run.path / "ledger").glob("client-*.jsonl"))
        for line in file.read_text().splitlines()
        if '"item":"pair.boxes"' in line and '"kind":"release"' in line
    ]
    assert len(keys) == 2 * 5  # each client, once an epoch
    assert run.verify().ok
