"""Relays that do what they like, and what a site that is stopped says to them: nothing."""

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

from secure_fgl.sites.conducting import RelayCarrier
from secure_fgl.sites.control import Control
from secure_fgl.sites.session import serve
from secure_fgl.transports.broker import channel
from secure_fgl.transports.broker.replies import JOB, Code

RUN = "ab" * 16
ME = frozenset({os.geteuid()})


@pytest.fixture
def place(tmp_path: Path) -> Path:
    folder = tmp_path / "party"
    folder.mkdir(mode=0o700)
    return folder / "socket"


@pytest.fixture
def supervised() -> Iterator[tuple[socket.socket, Control]]:
    """The supervisor's end, and what the party's process sees of it."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, Control(theirs)


@pytest.mark.parametrize("stop", [True, False])
def test_a_stopped_aggregator_sends_nothing_more_to_a_relay_that_answers_at_once(
    stop: bool, place: Path, supervised: tuple[socket.socket, Control]
) -> None:
    supervisor, control = supervised
    came: list[Any] = []

    def relay() -> None:
        with channel.connect(place) as connection:
            channel.send(connection, {"do": JOB, "run": RUN, "deadline": 60.0})
            while True:
                try:
                    came.append(channel.receive(connection)[1])
                except channel.Broken:
                    return
                channel.send(connection, {"found": [["site", str(Code.AWAY), 0]]})

    with channel.listen(place) as listener:
        thread = threading.Thread(target=relay)
        thread.start()
        carrier = RelayCarrier(listener, ME, control, RUN)
        assert carrier.carry("t", {"site": [b"one"]}, 60.0, ())["site"].code is Code.AWAY
        if stop:
            supervisor.shutdown(socket.SHUT_WR)
            with pytest.raises(channel.Stopped):
                carrier.carry("t", {"site": [b"two"]}, 60.0, ())
        else:
            carrier.carry("t", {"site": [b"two"]}, 60.0, ())
        carrier.hang_up()
        thread.join(10)
    assert came == ([[b"one"]] if stop else [[b"one"], [b"two"]])


@pytest.mark.parametrize("stop", [True, False])
def test_an_exchange_s_time_passes_once_there_is_a_job(
    stop: bool, place: Path, supervised: tuple[socket.socket, Control]
) -> None:
    """The first one may take what the job says, from when the job is there."""
    supervisor, control = supervised
    waits, found = threading.Event(), list[Any]()

    def office() -> None:
        waits.set()
        try:
            found.append(carrier.allowed())
        except channel.Stopped as error:
            found.append(type(error))

    with channel.listen(place) as listener:
        carrier = RelayCarrier(listener, ME, control, RUN)
        thread = threading.Thread(target=office)
        thread.start()
        assert waits.wait(10)
        thread.join(0.3)
        assert thread.is_alive() and found == []
        if stop:
            supervisor.shutdown(socket.SHUT_WR)
            thread.join(10)
        else:
            with channel.connect(place) as connection:
                channel.send(connection, {"do": JOB, "run": RUN, "deadline": 7.0})
                thread.join(10)
                assert carrier.allowed() == 7.0  # of the job that is there, at once
        carrier.hang_up()
    assert found == [channel.Stopped if stop else 7.0]


def test_a_folder_that_is_swapped_after_it_was_checked_gets_no_socket(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever may rename the folder puts an open one in its place, with a link as the socket."""
    channel.listen(place).close()  # what an earlier process left
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
        with channel.listen(place):
            assert is_socket((aside / "socket").lstat().st_mode)
    assert place.is_symlink() and not is_socket(place.lstat().st_mode)


@pytest.mark.parametrize("stop", [True, False])
def test_a_relay_that_sends_byte_by_byte_does_not_keep_a_site_from_stopping(
    stop: bool, place: Path, supervised: tuple[socket.socket, Control]
) -> None:
    supervisor, control = supervised
    answerer: Any = SimpleNamespace(over=False, broken=False, answer=None)
    told = threading.Event()

    def relay() -> None:
        with channel.connect(place, seconds=10.0) as connection, contextlib.suppress(OSError):
            connection.sendall(struct.pack(">I", 1 << 16))
            for _ in range(60):
                connection.sendall(b" ")
                told.set()
                time.sleep(0.05)

    with channel.listen(place) as listener:
        dripping = threading.Thread(target=relay)
        dripping.start()
        serving = threading.Thread(target=serve, args=(answerer, listener, ME, control))
        serving.start()
        assert told.wait(10)
        if stop:
            supervisor.shutdown(socket.SHUT_WR)
        serving.join(1.5)
        ended = not serving.is_alive()
        dripping.join(10)
        supervisor.shutdown(socket.SHUT_WR)
        serving.join(10)
    assert ended == stop
