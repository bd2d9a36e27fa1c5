"""Law: answers in a process of their own reach no key, no network, no file and no other process.

Each attempt has its control: the same code outside a sandbox works. Beside that: what a worker that
dies, hangs or lies does to a session (a refusal), and that isolation moves no result.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from algorithms.tasks import Site
from protocols.errors import LocalProtocolError
from protocols.privacy.noising import PrivateSteps
from secure_fgl.isolation import frames, kernel
from secure_fgl.isolation.frames import PlainCodec
from secure_fgl.isolation.sandbox import AnswerFailed, Sandbox
from secure_fgl.isolation.worker import failure
from tests.laws import planted
from tests.laws.planted import ATTEMPTS, Done, Go, Other
from tests.laws.sandboxes import asks, forked_planted, fresh, opened

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are of Linux")


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
def closed(target: dict[str, Any]) -> Iterator[tuple[Sandbox, Site]]:
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
def test_what_works_outside_fails_in_a_sandbox(
    name: str, target: dict[str, Any], closed: tuple[Sandbox, Site]
) -> None:
    Path(target["victim"]).write_text("stays")
    assert asks(*closed)(name).worked == 0
    assert Path(target["victim"]).read_text() == "stays"
    assert outside(name, target), "the control fails, so the attempt shows nothing"


def test_who_asks_a_worker_is_closed_to_its_user_s_other_processes_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel, "_closed", threading.Event())
    before = kernel.set_traceable(True)
    try:
        with opened(fresh) as sandbox:
            assert kernel.prctl(kernel._PR_GET_DUMPABLE) == 0
        assert kernel.prctl(kernel._PR_GET_DUMPABLE) == 1  # the control
        kernel.set_traceable(False)
        sandbox.close()  # once more, as it may
        assert kernel.prctl(kernel._PR_GET_DUMPABLE) == 0
    finally:
        kernel.set_traceable(before)


def test_an_answer_still_computes_remembers_and_draws(closed: tuple[Sandbox, Site]) -> None:
    of, site = closed
    assert asks(of, site)("remembers").worked == 1
    twin = Site(None, seed=1)
    assert np.array_equal(site.memory["seen"], np.arange(3.0) + twin.generator("own").random())
    assert site.draws == {"own": 1}


def test_an_algorithms_error_comes_back_without_its_text(closed: tuple[Sandbox, Site]) -> None:
    """And one that means something keeps its meaning; the worker is fit for more after both."""
    ask = asks(*closed)
    with pytest.raises(ArithmeticError) as overflow:
        ask("divides")
    assert "4711" not in str(overflow.value)
    with pytest.raises(AnswerFailed, match=r"\(ValueError\)") as failed:
        ask("raises")
    assert str(closed[1].memory["target"]["folder"]) not in str(failed.value)
    assert ask("remembers").worked == 1


def test_an_error_s_text_is_shown_of_generated_data_alone_whatever_the_worker_says(
    closed: tuple[Sandbox, Site], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lines are looked up here, in modules of plug-ins; the worker names them by number."""
    of, theirs = closed[0], ModuleType("secure_fgl_plugins.mine")
    theirs.__file__ = __file__
    monkeypatch.setitem(sys.modules, theirs.__name__, theirs)
    told = {"kind": "ValueError", "lines": [[theirs.__name__, 1]], "text": "of \x1b[2J 4711"}
    error = of._failure("train", json.dumps(told).encode())
    assert "4711" in str(error) and "\x1b" not in str(error)  # the control
    assert f"{Path(__file__).name}, line 1" in str(error)
    monkeypatch.setattr(of, "_generated", False)
    assert "4711" not in str(of._failure("train", json.dumps(told).encode()))
    for lie in ({"lines": [["os", 1]]}, {"kind": "4711"}, {"lines": 7}, {"text": 7}):
        error = of._failure("train", json.dumps({**told, **lie}).encode())
        assert "(an error without a name)" in str(error) and "4711" not in str(error)
    assert "4711" not in str(of._failure("train", b"4711"))


def test_a_worker_tells_no_text_of_data_that_are_real() -> None:
    assert b"4711" in failure(KeyError(4711), generated=True)  # the control
    assert b"4711" not in failure(KeyError(4711), generated=False)


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
    "another class": _tree('{"type":"protocols.wire.control.Refusal"}'),
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
