"""Worker processes of a simulation: how many, what an error is on its way, and how they end."""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crypto import oprf
from crypto.errors import InvalidKey
from crypto.homomorphic.he import NAMES, Scheme, scheme
from crypto.hpke import OpeningKey
from crypto.samplers import entropy
from crypto.signing import SigningKey
from protocols.errors import BudgetExceeded, EvidenceError, OtherState, Refused, UnfitMessage
from secure_fgl.checking import subject
from secure_fgl.cli._shared.verb import exit_code
from secure_fgl.config import Config
from secure_fgl.errors import PlanDrift, UsageError
from secure_fgl.federation import Federation
from secure_fgl.reasons import explain
from secure_fgl.run import workers as processes
from secure_fgl.run.workers import again, how_many, portable

ERRORS = [
    UsageError("What.", why="why", fix="fix"),
    EvidenceError("chain", "broken"),
    Refused("client-1", "policy"),
    OtherState("state", 9, (6, 6), "start again"),
    PlanDrift(["a: 1, not 2", "b"]),
    BudgetExceeded("spent", why="w"),
    InvalidKey("no key"),
    FileNotFoundError(2, "No such file or directory", "x.npz"),
    KeyError("name"),
    MemoryError(),
    ZeroDivisionError("division by zero"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda e: type(e).__name__)
def test_an_error_comes_out_of_a_worker_as_it_was(error: Exception) -> None:
    try:
        raise error
    except Exception as caught:
        found: Any = again(*pickle.loads(pickle.dumps(portable(caught))))
        assert (type(found), str(found)) == (type(caught), str(caught))
        assert exit_code(found) == exit_code(caught)
        assert explain(found) == explain(caught)


def test_the_place_of_an_internal_error_is_the_worker_s() -> None:
    try:
        how_many(None, 3)  # type: ignore[arg-type]
    except AttributeError as error:
        found: Any = again(*portable(error))
    assert "in secure_fgl.run.workers, line" in explain(found)[0]
    assert "how_many" in "".join(found.__notes__)


def test_an_error_that_cannot_be_sent_is_an_internal_error() -> None:
    class Strange(Exception):
        """An error of a class that only the worker knows."""

    for error, name in ((Strange("x"), "Strange"), (ValueError(lambda: 0), "ValueError")):
        sent = pickle.loads(pickle.dumps(portable(error)))
        found: Any = again(*sent)
        assert (type(found).__name__, str(found)) == (name, str(error))
        assert exit_code(found) == 1


def chosen(workers: int | None, **more: Any) -> Config:
    settings = {"transport": {"workers": workers}, **more}
    return Config.parse({**subject.document("fed_avg", "masks"), **settings})


def test_the_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "usable", lambda: 8)
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    assert [how_many(chosen(None), n) for n in (1, 3, 4, 5, 17, 500)] == [1, 1, 2, 2, 8, 8]
    assert [how_many(chosen(3), n) for n in (1, 2, 5)] == [1, 2, 3]
    assert how_many(chosen(1), 500) == 1
    assert how_many(chosen(None, isolate=True), 500) == 1
    assert how_many(chosen(None), 500, connect=print) == 1
    monkeypatch.setattr(threading, "active_count", lambda: 2)
    assert how_many(chosen(None), 500) == 1
    assert how_many(chosen(2), 500) == 2
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(UsageError, match="needs Linux"):
        how_many(chosen(2), 500)


def test_the_number_is_no_part_of_what_a_run_is() -> None:
    federations = [Federation.from_config(chosen(n)) for n in (1, 4, None)]
    assert len({f.config.text() for f in federations}) == 1
    assert len({f.plan().digest for f in federations}) == 1
    assert federations[1].config.shared().transport.workers is None


def test_a_refusal_in_a_worker_has_its_reason(tmp_path: Path) -> None:
    failed = []
    for workers in (1, 2):
        document = subject.document("fed_avg", "masks", lr=1e3, weight_decay=1e3, optimiser="sgd")
        document["algorithm"]["epochs"] = 20
        config = Config.parse({**document, "transport": {"workers": workers}})
        with pytest.raises(Refused) as caught:
            Federation.from_config(config).run(tmp_path / str(workers))
        assert isinstance(caught.value.__cause__, UnfitMessage)
        failed.append((exit_code(caught.value), explain(caught.value)))
        assert (tmp_path / str(workers) / "heads" / "client-1.checkpoint").exists()
    assert failed[0] == failed[1]


