"""Inputs that once hung, were believed or failed too late, and what they meet now."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from algorithms.tasks.scores import SCORING, Accuracy, Score
from protocols.errors import LedgerError, RemoteProtocolError
from secure_fgl import Federation
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.run import reference
from secure_fgl.store.finished_run import Run
from secure_fgl.store.run_folder import FileStore
from tests.kept import kept

SMALL: dict[str, Any] = {
    "algorithm": {"rounds": 1},
    "model": {"hidden": 4},
    "data": {
        "options": {"customers": 40, "transactions": 60},
        "partition": {"name": "by_owner", "clients": 5},
    },
}


def small(**changes: Any) -> Federation:
    return Federation.from_config(Config.parse({**SMALL, **changes}))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: &x [1]\nb: *x\n", "not YAML"),
        ("a: &x {b: *x}\n", "not YAML"),
        ("# " + "x" * (1 << 20) + "\n", "not YAML"),
        ("data: {root: '${HOME}'}\n", "only variables SECURE_FGL_"),
    ],
)
def test_a_configuration_that_grows_loops_or_reads_the_environment(
    tmp_path: Path, text: str, says: str
) -> None:
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(UsageError, match=says):
        Config.load(tmp_path / "c.yaml")


def test_no_clients_is_an_error_and_not_five() -> None:
    with pytest.raises(UsageError) as refused:
        Federation("synthetic_banks", clients=0)
    assert "data.partition.clients" in refused.value.why


def test_an_unknown_partition_is_refused_by_the_plan() -> None:
    with pytest.raises(UsageError, match="by_ownr"):
        Federation("synthetic_banks", partition="by_ownr").plan()


def test_an_option_called_like_an_argument_is_a_usage_error(tmp_path: Path) -> None:
    shared = {"name": "by_owner", "clients": 5, "options": {"rng": 3}}
    with pytest.raises(UsageError, match="rng"):
        small(data={**SMALL["data"], "partition": shared}).run(tmp_path / "run")
    assert not (tmp_path / "run").exists()


HONEST = {
    "val_correct": 3,
    "val_count": 4,
    "test_correct": 3,
    "test_count": 4,
    "test_share": 7500,
    "test_clients": 1,
}


@pytest.mark.parametrize(
    "lie", [{"val_correct": 5}, {"test_correct": 5}, {"test_clients": 9}, {"test_share": 10_001}]
)
def test_scores_that_no_honest_cohort_has(lie: dict[str, int]) -> None:
    assert SCORING.plausible(Score(**HONEST), 5)
    assert not SCORING.plausible(Score(**{**HONEST, **lie}), 5)


def test_a_run_with_impossible_scores_stops(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(Accuracy, "plausible", lambda self, score, clients: False)
    with pytest.raises(RemoteProtocolError, match="contradict each other"):
        small().run(tmp_path / "run")
    assert not (tmp_path / "run" / "result.json").exists()


def test_a_reference_that_diverges_costs_the_reference_only(
    tmp_path: Path, monkeypatch: Any
) -> None:
    def diverges(*arguments: Any, **options: Any) -> float:
        raise FloatingPointError

    monkeypatch.setattr(reference, "best_metrics", diverges)
    run = small(evaluation={"references": ["local"]}).run(tmp_path / "run")
    assert run.result["references"] == {"local": None}
    assert run.model_sha256 and run.verify().ok


def test_a_reference_that_fails_leaves_a_run_that_holds(tmp_path: Path, monkeypatch: Any) -> None:
    """Its result stands in the ledger without references; a resumed run keeps to it."""

    def fails(*arguments: Any, **options: Any) -> float:
        raise RuntimeError("a fault of ours")

    federation = small(evaluation={"references": ["local"]})
    with kept(), monkeypatch.context() as broken:
        broken.setattr(reference, "best_metrics", fails)
        with pytest.raises(RuntimeError):
            federation.run(tmp_path / "run")
    assert Run(tmp_path / "run").verify().ok
    run = federation.run(tmp_path / "run", resume=True)
    assert run.result["references"] == {} and run.model_sha256 and run.verify().ok


def test_a_run_whose_ledger_cannot_be_closed_states_no_result(
    tmp_path: Path, monkeypatch: Any
) -> None:
    write = FileStore.append

    def full(store: FileStore, lines: bytes) -> None:
        if b'"kind":"close"' in lines and whose in lines:
            raise OSError(28, "No space left on device")
        write(store, lines)

    monkeypatch.setattr(FileStore, "append", full)
    for whose in (b'"result"', b'"kind"'):  # the aggregator's alone, and everybody's
        with pytest.raises(LedgerError):
            small().run(tmp_path / whose.hex())
        assert not (tmp_path / whose.hex() / "result.json").exists()
