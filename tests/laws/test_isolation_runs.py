"""Whole runs with isolated answers: the same results, refusals, and no silent fallback."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from protocols.errors import Refused
from protocols.evidence.ledger import read_lines
from protocols.policy.policy import PrivacyPolicy
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.isolation import kernel, sandbox
from secure_fgl.isolation.kernel import CannotIsolate
from secure_fgl.isolation.sandbox import AnswerFailed
from secure_fgl.transports.memory import MemoryTransport
from tests import forked
from tests.laws.killing import die, play
from tests.laws.runs import config
from tests.laws.sandboxes import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are of Linux")


# --- whole runs -------------------------------------------------------------------------------


def isolated(name: str, policy: str = "masks") -> Config:
    return config(name, policy).model_copy(update={"isolate": True})


SAME = [
    pytest.param("fed_avg", "masks", marks=pytest.mark.long),
    # protected, it repeats to a step of its grid only
    pytest.param("fed_pub", "unsafe_plaintext", marks=pytest.mark.long),
    ("fed_ego", "strict"),
    pytest.param("fed_per_gnn", "masks", marks=pytest.mark.long),
]


@pytest.mark.parametrize(("name", "policy"), SAME)
def test_isolation_moves_no_result(
    name: str, policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if name != "fed_avg":  # whose worker is started afresh
        forked.use(monkeypatch)
    alone = Federation(config=isolated(name, policy)).run(tmp_path / "isolated")
    plain = Federation(config=config(name, policy)).run(tmp_path / "plain")
    for key in ("model_sha256", "metrics", "form", "bytes_up", "lost_rounds"):
        assert alone.result[key] == plain.result[key], key
    assert alone.result["answers"] == "isolated"
    assert plain.result["answers"] == "in the clients' own process"
    assert alone.verify().verdict == "self-consistent only"


def test_a_killed_run_goes_on_isolated(tmp_path: Path) -> None:
    def quick() -> None:
        sandbox.spawn = forked.ForkedWorker  # type: ignore[assignment]

    whole = play(config("fed_avg", "masks"), tmp_path / "whole")
    assert whole.result is not None
    out = tmp_path / "run"
    assert play(isolated("fed_avg"), out, at=30, after=True, sabotage=quick).killed
    ended = play(isolated("fed_avg"), out, resume=True, sabotage=quick)
    assert ended.result is not None, ended.error
    for key in ("model_sha256", "metrics"):
        assert ended.result[key] == whole.result[key]


def test_a_worker_lost_in_a_run_is_a_refusal_of_its_client(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers: list[forked.ForkedWorker] = []

    def spawn(channel: socket.socket) -> forked.ForkedWorker:
        workers.append(forked.ForkedWorker(channel))
        return workers[-1]

    monkeypatch.setattr(sandbox, "spawn", spawn)

    class Deadly(MemoryTransport):
        carried = 0

        def exchange(self, deliveries: Any) -> Any:
            Deadly.carried += 1
            if Deadly.carried == 8:
                workers[0].kill()
                workers[0].wait()
            return super().exchange(deliveries)

    with pytest.raises(Refused) as caught:
        Federation(config=isolated("fed_avg")).run(tmp_path / "run", connect=Deadly)
    assert isinstance(caught.value.__cause__, AnswerFailed)
    ledger = (tmp_path / "run" / "ledger" / "client-1.jsonl").read_bytes()
    refusals = [entry for entry, _ in read_lines(ledger) if entry["kind"] == "refusal"]
    assert [(entry["code"], entry["reason"]) for entry in refusals] == [
        ("internal", "AnswerFailed")
    ]


@pytest.mark.long
def test_private_training_goes_on_in_a_sandbox(
    data_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noise and batches are drawn there; the steps taken are counted on both sides.

    The worker is a fresh one, and finds data whose folder is relative to where it was started.
    """
    monkeypatch.chdir(data_root.parent)
    policy = PrivacyPolicy.load(str(ROOT / "examples" / "molecules_dp_policy.yaml"))
    training = policy.model_dump(mode="json")["training"]
    document = {**policy.document(), "training": {**training, "rate": 0.2, "batch": 6, "steps": 2}}
    chosen = Config.parse(
        {
            "algorithm": {"name": "fed_avg", "rounds": 2},
            "model": {"name": "gcn_readout", "hidden": 8},
            "data": {
                "name": "mutag",
                "root": data_root.name,
                "split": [0.6, 0.2, 0.2],
                "partition": {
                    "name": "dirichlet_count",
                    "clients": 5,
                    "options": {"beta": 50.0},
                },
            },
            "budget": {"store": str(tmp_path / "budgets")},
            "isolate": True,
        }
    )
    own = PrivacyPolicy.model_validate_json(json.dumps(document))
    run = Federation(config=chosen, policy=own).run(tmp_path / "run")
    ledger = (tmp_path / "run" / "ledger" / "client-1.jsonl").read_bytes()
    steps = [entry["steps"] for entry, _ in read_lines(ledger) if entry["kind"] == "training"]
    assert steps == [2, 2]
    assert run.verify().verdict == "self-consistent only"


# --- where it cannot be had -------------------------------------------------------------------


def _no_landlock(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(kernel, "call", fails)


def _another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel.platform, "machine", lambda: "riscv64")


def _another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel.sys, "platform", "darwin")


@pytest.mark.parametrize("without", [_no_landlock, _another_machine, _another_system])
def test_a_kernel_that_cannot_do_it_is_an_error_and_nothing_starts(
    without: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch)
    monkeypatch.setattr(sandbox, "spawn", lambda channel: die())
    with pytest.raises(CannotIsolate) as caught:
        Federation(config=isolated("fed_avg")).run(tmp_path / "run")
    assert caught.value.what and caught.value.why and caught.value.fix
    assert not (tmp_path / "run" / "ledger").exists()


def test_a_data_set_in_memory_is_refused(tmp_path: Path) -> None:
    from secure_fgl import load_dataset

    graph = load_dataset("synthetic_banks")
    with pytest.raises(sandbox.UsageError, match="handed over in memory"):
        Federation(graph, config=isolated("fed_avg")).run(tmp_path / "run")