RUN = [sys.executable, "-m", "secure_fgl", "run"]
BANKS = Path(__file__).resolve().parents[2] / "examples" / "banks.yaml"
LONG = [
    *("--set", "algorithm.rounds=4000", "--set", "policy=masks", "--set", "transport.workers=2"),
    *("--set", "data.options={customers: 40, transactions: 60}", "--set", "model.hidden=8"),
]


def _children(process: int) -> list[int]:
    text = Path(f"/proc/{process}/task/{process}/children").read_text("ascii")
    return list(map(int, text.split()))


def _started(out: Path) -> subprocess.Popen[bytes]:
    """Return a long run in a session of its own, once its workers are at work."""
    process = subprocess.Popen(
        [*RUN, str(BANKS), "--out", str(out), *LONG],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    metrics = out / "metrics.jsonl"
    for _ in range(1200):
        if metrics.exists() and metrics.stat().st_size:
            return process
        time.sleep(0.05)
    process.kill()
    raise AssertionError("the run did not begin")


def _gone(processes: list[int]) -> bool:
    for _ in range(200):
        if not any(Path(f"/proc/{one}").exists() for one in processes):
            return True
        time.sleep(0.05)
    return False


def test_ctrl_c_ends_all_in_order_and_a_kill_ends_all_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECURE_FGL_STATE", str(tmp_path / "keys"))
    process = _started(tmp_path / "a")
    workers = _children(process.pid)
    assert len(workers) == 2
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: workers get it too
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130, said.decode()
    assert b"The ledgers were closed" in said
    assert _gone(workers)
    heads = sorted(file.stem for file in (tmp_path / "a" / "heads").iterdir())
    assert heads == ["aggregator", *(f"client-{n}" for n in range(1, 6))]

    process = _started(tmp_path / "b")
    workers = _children(process.pid)
    process.kill()
    process.communicate(timeout=60)
    assert _gone(workers)

    process = _started(tmp_path / "c")
    workers = _children(process.pid)
    os.kill(workers[1], signal.SIGKILL)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 1, said.decode()
    assert b"ended before the run did" in said
    assert b"--resume" in said
    assert _gone(workers)


def _in_two_forks(draw: Callable[[], bytes]) -> list[bytes]:
    """Return what two forks of this very process draw."""
    found = []
    for _ in range(2):
        reader, writer = os.pipe()
        if os.fork() == 0:
            try:
                with os.fdopen(writer, "wb") as pipe:
                    pipe.write(hashlib.sha256(draw()).digest())
            finally:
                os._exit(0)
        os.close(writer)
        with os.fdopen(reader, "rb") as pipe:
            found.append(pipe.read())
        os.wait()
    assert all(len(one) == hashlib.sha256().digest_size for one in found)
    return found


def test_no_two_workers_draw_the_same_secrets() -> None:
    """What a fork continues must not be a generator of secrets (O6, O15)."""
    opening, common = OpeningKey.generate(), np.random.default_rng(1)
    draws: dict[str, Callable[[], bytes]] = {
        "entropy": lambda: entropy(32),
        "a signing key": lambda: SigningKey.generate().public.raw,
        "HPKE": lambda: opening.public.seal(b"", b"the same"),
        "a scalar": lambda: oprf.random_scalars(1)[0],
        "HPKE key": lambda: OpeningKey.generate().public.raw,
    }
    for name in NAMES:
        he = scheme(name)
        public, _ = he.keygen()
        he.zeros(public, 1)  # whatever it keeps is kept before the fork
        draws[name] = functools.partial(he.zeros, public, 1)
        draws[f"{name}, a key"] = functools.partial(_public, he)
    for what, draw in draws.items():
        draw()
        first, second = _in_two_forks(draw)
        assert first != second, what
    first, second = _in_two_forks(lambda: common.bytes(32))
    assert first == second  # the control: a generator in this process is continued alike


def _public(he: Scheme) -> bytes:
    return he.keygen()[0].raw
