"""What a client without memory says, for null controls: of FedGATE's run, and of FedAvg's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from audits.attacks import Exposure
from secure_fgl.attack_inputs.materials import material
from secure_fgl.config import Config
from secure_fgl.federation import Federation

ROUNDS = 2
LR = 0.1
BANKS = {
    "name": "synthetic_banks",
    "options": {"customers": 40, "transactions": 60},
    "partition": {"name": "iid_nodes", "clients": 4},
}
MODEL = {"hidden": 4, "lr": LR, "optimiser": "sgd", "dropout": 0.0, "weight_decay": 0.0}


def _played(folder: Path, algorithm: str) -> Mapping[tuple[int, str], Exposure]:
    document = {
        "algorithm": {"name": algorithm, "rounds": ROUNDS, "epochs": 1},
        "model": MODEL,
        "data": BANKS,
        "evaluation": {"references": []},
        "policy": "masks",
        "transport": {"workers": 1},
    }
    run = Federation.from_config(Config.parse(document)).run(folder / algorithm)
    found = material(run, profile="default").exposures
    return {(one.round, one.client): one for one in found}


def _moved(one: Exposure, values: Mapping[str, np.ndarray]) -> np.ndarray:
    found: np.ndarray = np.asarray(values["delta"]) / values.get("count", np.array(1.0))
    return found


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> Mapping[tuple[int, str], Exposure]:
    return _played(tmp_path_factory.mktemp("gate"), "fed_gate")


def test_a_tracker_says_the_mean_again_and_a_client_without_memory_does_not(
    gate: Mapping[tuple[int, str], Exposure],
) -> None:
    """Once trackers are set, change - afresh = eta delta_i = what all moved by - one's own step."""
    names = sorted({client for _, client in gate})
    assert all(gate[1, name].afresh is None for name in names)  # nothing to remember yet
    start, after = (gate[n, names[0]].known["weights"] for n in (1, ROUNDS))
    for name in names:
        first, second = gate[1, name], gate[ROUNDS, name]
        assert second.afresh is not None
        told = _moved(second, second.raw) - _moved(second, second.afresh)
        assert np.allclose(told, (after - start) - _moved(first, first.raw), atol=2e-6)
        assert np.abs(told).max() > 1e-4


def test_who_remembers_nothing_of_others_says_nothing_else(tmp_path: Path) -> None:
    found = _played(tmp_path, "fed_avg").values()
    assert found and all(one.afresh is None for one in found)
