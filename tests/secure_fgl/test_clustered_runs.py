"""Whole runs whose clients fall into clusters: scores, models and digests of all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from audits.report.build import build_report
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.checking import subject
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run

EAGER = {"epsilon1": 1e3, "epsilon2": 1e-6, "first_split": 0}


def played(out: Path, policy: str, rounds: int = 2, **options: Any) -> Run:
    document = subject.document("gcfl", policy, rounds=rounds)
    document["algorithm"]["options"] = {"gcfl": {**EAGER, **options}}
    document["data"] = {**subject.BANKS, "partition": {"name": "iid_nodes", "clients": 8}}
    # In clear three are a cohort; as under masks four are to be one.
    same = PrivacyPolicy.preset(policy).changed(minimum_cohort=3)
    return Federation(config=Config.parse(document), policy=same).run(out)


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return played(tmp_path_factory.mktemp("split") / "run", "unsafe_plaintext")


def test_a_run_ends_with_the_models_of_all_clusters(split: Run) -> None:
    with np.load(split.path / "checkpoints/final.npz") as found:
        models = {name: found[name] for name in found.files}
    assert sorted(models) == ["cluster_1_weights", "cluster_2_weights"]
    one, other = models.values()
    assert one.shape == other.shape
    assert one.tobytes() != other.tobytes()
    assert split.result["model_sha256"]
    assert split.result["verdict"] == "self-consistent only"


def test_scores_of_all_clusters_are_added_up(split: Run, tmp_path: Path) -> None:
    whole = played(tmp_path / "run", "unsafe_plaintext", epsilon2=None)
    assert whole.result["model_sha256"] != split.result["model_sha256"]
    lines = [(run.path / "metrics.jsonl").read_text("utf-8").splitlines() for run in (split, whole)]
    # Scores of the models after rounds 0, 1 and 2. The split follows round 1's sum, so only the
    # last score, for which every cluster is asked with a model of its own, is another.
    assert [len(found) for found in lines] == [3, 3]
    assert lines[0][:2] == lines[1][:2]
    assert lines[0][2] != lines[1][2]


def test_protected_clusters_and_models_are_those_in_clear(split: Run, tmp_path: Path) -> None:
    masked = played(tmp_path / "run", "masks")
    assert masked.result["model_sha256"] == split.result["model_sha256"]
    assert masked.result["metrics"] == split.result["metrics"]


def test_a_split_in_the_last_round_is_told_to_nobody(tmp_path: Path) -> None:
    run = played(tmp_path / "run", "unsafe_plaintext", rounds=1)
    found = build_report(run.view()).clusters
    assert found is not None and not found.signed
    assert [(row.round, row.sizes) for row in found.rows] == [(1, (8,))]


def test_a_split_in_the_last_round_does_not_end_a_protected_run(tmp_path: Path) -> None:
    """The closing Ask belongs to that round, and clients serve one cohort a round."""
    run = played(tmp_path / "run", "masks", rounds=1)
    assert run.verify().failed is None
    with np.load(run.path / "checkpoints/final.npz") as found:
        assert sorted(found.files) == ["cluster_1_weights", "cluster_2_weights"]
        assert len({found[name].tobytes() for name in found.files}) == 1
