"""`benchmarks/_one_process.py`: what it computes in one process is what a run comes to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks import fed_pub
from benchmarks._one_process import in_one_process
from benchmarks.personalised import nested
from secure_fgl.checking import subject
from secure_fgl.config import Config
from secure_fgl.federation import Federation

NODES = 0.011  # a node or two of the test nodes: a run's totals are of whole numbers
EAGER = {"epsilon1": 1e3, "epsilon2": 1e-6, "first_split": 0}


def document(name: str, **options: Any) -> dict[str, Any]:
    found = subject.document(name, "unsafe_plaintext", rounds=3)
    found["data"] = {**subject.BANKS, "partition": {"name": "iid_nodes", "clients": 8}}
    found["algorithm"]["options"] = {name: options}
    found["evaluation"] = {**found.get("evaluation", {}), "at": "trained"}
    return found


@pytest.mark.parametrize(
    ("name", "options"), [("fed_avg", {}), ("gcfl", EAGER), ("fed_pub", {"tau": 3.0})]
)
def test_in_one_process_comes_out_what_a_run_gives(
    name: str, options: dict[str, Any], tmp_path: Path
) -> None:
    config = Config.parse(document(name, **options))
    run = Federation.from_config(config).run(tmp_path / "run")
    found = in_one_process(config, least=4)
    for metric in ("test_accuracy", "val_accuracy"):
        assert found["metrics"][metric] == pytest.approx(run.result["metrics"][metric], abs=NODES)
    assert found["metrics"]["best_round"] == run.result["metrics"]["best_round"]
    assert found["sizes"][-1][1] == ([4, 4] if name == "gcfl" else [8])


def test_gcfl_that_is_never_cut_is_fed_per() -> None:
    cut = in_one_process(Config.parse(document("gcfl", **{**EAGER, "first_split": 9})))
    per = in_one_process(Config.parse(document("fed_per")))
    assert cut["compared"] == 0
    assert cut["metrics"] == per["metrics"]


def test_other_scores_are_refused() -> None:
    asked = document("fed_avg")
    asked["evaluation"]["at"] = "downloaded"
    with pytest.raises(ValueError, match="after training"):
        in_one_process(Config.parse(asked))


def test_bounds_of_gcfl_are_the_same_share_of_the_first_step() -> None:
    bounds = fed_pub.gcfl_bounds("cora", "PROTEINS")
    first = 0.01 * 200_064**0.5  # of the shared layers on Cora
    assert bounds["epsilon1"] / first == pytest.approx(0.03 / (1e-3 * 24_960**0.5), rel=1e-3)
    assert bounds["epsilon2"] == pytest.approx(2 * bounds["epsilon1"], rel=1e-3)


def test_every_row_of_the_baselines_is_a_configuration() -> None:
    for table in (
        "gcfl",
        "baselines",
        "baselines_citeseer",
        "baselines_computers",
        "baselines_more",
    ):
        for label, settings in fed_pub.rows(table).items():
            chosen = {key: value for key, value in settings.items() if key != "least"}
            facts = {"table": table, "row": label, "seed": 1, "policy": "unsafe_plaintext"}
            Config.parse(nested(facts, chosen, "data"))
