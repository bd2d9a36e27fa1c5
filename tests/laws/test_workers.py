"""Law: a run is the same with any number of workers, and goes on after any of them died."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from protocols.evidence.ledger import read_lines
from scripts.compare_ledgers import RESULT, differences
from secure_fgl.config import Config
from secure_fgl.errors import UsageError
from secure_fgl.federation import Federation
from secure_fgl.run.workers import Workers
from secure_fgl.store.finished_run import Run
from tests.kept import kept
from tests.laws.killing import die, play
from tests.laws.runs import config, steady

CASES = [
    pytest.param("fed_avg", "unsafe_plaintext", {}, marks=pytest.mark.long),
    pytest.param("fed_avg", "masks", {}, marks=pytest.mark.long),
    ("fed_avg", "he", {}),
    ("fed_ego", "masks", {}),
    ("fed_per_gnn", "masks", {}),
    ("fed_pub", "masks", {}),
    pytest.param("local", "masks", {}, marks=pytest.mark.long),
    ("fed_avg", "masks", {"drop": "2@1:after_upload,1@2"}),
]


@pytest.fixture(autouse=True)
def _keys_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))


def with_workers(
    name: str, policy: str, workers: int, *, isolate: bool = False, **more: Any
) -> Config:
    document = config(name, policy, **more).model_dump(mode="json")
    return Config.parse({**document, "isolate": isolate, "transport": {"workers": workers}})


def ran(chosen: Config, out: Path) -> Run:
    own = steady(chosen.algorithm.name, chosen.policy)  # what mixes does not repeat itself
    with kept():
        return Federation(config=chosen, policy=own).run(out)


@pytest.mark.parametrize(("name", "policy", "more"), CASES, ids=lambda v: str(v) if v else "")
def test_two_workers_do_what_one_process_does(
    name: str, policy: str, more: dict[str, Any], tmp_path: Path
) -> None:
    forked: list[int] = []
    fork = Workers._fork

    def counted(self: Workers, clients: Any) -> Any:
        worker = fork(self, clients)
        forked.append(worker.process.pid)
        return worker

    for count in (1, 2):
        with patch.object(Workers, "_fork", counted):
            run = ran(with_workers(name, policy, count, **more), tmp_path / str(count))
        assert run.verify().verdict == "self-consistent only"
        assert len(forked) == (0 if count == 1 else 2)
    assert list(differences(tmp_path / "1", tmp_path / "2")) == []
    texts = [(tmp_path / str(n) / "config.yaml").read_bytes() for n in (1, 2)]
    assert texts[0] == texts[1]
    for process in forked:  # none is left behind
        with pytest.raises(ProcessLookupError):
            os.kill(process, 0)


def test_workers_play_what_does_not_repeat(tmp_path: Path) -> None:
    with kept():  # who is mixed with whom is drawn anew
        run = Federation.from_config(with_workers("fed_ego", "shuffled", 2)).run(tmp_path / "run")
    assert run.verify().verdict == "self-consistent only"


def test_the_comparison_sees_another_seed_and_an_envelope_exchanged(tmp_path: Path) -> None:
    ran(with_workers("fed_avg", "masks", 1), tmp_path / "a")
    ran(with_workers("fed_avg", "masks", 1, seed=9), tmp_path / "b")
    found = list(differences(tmp_path / "a", tmp_path / "b"))
    assert any("model_sha256" in line for line in found)
    ran(with_workers("fed_avg", "masks", 1), tmp_path / "c")
    assert list(differences(tmp_path / "a", tmp_path / "c")) == []

    def swapped(data: bytes) -> list[tuple[dict[str, Any], bytes]]:
        entries = list(read_lines(data))
        told = [entry for entry, _ in entries if entry["kind"] == "receipt"]
        one, other = told[-1], told[-2]
        one["commitment"], other["commitment"] = other["commitment"], one["commitment"]
        return entries

    with patch("scripts.compare_ledgers.read_lines", side_effect=swapped_once(swapped)):
        assert list(differences(tmp_path / "a", tmp_path / "c"))


def swapped_once(swapped: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """Return a reader that exchanges two envelopes in the first ledger it reads."""
    seen: list[bytes] = []

    def read(data: bytes) -> Any:
        seen.append(data)
        return swapped(data) if len(seen) == 1 else read_lines(data)

    return read


def at_exchange(number: int, act: Callable[[Workers], None]) -> Callable[[], None]:
    """Return what lets something happen in the run's `number`-th exchange, while workers work."""

    def sabotage() -> None:
        receive, seen = Workers._receive, [0]

        def received(self: Workers, worker: Any) -> Any:
            seen[0] += 1
            if seen[0] == number:
                act(self)
            return receive(self, worker)

        Workers._receive = received  # type: ignore[method-assign]  # in a child of its own

    return sabotage


def _the_parent(_: Workers) -> None:
    die()


def _a_worker(workers: Workers) -> None:
    os.kill(workers.processes()[0], signal.SIGKILL)


@pytest.mark.parametrize("policy", ["masks", pytest.param("he", marks=pytest.mark.long)])
@pytest.mark.parametrize("victim", [_the_parent, _a_worker])
def test_a_run_goes_on_with_another_number_of_workers(
    policy: str, victim: Callable[[Workers], None], tmp_path: Path
) -> None:
    expected = play(config("fed_avg", policy), tmp_path / "reference")
    assert expected.result is not None, expected.error
    for at, then in ((7, 1), (12, 3)):
        out = tmp_path / f"run-{at}"
        chosen = with_workers("fed_avg", policy, 2)
        first = play(chosen, out, sabotage=at_exchange(at, victim), connect=None)
        if victim is _the_parent:
            assert first.killed, first.error
        else:
            assert first.error.startswith("WorkerDied"), first.error
            assert "--resume" in first.error or "ended before" in first.error
        assert (out / "private").is_dir()
        assert not (out / "heads").exists()  # nothing was closed
        _free(out)
        again = play(with_workers("fed_avg", policy, then), out, resume=True, connect=None)
        assert again.result is not None, again.error
        same = set(RESULT) - {"bytes_up", "bytes_down", "exchanges"}  # to within one exchange
        assert {k: again.result[k] for k in same} == {k: expected.result[k] for k in same}
        assert Run(out).verify().verdict == "self-consistent only"
        assert not (out / "private").exists()


def _free(out: Path) -> None:
    """Wait until the killed run's lock is free: its workers end with it, a moment later."""
    import fcntl

    run = json.loads((out / "roster.json").read_bytes())["run"]
    with (Path(os.environ["SECURE_FGL_STATE"]) / run / "lock").open() as lock:
        for _ in range(200):
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(0.05)
    raise AssertionError("a worker outlived the process that it belongs to")


@pytest.mark.parametrize(
    "more", [{"isolate": True}, {}], ids=["isolated", "with a transport of the caller's"]
)
def test_several_workers_are_refused_where_they_cannot_be(
    more: dict[str, Any], tmp_path: Path
) -> None:
    from secure_fgl.transports.memory import MemoryTransport

    federation = Federation.from_config(with_workers("fed_avg", "masks", 2, **more))
    with pytest.raises(UsageError, match="cannot be played in 2 processes"):
        federation.run(tmp_path / "run", connect=None if more else MemoryTransport)
