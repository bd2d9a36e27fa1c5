"""Zeros prepared by a worker: each once, under one key, within bounds, and never needed."""

from __future__ import annotations

import hashlib
import io
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from crypto.errors import InvalidKey, OutOfRange, SecretKeyRefused
from crypto.homomorphic.he import NAMES, scheme
from secure_fgl.run import zeros as module
from secure_fgl.run.zeros import ZeroWorker

NAME = "bfv-sealapi"
HE = scheme(NAME)
PUBLIC, SECRET = HE.keygen()
WIDTH = HE.ciphertext_bytes
HOUSE = Path(__file__).resolve().parents[2]


def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)


def pieces(blob: bytes, width: int = WIDTH) -> list[bytes]:
    return [
        hashlib.sha256(blob[start : start + width]).digest() for start in range(0, len(blob), width)
    ]


def running(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{process_id}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.fixture
def worker() -> Iterator[ZeroWorker]:
    with ZeroWorker(NAME) as made:
        yield made


class Counting:
    """A scheme that counts the zeros computed in this process."""

    def __init__(self, real=HE):
        self._real, self.computed = real, 0

    def __getattr__(self, name):
        return getattr(self._real, name)

    def zeros(self, key, ciphertexts):
        self.computed += ciphertexts
        return self._real.zeros(key, ciphertexts)


@pytest.mark.parametrize("name", NAMES)
def test_prepared_zeros_are_zeros_and_uploads_on_them_open(name):
    he = scheme(name)
    public, secret = he.keygen()
    with ZeroWorker(name) as worker:
        worker._scheme = counting = Counting(he)
        worker.start(public.raw, 3, 2)
        until(lambda: worker.ready >= 6)
        plain = np.arange(3 * he.degree, dtype=np.uint64)
        for _ in range(2):
            upload = he.encrypt(public, plain, worker.take(public, 3))
            assert np.array_equal(he.decrypt(secret, upload), plain)
        assert counting.computed == 0


def test_no_zero_is_handed_out_twice(worker):
    worker.start(PUBLIC.raw, 5, 4)
    until(lambda: worker.ready)
    found: list[bytes] = []

    def grab() -> None:
        for count in (1, 7, 16, 3, 33):
            found.extend(pieces(worker.take(PUBLIC, count)))

    threads = [threading.Thread(target=grab) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == len(set(found)) == 4 * 60


def test_workers_and_this_process_draw_different_randomness():
    with ZeroWorker(NAME) as first, ZeroWorker(NAME) as second:
        for one in (first, second):
            one.start(PUBLIC.raw, 32)
            until(lambda one=one: one.ready >= 32)
        found = [
            *pieces(first.take(PUBLIC, 32)),
            *pieces(second.take(PUBLIC, 32)),
            *pieces(HE.zeros(PUBLIC, 32)),
        ]
    assert len(set(found)) == 96


def test_the_worker_is_a_fresh_interpreter_not_a_fork(worker):
    worker.start(PUBLIC.raw, 1)
    command = Path(f"/proc/{worker.process_id}/cmdline")
    if not command.exists():
        pytest.skip("this system does not show command lines")
    until(lambda: b"secure_fgl.run.zeros" in command.read_bytes())  # replaced by exec
    until(lambda: worker.ready)


def test_a_new_key_drops_everything_of_the_old_one(worker):
    public, secret = HE.keygen()
    worker.start(PUBLIC.raw, 4, 4)
    until(lambda: worker.ready >= 16)
    before, old = worker.process_id, worker._stock
    worker.start(public.raw, 4, 4)
    assert old.size == 0
    assert not running(before)
    until(lambda: worker.ready >= 16)
    assert not HE.decrypt(SECRET, worker.take(PUBLIC, 2)).any()  # computed: nothing of it is left
    assert not HE.decrypt(secret, worker.take(public, 16)).any()


def test_a_worker_that_dies_is_replaced_by_computing(worker):
    worker._scheme = counting = Counting()
    worker.start(PUBLIC.raw, 16, 2)
    until(lambda: worker.ready >= 16)
    os.kill(worker.process_id, signal.SIGKILL)
    until(lambda: worker.process_id is None)
    until(lambda: not any(thread.name == "zeros" for thread in threading.enumerate()))
    left = worker.ready
    found = worker.take(PUBLIC, left + 5)
    assert counting.computed == 5
    assert not HE.decrypt(SECRET, found).any()
    assert len(set(pieces(found + worker.take(PUBLIC, 3)))) == left + 8


def test_without_a_worker_zeros_are_computed(monkeypatch, worker):
    assert not HE.decrypt(SECRET, worker.take(PUBLIC, 2)).any()
    monkeypatch.setattr(sys, "executable", "/no/such/interpreter")
    worker.start(PUBLIC.raw, 2)
    assert worker.process_id is None
    assert not HE.decrypt(SECRET, worker.take(PUBLIC, 2)).any()


class Puppet:
    """A process made of two files."""

    pid = 0

    def __init__(self, output: bytes) -> None:
        self.stdin, self.stdout = Ears(), io.BytesIO(output)

    def poll(self) -> int:
        return 0

    def terminate(self) -> None: ...

    def wait(self, timeout: float = 0) -> int:
        return 0


class Ears(io.BytesIO):
    """Remembers what was written after it is closed."""

    heard = b""

    def close(self) -> None:
        if not self.closed:
            self.heard = self.getvalue()
        super().close()


def test_a_torn_chunk_is_dropped(monkeypatch, worker):
    whole = HE.zeros(PUBLIC, 6)
    monkeypatch.setattr(module, "_spawn", lambda: Puppet(whole[: 5 * WIDTH + 17]))
    worker.start(PUBLIC.raw, 2)  # chunks of two
    until(lambda: not any(thread.name == "zeros" for thread in threading.enumerate()))
    assert worker.ready == 4
    assert pieces(worker.take(PUBLIC, 6))[:4] == pieces(whole)[:4]


def test_o9_the_worker_is_told_nothing_but_the_public_key(monkeypatch, worker):
    puppet = Puppet(b"")
    monkeypatch.setattr(module, "_spawn", lambda: puppet)
    worker.start(PUBLIC.raw, 2)
    until(lambda: puppet.stdin.closed)
    assert puppet.stdin.heard[12:] == NAME.encode() + PUBLIC.raw
    for secret in (SECRET, b"\x5e\xa1" + bytes(100)):
        with pytest.raises(SecretKeyRefused):
            worker.start(secret, 2)
    with pytest.raises(InvalidKey):
        worker.start(scheme("bfv48-sealapi").keygen()[0].raw, 2)


def test_wrong_numbers_and_foreign_keys_are_refused(worker):
    for numbers in ((0, 1), (1, 0), (-1, 1)):
        with pytest.raises(OutOfRange):
            worker.start(PUBLIC.raw, *numbers)
    foreign, _ = scheme("bfv48-sealapi").keygen()
    for ready in (False, True):
        for count in (0, -1):
            with pytest.raises(OutOfRange):
                worker.take(PUBLIC, count)
        with pytest.raises(InvalidKey):
            worker.take(foreign, 1)
        if not ready:
            worker.start(PUBLIC.raw, 4)
            until(lambda: worker.ready)


def test_the_stock_is_bounded(monkeypatch, worker):
    assert module.MEMORY_LIMIT <= 256 * 2**20
    monkeypatch.setattr(module, "MEMORY_LIMIT", 40 * WIDTH)
    worker.start(PUBLIC.raw, 1000, 1000)
    until(lambda: worker.ready >= 32)
    time.sleep(0.3)
    assert worker.ready <= 40
    assert not HE.decrypt(SECRET, worker.take(PUBLIC, 45)).any()
    until(lambda: worker.ready >= 25)
    assert worker.ready <= 40


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_errors_end_the_worker(error):
    with pytest.raises(error), ZeroWorker(NAME) as worker:
        worker.start(PUBLIC.raw, 8)
        until(lambda: worker.ready)
        process_id = worker.process_id
        raise error
    assert not running(process_id)
    assert worker.ready == 0
    worker.close()
    assert not HE.decrypt(SECRET, worker.take(PUBLIC, 1)).any()


def test_a_worker_is_ended_while_it_starts_and_while_it_waits(worker):
    for settle in (0.0, 0.05, 1.0):
        worker.start(PUBLIC.raw, 4)
        time.sleep(settle)
        begun, process_id = time.monotonic(), worker.process_id
        worker.close()
        assert time.monotonic() - begun < 4
        assert not running(process_id)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_gets_none_of_the_prepared_zeros(worker):
    worker.start(PUBLIC.raw, 8)
    until(lambda: worker.ready >= 8)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.write(writer, b"".join(pieces(worker.take(PUBLIC, 4))))
        worker.close()  # must not end the parent's worker
        os._exit(0)
    os.waitpid(child, 0)
    hashes = os.read(reader, 4 * 32)
    os.close(reader)
    os.close(writer)
    theirs = {hashes[start : start + 32] for start in range(0, 128, 32)}
    assert len(theirs) == 4
    assert theirs.isdisjoint(pieces(worker.take(PUBLIC, worker.ready)))
    time.sleep(0.5)  # a signal would have arrived
    assert worker.process_id is not None


def test_a_fork_does_not_end_the_worker_of_its_parent(monkeypatch, worker):
    worker.start(PUBLIC.raw, 8)
    until(lambda: worker.ready)
    process, stock = worker._process, worker._stock
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        worker.close()
    try:
        assert running(process.pid)
        assert stock.size
    finally:
        module._stop(process, stock, os.getpid())
    assert not running(process.pid)


SCRIPT = """
    import sys
    from crypto.homomorphic.he import scheme
    from secure_fgl.run.zeros import ZeroWorker
    print("once")
    public, secret = scheme("bfv-sealapi").keygen()
    worker = ZeroWorker("bfv-sealapi")
    worker.start(public.raw, 8)
    while not worker.ready:
        pass
    print(worker.process_id, flush=True)
"""


def run_script(ending: str) -> subprocess.CompletedProcess[str]:
    source = textwrap.dedent(SCRIPT) + ending
    return subprocess.run(
        [sys.executable, "-X", "dev", "-"], input=source, cwd=HOUSE,
        env={**os.environ, "PYTHONPATH": str(HOUSE)},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip


@pytest.mark.parametrize(
    "ending",
    ["", "sys.exit(3)", "raise RuntimeError", "import os; os._exit(0)",
     "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"],
)  # fmt: skip
def test_an_interpreter_that_forgets_to_close_ends_with_its_worker(ending):
    done = run_script(ending)
    once, process_id = done.stdout.split()
    assert once == "once"  # a script without a guard is not run a second time
    until(lambda: not running(int(process_id)), 20)


def test_the_worker_hears_no_ctrl_c(worker):
    if not hasattr(os, "getsid"):
        pytest.skip("no sessions on this system")
    worker.start(PUBLIC.raw, 1)
    until(lambda: worker.ready)
    assert os.getsid(worker.process_id) != os.getsid(0)
