"""Every kind of process killed, and hung, in a run over real processes (`benchmarks/soak.py`).

What was killed over real processes, what it costs, and where that is held. In one process the same
is tried in every task, by `faulty.Dying`.

- a client's session at any moment, and back: its own round at most; `test_nvflare_sites`, soak
- a client's session before and after its upload: nothing, it says the very same again;
  `test_site_process`, `test_session_ends`
- a client's process of answers: the run, by decision; here
- a client's supervisor: its own round at most; soak
- a client's relay, its engine, its whole site, and back: a job that is handed in again; here, soak
- a client's whole site, for good: that client, from then on; here
- a client that is stopped (`site stop`), also inside an exchange: as much; `test_nvflare_sites`
- a client's session or its relay that hangs and goes on: one deadline at most; here, soak
- a session that hangs for good: two minutes, where it is needed; here, `test_roles_killed`
- authority, witness, relay, tag servers, matcher, each: time; `test_roles_killed`
- the authority's relay, its whole site: a job; soak
- an authority that is away for a whole deadline: a job; `test_authority_away`
- the aggregator's session, its supervisor: time; `test_nvflare_sites`, soak
- the server's relay: a job; `test_nvflare_run`
- the server between rounds, and inside one: a job; here
- `conduct`: nothing, with `--resume`; here, soak
- a full disk at one client: its own round; `test_disk_full`

"soak" is `benchmarks/soak.py` over 200 rounds (docs/results/soak.md). All hold the same: the run
ends, every total that was opened is the sum over its survivors and would not be over one less,
nothing left without an entry, and the whole verifies.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from benchmarks.soak import holds, soak
from tests.sites.left import processes_of

pytestmark = pytest.mark.long

CELLS: dict[str, tuple[list[str], float]] = {
    "clients": (
        [
            "client's relay hangs",
            "client's engine",
            "client's whole site",
            "client's whole site, for good",
        ],
        30.0,
    ),
    "server": (["server between rounds", "server inside a round", "conduct"], 30.0),
    "hang": (["authority's session hangs for good"], 240.0),
}
"""Faults, and the deadline of an exchange."""


@pytest.mark.parametrize("cell", CELLS)
def test_every_fault_ends_in_a_run_that_holds(cell: str, tmp_path: Path) -> None:
    kinds, deadline = CELLS[cell]
    rounds = 6 + 4 * len(kinds)
    found = soak(
        tmp_path / "soak", rounds=rounds, minutes=9.0, kinds=kinds, deadline=deadline, faulty=0.95
    )
    assert holds(found) == [], found
    played: dict[str, Any] = {row["kind"]: row["times"] for row in found["faults"]}
    assert played == dict.fromkeys(kinds, 1)
    assert found["run"]["office"] == 0 and found["run"]["reached"] == rounds
    assert (found["run"]["totals_of_fewer"] > 0) == (cell == "clients")  # some missed a round
    assert processes_of(tmp_path) == []


def test_a_process_of_answers_that_dies_is_a_refusal_and_ends_the_run(tmp_path: Path) -> None:
    """By decision (ADR 0059): else whoever wrote an algorithm could tell a bit of the data."""
    kinds = ["client's process of answers"]
    found = soak(tmp_path / "soak", rounds=40, minutes=5.0, kinds=kinds, faulty=0.95)["run"]
    assert found["refused"] and not found["finished"] and found["office"] == 2
    assert found["wrong_totals"] == found["unrecorded"] == 0 < found["wrong_without_one"]
    assert processes_of(tmp_path) == []
