"""What keeps the memory of NVFlare's processes flat is in every kit, and NVFlare and glibc heed it.

Memory itself is measured by ``benchmarks/bench_engine_memory.py``; nothing of it is asserted here.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("nvflare", reason="the extra nvflare is not installed")

from nvflare.apis.signal import Signal
from nvflare.fuel.f3.comm_config import CommConfigurator
from nvflare.fuel.f3.streaming.blob_streamer import BlobStream
from nvflare.fuel.f3.streaming.byte_receiver import RxTask
from nvflare.fuel.f3.streaming.byte_streamer import STREAM_CHUNK_SIZE, TxTask
from nvflare.fuel.utils.config_service import ConfigService

from secure_fgl.errors import UsageError
from secure_fgl.transports.broker.codes import Code, Heard
from secure_fgl.transports.nvflare import kits
from secure_fgl.transports.nvflare.engine.listener import mutual
from secure_fgl.transports.nvflare.engine.memory import COMMUNICATION, COMMUNICATION_FILE, MEMORY
from secure_fgl.transports.nvflare.pushed.turns import Turns


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> kits.Kits:
    folder = tmp_path_factory.mktemp("made") / "kits"
    return kits.provision(folder, ["site-1"], port=kits.free_port())


@pytest.fixture
def fresh() -> Iterator[None]:
    """NVFlare's settings as they are in a process that has read none yet."""
    kept = {name: getattr(ConfigService, name) for name in ("_config_path", "_var_values")}

    def forget() -> None:
        ConfigService._config_path, ConfigService._var_values = [], {}
        CommConfigurator.reset()

    forget()
    yield
    forget()
    for name, value in kept.items():
        setattr(ConfigService, name, value)


def sending() -> dict[str, float]:
    """Return how NVFlare would send and remember, by its own parts for it."""
    piece = CommConfigurator().get_streaming_chunk_size(STREAM_CHUNK_SIZE)
    stream = BlobStream(b"x", None)
    sent = TxTask(None, piece, "c", "t", "site", {}, stream, False, False, True)
    return {
        "piece": len(sent.buffer),
        "window": sent.window_size,
        "acknowledged": sent.ack_interval,
        "remembered": RxTask(1, "site", None, True).completed_task_ttl,
    }


@pytest.mark.usefixtures("fresh")
def test_nvflare_sends_in_small_pieces_and_forgets_answers_soon(
    made: kits.Kits, tmp_path: Path
) -> None:
    ConfigService._config_path = [str(tmp_path)]  # the control: a folder that says nothing
    assert sending() == {
        "piece": 1 << 20, "window": 64 << 20, "acknowledged": 16 << 20, "remembered": 65.0,
    }  # fmt: skip
    for kit in (made.server, *made.sites.values()):
        ConfigService._var_values = {}
        CommConfigurator.reset()
        ConfigService._config_path = [str(kit / "local")]
        assert sending() == {
            "piece": 1 << 18, "window": 1 << 21, "acknowledged": 1 << 19, "remembered": 15.0,
        }  # fmt: skip


def test_how_an_operator_s_kit_sends_stays(made: kits.Kits, tmp_path: Path) -> None:
    kit = Path(shutil.copytree(made.sites["site-1"], tmp_path / "kit"))
    file = kit / "local" / COMMUNICATION_FILE
    assert json.loads(file.read_text()) == mutual(COMMUNICATION)
    own = {"streaming_window_size": 1 << 26, "max_message_size": 5}
    file.write_text(json.dumps(own))
    kits.harden(kit)
    assert json.loads(file.read_text()) == mutual({**COMMUNICATION, **own})
    for wrong in ("[]", "{", "\udcff"):
        file.write_text(wrong, errors="surrogateescape")
        with pytest.raises(UsageError, match="not as NVFlare wants it"):
            kits.harden(kit)


@pytest.mark.parametrize("site", ["site-1", kits.SERVER])
def test_an_engine_is_told_of_its_heaps_and_a_party_is_not(
    site: str, made: kits.Kits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, str]] = []
    monkeypatch.setattr(
        kits.subprocess,
        "Popen",
        lambda *words, env, **more: told.append(env),  # type: ignore[attr-defined]
    )
    for name in MEMORY:
        monkeypatch.delenv(name, raising=False)
    processes = kits.Processes(made, {site: tmp_path})
    processes.start(site)
    engine, party = told
    assert {name: engine.get(name) for name in MEMORY} == MEMORY
    assert not {*MEMORY} & {*party}


HEAPS = """
import ctypes, json, sys, threading
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
libc.free.argtypes = [ctypes.c_void_p]
class Info(ctypes.Structure):
    _fields_ = [(n, ctypes.c_size_t) for n in
                "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keep".split()]
libc.mallinfo2.restype = Info
ready, over = threading.Barrier(7), threading.Event()
def use():
    libc.malloc(1000)
    ready.wait()
    over.wait()
threads = [threading.Thread(target=use) for _ in range(6)]
for one in threads: one.start()
ready.wait()
libc.free(libc.malloc(20 << 20))  # by itself glibc now keeps what is as large
before = libc.mallinfo2().hblks
libc.malloc(1 << 20)
apart = libc.mallinfo2().hblks - before
libc.fdopen.restype = ctypes.c_void_p
out = libc.fdopen(1, b"w")
libc.malloc_info(0, ctypes.c_void_p(out))
libc.fflush(ctypes.c_void_p(out))
over.set()
print("apart", apart, flush=True)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the variables are glibc's")
def test_glibc_keeps_two_heaps_and_gives_large_buffers_back() -> None:
    def heaps(told: dict[str, str]) -> tuple[int, str]:
        kept = {name: value for name, value in os.environ.items() if name not in MEMORY}
        done = subprocess.run(
            [sys.executable, "-c", HEAPS], env={**kept, **told},
            capture_output=True, text=True, check=True, timeout=60,
        )  # fmt: skip
        return done.stdout.count("<heap nr="), done.stdout.split()[-1]

    count, apart = heaps({})
    assert count > 2 and apart == "0"  # the control
    count, apart = heaps(dict(MEMORY))
    assert count <= 2 and apart == "1"


def test_a_relay_keeps_the_last_answer_alone() -> None:
    turns = Turns()
    said: list[Any] = []

    def work(taken: Any) -> Heard:
        taken()
        return Heard(Code.DONE, [b"answer"])

    for number in range(50):
        said.append(turns.take(f"request {number}", work, 30.0, Signal()))
        assert len(turns._turns) == 1
    assert [one.code for one in said] == [Code.DONE] * 50
