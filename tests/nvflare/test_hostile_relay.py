"""Relays that do what they like, and what a site that is stopped says to them: nothing."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from secure_fgl.transports.nvflare.site import channel
from secure_fgl.transports.nvflare.site.codes import JOB, Code
from secure_fgl.transports.nvflare.site.conducting import RelayCarrier
from secure_fgl.transports.nvflare.site.control import Control

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
            channel.send(connection, {"do": JOB, "deadline": 60.0})
            while True:
                try:
                    came.append(channel.receive(connection)[1])
                except channel.Broken:
                    return
                channel.send(connection, {"found": [["site", str(Code.AWAY), 0]]})

    with channel.listen(place) as listener:
        thread = threading.Thread(target=relay)
        thread.start()
        carrier = RelayCarrier(listener, ME, control)
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
