"""The socket between a party and its relay: who is greeted, what is told, what it costs."""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from secure_fgl.sites.control import Control
from secure_fgl.sites.session import serve
from secure_fgl.transports.broker import channel
from secure_fgl.transports.broker.replies import Code, SiteReply
from tests.sites.processes import until

RUN = "ab" * 16
ME = frozenset({os.geteuid()})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A socket's path that is longer than a socket's name may be."""
    folder = tmp_path / ("x" * 120)
    folder.mkdir(mode=0o700)
    return folder / "socket"


@pytest.fixture
def listener(place: Path) -> Iterator[socket.socket]:
    with channel.listen(place) as made:
        yield made


def answered(listener: socket.socket, act: Callable[[socket.socket], None]) -> threading.Thread:
    def serve() -> None:
        connection = channel.accepted(listener, ME)
        assert connection is not None
        with connection:
            act(connection)

    thread = threading.Thread(target=serve)
    thread.start()
    return thread


def test_bytes_come_as_they_were_sent(place: Path, listener: socket.socket) -> None:
    blobs = [b"", os.urandom(3 << 20), b"x"]

    def echo(connection: socket.socket) -> None:
        head, found = channel.receive(connection)
        channel.send(connection, {"again": head["do"]}, found)

    thread = answered(listener, echo)
    with channel.connect(place) as ours:
        channel.send(ours, {"do": "it"}, blobs)
        assert channel.receive(ours) == ({"again": "it"}, blobs)
    thread.join()


def test_nobody_else_reaches_it(place: Path, listener: socket.socket) -> None:
    assert place.stat().st_mode & 0o777 == 0o600
    thread = threading.Thread(target=lambda: found.append(channel.accepted(listener, {12345})))
    found: list[socket.socket | None] = []
    thread.start()
    with pytest.raises(channel.Gone):
        channel.connect(place)
    thread.join()
    assert found == [None]
    answered(listener, lambda connection: None)  # the control: its own user is greeted
    channel.connect(place).close()


@pytest.mark.parametrize(("shared", "mode"), [(False, 0o750), (True, 0o770), (True, 0o755)])
def test_a_folder_that_is_open_further_is_refused(shared: bool, mode: int, place: Path) -> None:
    place.parent.chmod(mode)
    with pytest.raises(PermissionError, match="open to others"):
        channel.listen(place, shared=shared)
    place.parent.chmod(0o750 if shared else 0o700)  # the control
    with channel.listen(place, shared=shared):
        assert place.stat().st_mode & 0o777 == (0o660 if shared else 0o600)


def test_what_is_no_socket_is_not_replaced(place: Path) -> None:
    place.write_text("mine")
    with pytest.raises(PermissionError, match="no socket"):
        channel.listen(place)
    assert place.read_text() == "mine"


def test_four_ways_not_to_be_there(place: Path) -> None:
    """Never started, killed, killed in the middle, and at work on something else."""
    with pytest.raises(channel.Absent):
        channel.connect(place)
    with pytest.raises(channel.Absent):
        channel.connect(place.parent / "no" / "folder")
    listener = channel.listen(place)
    with pytest.raises(channel.Busy):
        channel.connect(place, seconds=0.1)
    listener.close()
    with pytest.raises(channel.Gone):
        channel.connect(place)
    with channel.listen(place) as listener:  # who comes after it takes its place
        thread = answered(listener, lambda connection: channel.receive(connection) and None)
        with channel.connect(place) as ours:
            channel.send(ours, {"do": "x"})
            with pytest.raises(channel.Gone):
                channel.receive(ours)
        thread.join()


def test_waiting_ends_when_somebody_says_so(place: Path, listener: socket.socket) -> None:
    over = threading.Event()
    thread = answered(listener, lambda connection: over.wait(10) and None)
    with channel.connect(place) as ours:
        with pytest.raises(channel.Stopped):
            channel.receive(ours, stopped=lambda: True)
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            channel.receive(ours, seconds=0.3)
        assert time.monotonic() - start < 3
    over.set()
    thread.join()


def frame(head: bytes, rest: bytes = b"") -> bytes:
    return struct.pack(">I", len(head)) + head + rest


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">I", (1 << 20) + 1),
        frame(b"[]"),
        frame(b"{"),
        frame(b"[" * 100_000),
        frame(b"\xff"),
        frame(b"{}"),
        frame(b'{"sizes": 3}'),
        frame(b'{"sizes": [-1]}'),
        frame(b'{"sizes": [true]}'),
        frame(b'{"sizes": [1.0]}'),
        frame(b'{"sizes": [4294967296]}'),
        frame(b'{"sizes": [1073741824, 1073741824, 1]}'),
        frame(b'{"sizes": [%s]}' % b",".join([b"0"] * ((1 << 17) + 1))),
    ],
)
def test_what_is_no_frame_is_refused(sent: bytes, place: Path, listener: socket.socket) -> None:
    thread = answered(listener, lambda connection: connection.sendall(sent))
    with channel.connect(place) as ours, pytest.raises(channel.Broken):
        channel.receive(ours)
    thread.join()


def test_what_greets_otherwise_is_no_party(place: Path) -> None:
    with channel.listen(place) as listener:

        def other() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n" + bytes(64))

        thread = threading.Thread(target=other)
        thread.start()
        with pytest.raises(channel.Broken) as caught:
            channel.connect(place)
        assert type(caught.value) is channel.Broken
        thread.join()


@dataclass
class Stopping:
    """Answers; in the middle of an answer, its site may be stopped."""

    supervisor: socket.socket
    stop: bool
    asked: list[str] = field(default_factory=list)
    over: bool = False
    broken: bool = False
    run: str = RUN

    def answer(self, name: str, envelopes: list[bytes]) -> SiteReply:
        self.asked.append(name)
        if self.stop:
            self.supervisor.shutdown(socket.SHUT_WR)
        return SiteReply(Code.DONE, [b"said"])


def test_a_task_of_another_run_reaches_no_session(place: Path, listener: socket.socket) -> None:
    """Also where somebody had a link lead from its socket to this one."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        answerer: Any = Stopping(ours, False)
        served = threading.Thread(target=serve, args=(answerer, listener, ME, Control(theirs)))
        served.start()
        for told in ({"run": RUN}, {"run": "cd" * 16}, {"run": [RUN]}, {}):
            with channel.connect(place) as connection:
                channel.send(connection, {"do": "one", **told}, [b"x"])
                channel.receive(connection)
        ours.shutdown(socket.SHUT_WR)
        served.join(10)
    assert answerer.asked == ["one", "", "", ""]  # and no party knows a task without a name


