"""Cells of the catalogue of leaks: what `ldp` refuses there runs where its noise is accepted."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks._leakage_cells import ACCEPTED, ROWS, Cell, cells, document
from protocols.errors import NotAdmitted
from secure_fgl.config import Config
from secure_fgl.federation import Federation


def _plan(algorithm: str, policy: str, data: Path) -> object:
    chosen = document(Cell(algorithm, policy, 1), str(data), 3)
    return Federation.from_config(Config.parse(chosen)).plan()


def test_only_algorithms_that_ldp_admits_have_a_cell_with_its_noise_accepted() -> None:
    assert {c.algorithm for c in cells() if c.policy == ACCEPTED} == {"fed_avg", "fed_per_gnn"}


@pytest.mark.parametrize("algorithm", ["fed_avg", "fed_per_gnn"])
def test_ldp_refuses_so_few_clients_and_a_policy_of_ones_own_may_accept_its_noise(
    algorithm: str, data_root: Path
) -> None:
    with pytest.raises(NotAdmitted, match="would err by"):
        _plan(algorithm, "ldp", data_root)
    assert _plan(algorithm, ACCEPTED, data_root)
    assert _plan(algorithm, "calibrated", data_root)


@pytest.mark.parametrize("algorithm", ["fed_pub", "fed_ego", "gcfl", "fed_gcn"])
@pytest.mark.parametrize("policy", ["ldp", "calibrated"])
def test_the_others_say_what_no_noise_of_these_policies_hides(
    algorithm: str, policy: str, data_root: Path
) -> None:
    with pytest.raises(NotAdmitted, match="does not admit"):
        _plan(algorithm, policy, data_root)


@pytest.mark.parametrize("algorithm", ["fed_gcn", "fed_gnn"])
def test_rows_of_neighbours_stand_under_a_policy_of_their_own_which_is_not_pilot(
    algorithm: str, data_root: Path
) -> None:
    assert {c.policy for c in cells() if c.algorithm == algorithm} >= {ROWS, "strict"}
    assert "pilot" not in {c.policy for c in cells() if c.algorithm == algorithm}
    assert _plan(algorithm, ROWS, data_root)
    with pytest.raises(NotAdmitted):
        _plan(algorithm, "pilot", data_root)
