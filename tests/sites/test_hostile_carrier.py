"""Carriers that do what they like to their own party's process."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from secure_fgl.sites.session import Callers, OwnCarrier, serve
from secure_fgl.transports.broker import channel
from secure_fgl.transports.broker.messages import TASK, Code, SiteReply, decode, encode
from tests.callers import connect

ME = frozenset({os.geteuid()})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "party"
    folder.mkdir(mode=0o700)
    return folder / "socket"


@pytest.fixture
def listener(place: Path) -> Iterator[socket.socket]:
    with channel.bound(place) as made:
        made.listen(8)
        yield made


@pytest.mark.parametrize("stop", [True, False])
def test_a_stopped_aggregator_sends_nothing_more_to_a_carrier_that_answers_at_once(
    stop: bool, place: Path, listener: socket.socket
) -> None:
    came: list[list[bytes]] = []

    def carrier() -> None:
        with connect(place) as connection, contextlib.suppress(channel.Gone):
            while True:
                came.append(decode(channel.receive(connection))[1])
                channel.send(connection, encode({"replies": [["site", str(Code.AWAY), 0]]}))

    stopped = threading.Event()
    callers = Callers(listener, ME, stopped.is_set)
    own = OwnCarrier(callers)
    thread = threading.Thread(target=carrier)
    thread.start()
    assert own.carry(TASK, {"site": [b"one"]}, 60.0, ())["site"].code is Code.AWAY
    if stop:
        stopped.set()
        with pytest.raises(channel.Stopped):
            own.carry(TASK, {"site": [b"two"]}, 60.0, ())
    else:
        own.carry(TASK, {"site": [b"two"]}, 60.0, ())
    callers.hang_up()
    thread.join(10)
    assert came == ([[b"one"]] if stop else [[b"one"], [b"two"]])


@pytest.mark.parametrize("stop", [True, False])
def test_a_carrier_that_sends_byte_by_byte_does_not_keep_a_site_from_stopping(
    stop: bool, place: Path, listener: socket.socket
) -> None:
    answerer: Any = SimpleNamespace(over=False, broken=False, answer=None)
    began, ends = threading.Event(), threading.Event()

    def carrier() -> None:
        with connect(place, seconds=10.0) as connection, contextlib.suppress(OSError):
            connection.sendall(channel.LENGTH.pack(1 << 16))
            for number in range(70):
                connection.sendall(b" ")
                if number == 10:  # its message is being read by now
                    began.set()
                time.sleep(0.05)

    dripping = threading.Thread(target=carrier)
    dripping.start()
    callers = Callers(listener, ME, ends.is_set)
    serving = threading.Thread(target=serve, args=(answerer, callers))
    serving.start()
    assert began.wait(10)
    if stop:
        ends.set()
    serving.join(1.5)
    ended = not serving.is_alive()
    ends.set()
    dripping.join(10)
    serving.join(10)
    callers.hang_up()
    assert ended == stop and not serving.is_alive()


def test_a_folder_that_is_swapped_after_it_was_checked_gets_no_socket(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may rename the folder puts an open one in its place, with a link as the socket."""
    channel.bound(place).close()  # what an earlier process left
    victim, aside = place.parent.parent / "identity.json", place.parent.parent / "aside"
    victim.write_text("mine")
    is_socket = channel.stat.S_ISSOCK

    def swapped(mode: int) -> bool:
        place.parent.rename(aside)
        place.parent.mkdir(mode=0o777)
        place.symlink_to(victim)
        return is_socket(mode)

    with monkeypatch.context() as patched:
        patched.setattr(channel.stat, "S_ISSOCK", swapped)
        with channel.bound(place):
            assert is_socket((aside / "socket").lstat().st_mode)
    assert place.is_symlink() and not is_socket(place.lstat().st_mode)


@pytest.mark.parametrize(
    "sent", [b"", b"[]", struct.pack(">I", 100_000) + b"[" * 100_000, struct.pack(">I", 2) + b"{}"]
)
def test_what_is_no_request_ends_no_session(
    sent: bytes, place: Path, listener: socket.socket
) -> None:
    """The carrier that sends it is hung up on, and the next one is answered."""
    answerer: Any = SimpleNamespace(over=False, broken=False)
    answerer.answer = lambda request, envelopes: SiteReply(Code.DONE, envelopes)
    ends = threading.Event()
    callers = Callers(listener, ME, ends.is_set)
    serving = threading.Thread(target=serve, args=(answerer, callers))
    serving.start()
    try:
        with connect(place) as connection:
            channel.send(connection, sent)
            with pytest.raises(channel.Gone):
                channel.receive(connection, seconds=10.0)
        with connect(place) as connection:  # the control
            channel.send(connection, encode({"do": TASK}, [b"x"]))
            assert decode(channel.receive(connection, seconds=10.0)) == ({"code": "done"}, [b"x"])
    finally:
        ends.set()
        serving.join(10)
        callers.hang_up()
    assert not serving.is_alive()
