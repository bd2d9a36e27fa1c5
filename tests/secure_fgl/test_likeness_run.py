"""A13 on real runs: the very cosines that were opened, beside the exact ones."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from audits.attacks import Compared
from protocols.errors import EvidenceError
from secure_fgl.attack_inputs import comparisons
from secure_fgl.attack_inputs.materials import material
from secure_fgl.checking import subject
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.store.finished_run import Run
from tests.secure_fgl.cli_tools import invoke

CLIENTS, ROUNDS, LEVEL = 4, 2, 2.0**-14


def played(folder: Path, name: str, policy: str, clients: int) -> Run:
    document = subject.document(name, policy, rounds=ROUNDS)
    document["data"] = {**subject.BANKS, "partition": {"name": "iid_nodes", "clients": clients}}
    document["evaluation"] = {"references": []}
    if name == "gcfl":  # cuts whenever it may
        eager = {"epsilon1": 1e3, "epsilon2": 1e-6, "first_split": 0}
        document["algorithm"]["options"] = {"gcfl": eager}
    return Federation.from_config(Config.parse(document)).run(folder / "run")


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return played(tmp_path_factory.mktemp("pub"), "fed_pub", "pilot", CLIENTS)


def found(run: Run) -> Compared:
    compared = material(run).compared
    assert compared is not None
    return compared


def test_cosines_are_those_that_were_opened_to_a_step_of_their_grid(mixed: Run) -> None:
    given = found(mixed)
    assert given.payload == "P15" and len(given.clients) == CLIENTS
    assert [one.round for one in given.matrices] == [1, 2]
    for one in given.matrices:
        assert one.seen.shape == one.raw.shape == (CLIENTS, CLIENTS)
        assert 0.0 < np.abs(one.seen - one.raw).max() < 3 * LEVEL
        np.testing.assert_array_equal(one.seen, np.round(one.seen / LEVEL) * LEVEL)
        np.testing.assert_allclose(one.vectors @ one.vectors.T, one.raw, atol=1e-9)
    assert given.alike is not None and given.alike.shape == (CLIENTS, CLIENTS)
    np.testing.assert_allclose(np.diag(given.alike), 1.0)


def test_the_command_looks_at_cosines_and_lists_them_no_longer(mixed: Run) -> None:
    shown = invoke("audit", "attack", mixed.path, "--attacks", "likeness", "--format", "json")
    assert shown.exit_code == 0, shown.stderr
    report = json.loads(shown.stdout)
    rows = [row for row in report["rows"] if row["id"] == "A13"]
    assert [row["payload"] for row in rows] == ["P15", "P15", "P15"]
    assert {row["n_clients"] for row in rows} == {CLIENTS}
    # Four clients decide nothing, however lucky their draw is.
    assert {row["verdict"] for row in rows} <= {"INCONCLUSIVE", "FAIL", "INVALID"}
    untested = {gap["payload"] for gap in report["not_tested"]}
    assert "P21" in untested and "P15" not in untested


def test_cosines_of_other_vectors_are_refused(mixed: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    real = comparisons.answered

    def other(site, answer, exchange, kind):  # type: ignore[no-untyped-def]
        said = real(site, answer, exchange, kind)
        return kind(embedding=said.embedding + np.arange(said.embedding.size) * site.count)

    monkeypatch.setattr(comparisons, "answered", other)
    with pytest.raises(EvidenceError, match="cosines of Portrait, computed again, are not"):
        material(mixed)


def test_cosines_that_were_taken_away_are_missed(mixed: Run, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(mixed.path, tmp_path / "run"))
    (piece,) = [f for f in (folder / "captured" / "aggregator").iterdir() if "-2-" in f.name][:1]
    piece.unlink()
    with pytest.raises(EvidenceError, match="aggregator lacks"):
        material(Run(folder))


def test_in_clear_the_cosines_of_clusters_are_read_from_the_vectors(tmp_path: Path) -> None:
    given = found(played(tmp_path, "gcfl", "unsafe_plaintext", 8))
    assert given.payload == "P14"
    sizes = [len(one.places) for one in given.matrices]
    assert sizes[0] == 8 and max(sizes[1:], default=0) < 8
    for one in given.matrices:
        np.testing.assert_allclose(one.seen, one.raw, atol=1e-6)
