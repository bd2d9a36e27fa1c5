"""Law: answers in a process of their own reach no key, no network, no file and no other process.

Each attempt has its control: the same code outside a room works. Beside that: what a worker that
dies, hangs or lies does to a session (a refusal), and that isolation moves no result.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from algorithms.site import Site
from protocols.errors import LocalProtocolError, Refused
from protocols.ledger import read_lines
from protocols.policy import PrivacyPolicy
from protocols.private_steps import PrivateSteps
from protocols.roster import Identity, Role
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.isolation import frames, kernel, room
from secure_fgl.isolation.kernel import CannotIsolate
from secure_fgl.isolation.room import AnswerFailed, Room
from secure_fgl.isolation.values import PlainCodec
from secure_fgl.transports.memory import MemoryTransport
from tests import forked
from tests.laws import planted
from tests.laws.killing import die, play
from tests.laws.planted import ATTEMPTS, CLIENT, FORM, NAMES, Done, Go, Other
from tests.laws.runs import config

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="rooms are of Linux")

IDENTITY = Identity.from_seed("client-1", Role.CLIENT, bytes(32))
ROOT = Path(__file__).resolve().parents[2]
Asks = Callable[..., Any]


def fresh(channel: socket.socket) -> subprocess.Popen[bytes]:
    """Start a fresh interpreter, as `room.spawn` does, on planted answers."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", "from tests.laws import planted; planted.serve(0)"],
        stdin=channel, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd="/",
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip


def forked_planted(channel: socket.socket) -> forked.ForkedWorker:
    with patch.object(forked.worker, "Answers", planted.PlantedAnswers):
        return forked.ForkedWorker(channel)


def opened(spawn: Callable[[socket.socket], Any], *, seconds: float = 60.0) -> Room:
    chosen = config("fed_avg", "masks")
    federation = Federation(config=chosen)
    with patch.object(room, "spawn", spawn):
        return Room(chosen, federation.policy, federation.plan(), [CLIENT], seconds=seconds)


def asks(of: Room, site: Site) -> Asks:
    """Return what asks the room one exchange and returns its one message."""
    form = of.form(FORM, {CLIENT: site})

    def ask(name: str) -> Any:
        (exchange,) = form.exchanges
        (said,) = exchange.answer(site, Go(number=NAMES.index(name)))  # type: ignore[misc]
        return said

    return ask


# --- what planted answers try -----------------------------------------------------------------


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("target")
    (folder / "identity.json").write_text("a key")
    with contextlib.ExitStack() as held:
        tcp = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        unix = held.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(str(folder / "s"))
        unix.listen()
        yield {
            "folder": str(folder),
            "key": str(folder / "identity.json"),
            "victim": str(folder / "victim"),
            "port": tcp.getsockname()[1],
            "unix": str(folder / "s"),
        }


@pytest.fixture(scope="module")
def closed(target: dict[str, Any]) -> Iterator[tuple[Room, Site]]:
    site = Site(None, seed=1)
    site.memory["target"] = target
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(planted.SECRET, "x")
        with opened(fresh) as made:
            yield made, site