@pytest.mark.parametrize("run", ["", "ab" * 15, "AB" * 16, "../" + "ab" * 16, "ab" * 16 + "/x"])
def test_a_run_s_name_leads_nowhere_else(run: str, place: Path) -> None:
    with pytest.raises(ValueError, match="names no run"):
        channel.of_run(place, run)
    assert channel.of_run(place, RUN) == place.parent / f"socket.{RUN}"  # the control


@pytest.mark.parametrize("stop", [True, False])
def test_what_is_computed_or_queued_when_a_site_is_stopped_does_not_leave(
    stop: bool, place: Path, listener: socket.socket
) -> None:
    ours, theirs = socket.socketpair()
    heard: list[list[bytes] | None] = []

    def call(name: str) -> None:
        try:
            with channel.connect(place, seconds=5.0) as connection:
                channel.send(connection, {"do": name, "run": RUN})
                heard.append(channel.receive(connection)[1])
        except channel.Broken:
            heard.append(None)

    with ours, theirs:
        answerer: Any = Stopping(ours, stop)
        control = Control(theirs)
        threads = [threading.Thread(target=call, args=(name,)) for name in ("one", "two")]
        for thread in threads:
            thread.start()
        served = threading.Thread(target=serve, args=(answerer, listener, ME, control))
        served.start()
        if not stop:
            until(lambda: len(heard) == 2)
            ours.shutdown(socket.SHUT_WR)
        served.join(10)
        assert not served.is_alive()
        listener.close()  # as the end of the process does
        for thread in threads:
            thread.join(10)
    assert heard == ([None, None] if stop else [[b"said"], [b"said"]])
    assert len(answerer.asked) == (1 if stop else 2)


def test_a_relay_that_reads_slowly_lets_a_session_beat(
    place: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its supervisor would take it for one that hangs, and end it in the middle of a frame."""
    monkeypatch.setattr("secure_fgl.sites.control._BEAT_SECONDS", 0.05)

    class Answering:
        over = broken = False
        run = RUN

        def answer(self, name: str, envelopes: list[bytes]) -> SiteReply:
            return SiteReply(Code.DONE, [bytes(2 << 20)] * 3)

    ours, theirs = socket.socketpair()
    with ours, theirs:
        answerer: Any = Answering()
        served = threading.Thread(target=serve, args=(answerer, listener, ME, Control(theirs)))
        served.start()
        with channel.connect(place) as connection:
            channel.send(connection, {"do": "one", "run": RUN})
            left, beats = 6 << 20, 0
            time.sleep(0.2)
            while left > 0:
                time.sleep(0.1)
                left -= len(connection.recv(1 << 20, socket.MSG_WAITALL))
                beats += bool(select.select([ours], [], [], 0)[0]) and len(ours.recv(64))
            ours.shutdown(socket.SHUT_WR)
        served.join(10)
    assert beats >= 3