def outside(name: str, target: dict[str, Any]) -> bool:
    """Try the same in a forked child that nothing holds, against a process of its own."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.environ[planted.SECRET] = "x"
            sleeper = os.fork()
            if sleeper == 0:
                time.sleep(60.0)
                os._exit(0)
            status = int(not planted.worked(name, {**target, "process": sleeper}))
            with contextlib.suppress(OSError):
                os.kill(sleeper, 9)
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize("name", ATTEMPTS)
def test_what_works_outside_fails_in_a_room(
    name: str, target: dict[str, Any], closed: tuple[Room, Site]
) -> None:
    Path(target["victim"]).write_text("stays")
    assert asks(*closed)(name).worked == 0
    assert Path(target["victim"]).read_text() == "stays"
    assert outside(name, target), "the control fails, so the attempt shows nothing"


def test_an_answer_still_computes_remembers_and_draws(closed: tuple[Room, Site]) -> None:
    of, site = closed
    assert asks(of, site)("remembers").worked == 1
    twin = Site(None, seed=1)
    assert np.array_equal(site.memory["seen"], np.arange(3.0) + twin.generator("own").random())
    assert site.draws == {"own": 1}


def test_an_algorithms_error_comes_back_without_its_text(closed: tuple[Room, Site]) -> None:
    """And one that means something keeps its meaning; the worker is fit for more after both."""
    ask = asks(*closed)
    with pytest.raises(ArithmeticError) as overflow:
        ask("divides")
    assert "4711" not in str(overflow.value)
    with pytest.raises(AnswerFailed, match=r"\(ValueError\)") as failed:
        ask("raises")
    assert str(closed[1].memory["target"]["folder"]) not in failed.value.diagnostics()
    assert ask("remembers").worked == 1


# --- workers that die, hang or lie ------------------------------------------------------------


@pytest.mark.parametrize("name", ["strange", "no_message", "leaves", "aborts"])
def test_other_messages_and_early_ends_are_refused(name: str) -> None:
    with opened(forked_planted) as of:
        ask = asks(of, Site(None, seed=1))
        assert ask("remembers").worked == 1
        for again in (name, "remembers"):  # a worker that was caught is not asked again
            with pytest.raises(AnswerFailed, match="of no use any more"):
                ask(again)


def test_a_worker_that_hangs_is_ended_at_the_deadline() -> None:
    with opened(forked_planted) as of:
        of._seconds = 1.0  # of an answer: how long a worker takes to start is the machine's affair
        with pytest.raises(AnswerFailed, match="no use"):
            asks(of, Site(None, seed=1))("sleeps")


def test_a_worker_that_is_killed_in_mid_answer_is_noticed() -> None:
    with opened(forked_planted) as of:
        threading.Timer(0.3, of._worker.kill).start()
        with pytest.raises(AnswerFailed, match="no use") as caught:
            asks(of, Site(None, seed=1))("sleeps")
        assert "it ended" in caught.value.why


def _packed(**changes: Any) -> bytes:
    """Return an answer as a worker says it, with some of it replaced."""
    name = f"{Done.__module__}.{Done.__qualname__}"
    whole = {
        "draws": {},
        "memory": {},
        "said": [[name, "fields", {"worked": 1}]],
        "standing": None,
        **changes,
    }
    return frames.ANSWER + PlainCodec({Go, Done, Other}).pack(whole)


def _tree(value: str) -> bytes:
    """Return an answer whose memory is what this JSON says."""
    good = _packed(memory={"x": 12345})
    changed = good.replace(b"12345", value.encode())
    size = int.from_bytes(good[1:9], "little") + len(value) - 5
    return changed[:1] + size.to_bytes(8, "little") + changed[9:]


_ROW = f"{Done.__module__}.{Done.__qualname__}"
LIES = {
    "nothing": b"",
    "another kind": b"Z",
    "noise": frames.ANSWER + bytes(range(256)),
    "cut": _packed()[:-3],
    "no JSON": frames.ANSWER + (5).to_bytes(8, "little") + b"{{{{{" + bytes(8),
    "deep": frames.ANSWER + (200_000).to_bytes(8, "little") + b"[" * 200_000,
    "another message": _packed(said=[[f"{Other.__module__}.Other", "fields", {"worked": 1}]]),
    "two messages": _packed(said=[[_ROW, "fields", {"worked": 1}]] * 2),
    "another field": _packed(said=[[_ROW, "fields", {"worked": 1, "more": 2}]]),
    "no number": _packed(said=[[_ROW, "fields", {"worked": {"a": 1}}]]),
    "unmixed": _packed(said=[[_ROW, "unmixed", {"table": 1, "index": 1, "label": None}]]),
    "a count below zero": _packed(draws={"own": -1}),
    "a count that is none": _packed(draws={"own": "1"}),
    "no memory": _packed(memory=[1]),
    "steps nobody asked for": _packed(standing=(1, 0, 0)),
    "the session's key": _tree('{"shared":"me"}'),
    "an object": _tree('{"object":["Gateway",[]]}'),
    "a secret": _tree('{"secret":["bfv",0]}'),
    "another class": _tree('{"type":"protocols.control.Refusal"}'),
    "a stranger's message": _tree('{"message":["os.system",[]]}'),
}


class Liar:
    """A worker, in a thread, that says one thing to whatever it is asked."""

    def __init__(self, channel: socket.socket, lie: bytes, size: int | None) -> None:
        self._end, self._lie, self._size = os.dup(channel.fileno()), lie, size
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            frames.read(self._end)
            frames.write(self._end, frames.CLOSED, b"")
            frames.read(self._end)
            if self._size is not None:
                os.write(self._end, self._size.to_bytes(8, "little"))
            frames.write(self._end, self._lie[:1], self._lie[1:])
        os.close(self._end)

    def kill(self) -> None: ...

    def wait(self, timeout: float | None = None) -> int:
        return 0


def _lied(lie: bytes, size: int | None = None, site: Site | None = None) -> Any:
    with opened(lambda channel: Liar(channel, lie, size)) as of:
        return asks(of, site or Site(None, seed=1))("remembers")


@pytest.mark.parametrize("name", LIES)
def test_malformed_replies_are_refused(name: str) -> None:
    site = Site(None, seed=1)
    with pytest.raises(AnswerFailed, match="no use"):
        _lied(LIES[name], site=site)
    assert (site.memory, site.draws) == ({}, {})


def test_the_lies_are_refused_for_what_they_say() -> None:
    """Control: the same bytes without a lie in them are an answer."""
    assert _lied(_packed()).worked == 1
    assert _lied(_tree("54321")).worked == 1


def test_a_frame_beyond_the_largest_is_not_even_read() -> None:
    with pytest.raises(AnswerFailed, match="no use") as caught:
        _lied(_packed(), size=frames.LARGEST + 1)
    assert "more than an answer can hold" in caught.value.why


@pytest.mark.parametrize("after", [(2, 1, 1), (1, 2, 0), (1, 2, 1), (1, -1, 3), (1, 1.0, 1)])
def test_steps_that_training_cannot_have_taken_are_refused(after: tuple[Any, ...]) -> None:
    """Only (1, 1, 1) or (1, 0, 2) can follow on (1, 2, 0), or nothing was taken."""
    plausible = after == (1, 2, 0)
    steps = PrivateSteps.__new__(PrivateSteps)
    steps.take_up((1, 2, 0))
    site = Site(None, seed=1, training=steps)
    if plausible:
        assert _lied(_packed(standing=after), site=site).worked == 1
    else:
        with pytest.raises(AnswerFailed, match="no use"):
            _lied(_packed(standing=after), site=site)
    assert steps.standing == (1, 2, 0)


# --- whole runs -------------------------------------------------------------------------------


def isolated(name: str, policy: str = "masks") -> Config:
    return config(name, policy).model_copy(update={"isolate": True})


SAME = [
    ("fed_avg", "masks"),
    ("fed_pub", "unsafe_plaintext"),  # protected, it repeats to a step of its grid only
    ("fed_ego", "strict"),
    ("fed_per_gnn", "masks"),
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
        room.spawn = forked.ForkedWorker  # type: ignore[assignment]

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

    monkeypatch.setattr(room, "spawn", spawn)

    class Deadly(MemoryTransport):
        carried = 0

        def exchange(self, parcels: Any) -> Any:
            Deadly.carried += 1
            if Deadly.carried == 8:
                workers[0].kill()
                workers[0].wait()
            return super().exchange(parcels)

    with pytest.raises(Refused) as caught:
        Federation(config=isolated("fed_avg")).run(tmp_path / "run", connect=Deadly)
    assert isinstance(caught.value.__cause__, AnswerFailed)
    ledger = (tmp_path / "run" / "ledger" / "client-1.jsonl").read_bytes()
    refusals = [entry for entry, _ in read_lines(ledger) if entry["kind"] == "refusal"]
    assert [(entry["code"], entry["reason"]) for entry in refusals] == [
        ("internal", "AnswerFailed")
    ]


def test_private_training_goes_on_in_a_room(
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

    monkeypatch.setattr(kernel, "_call", fails)


def _another_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel.platform, "machine", lambda: "riscv64")


def _another_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel.sys, "platform", "darwin")


@pytest.mark.parametrize("without", [_no_landlock, _another_machine, _another_system])
def test_a_kernel_that_cannot_do_it_is_an_error_and_nothing_starts(
    without: Callable[[pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without(monkeypatch)
    monkeypatch.setattr(room, "spawn", lambda channel: die())
    with pytest.raises(CannotIsolate) as caught:
        Federation(config=isolated("fed_avg")).run(tmp_path / "run")
    assert caught.value.what and caught.value.why and caught.value.fix
    assert not (tmp_path / "run" / "ledger").exists()


def test_a_data_set_in_memory_is_refused(tmp_path: Path) -> None:
    from secure_fgl import load_dataset

    graph = load_dataset("synthetic_banks")
    with pytest.raises(room.UsageError, match="handed over in memory"):
        Federation(graph, config=isolated("fed_avg")).run(tmp_path / "run")


def test_a_small_frame_cannot_take_much_room() -> None:
    """One array of a megabyte, named fifteen hundred times, took a gigabyte and a half."""
    codec = PlainCodec({Go, Done, Other})
    array = np.zeros(1 << 20, np.uint8)
    few = codec.pack([array] * 3)
    assert all(np.array_equal(one, array) for one in codec.unpack(few))  # the control
    many = codec.pack([array] * 1500)
    assert len(many) < 2 * array.nbytes
    tracemalloc.start()
    with pytest.raises(LocalProtocolError, match="room"):
        codec.unpack(many)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100 << 20
    with pytest.raises(LocalProtocolError, match="more parts"):
        codec.unpack((1 << 40).to_bytes(8, "little") + many[8:])
