"""Attacks of a hostile reader that need no server: each closed, each beside its control."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlparse

import pytest
from nats.aio.client import Client
from nats.errors import ProtocolError

from secure_fgl.errors import UsageError
from secure_fgl.sites.session import Answerer
from secure_fgl.sites.start import HOUSE
from secure_fgl.sites.stopping import stop
from secure_fgl.transports.broker.client import BrokerClient, printable
from secure_fgl.transports.broker.config import keep_connection
from secure_fgl.transports.broker.messages import TASK, Code
from tests.broker_attacks.stage import Stage, assemble

ONE = "client-1"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    made = assemble(tmp_path_factory.mktemp("stage"))
    keep_connection(made.folder(ONE), made.charter, ONE)
    (made.folder(ONE) / "runs" / made.charter.run).mkdir(parents=True)
    return made


def test_a_servers_list_of_servers_is_not_followed() -> None:
    async def known(client: Any) -> int:
        client._current_server = SimpleNamespace(uri=urlparse("tls://fl.example.org:4222"))
        client._server_pool = []
        client.options["dont_randomize"] = True
        await client._process_info({"connect_urls": ["10.0.0.1:22"]}, initial_connection=True)
        return len(client._server_pool)

    assert asyncio.run(known(BrokerClient())) == 0
    assert asyncio.run(known(Client())) == 1  # the control


def test_a_message_above_every_limit_is_not_kept() -> None:
    async def announced(client: Any, size: int) -> int:
        await client._ps.parse(f"MSG a 1 {size}\r\n".encode())
        return int(client._ps.needed)

    assert asyncio.run(announced(BrokerClient(), 1000)) == 1000
    assert asyncio.run(announced(Client(), 1 << 40)) == 1 << 40  # the control
    with pytest.raises(ProtocolError):
        asyncio.run(announced(BrokerClient(), 1 << 40))


def test_a_servers_words_reach_a_terminal_as_one_short_line() -> None:
    assert printable("plain words") == "plain words"
    shown = printable("\x1b]0;owned\x07\x1b[2J\n" + "x" * 1000)
    assert shown.isprintable() and len(shown) <= 200


def test_one_envelope_twice_in_a_request_is_answered_by_nobody(tmp_path: Path) -> None:
    received: list[bytes] = []
    kit = SimpleNamespace(party=tmp_path, charter=None)
    session = SimpleNamespace(last_error=None)

    def receive(data: bytes) -> list[Any]:
        received.append(data)
        return []

    answerer = Answerer(SimpleNamespace(kit=kit, session=session, receive=receive))  # type: ignore[arg-type]
    assert answerer.answer(TASK, [b"a", b"b"]).code is Code.DONE  # the control
    assert answerer.answer(TASK, [b"a", b"b", b"a"]).code is Code.UNREADABLE
    assert received == [b"a", b"b"]


def test_a_site_is_stopped_by_its_owner_alone(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    party = stage.folder(ONE)
    monkeypatch.setattr(os, "geteuid", lambda: party.stat().st_uid + 1)
    with pytest.raises(UsageError, match="belongs to another user"):
        stop(party, seconds=0)
    assert not list(party.glob("runs/*/stopped"))
    monkeypatch.undo()
    assert stop(party, seconds=0) == [stage.charter.run]  # the control


def test_a_carrier_ends_with_the_process_that_started_it(stage: Stage) -> None:
    folder = stage.folder(ONE) / "carrier"
    ours, theirs = socket.socketpair()
    with theirs:
        carrier = subprocess.Popen(
            [sys.executable, "-P", "-m", "secure_fgl.transports.broker.carrier",
             str(folder), stage.charter.run, str(folder / "socket")],
            stdin=theirs.fileno(), stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": HOUSE},
        )  # fmt: skip
    try:
        with pytest.raises(subprocess.TimeoutExpired):  # the control: it stays while we are there
            carrier.wait(2)
        ours.close()
        assert carrier.wait(10) == 0
    finally:
        carrier.kill()
        carrier.wait()


def test_a_carrier_that_nothing_started_does_not_run_unless_it_says_what_it_keeps(
    stage: Stage,
) -> None:
    folder = stage.folder(ONE) / "carrier"
    command = [sys.executable, "-P", "-m", "secure_fgl.transports.broker.carrier", str(folder),
               stage.charter.run, str(folder / "socket")]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": HOUSE}
    refused = subprocess.run(
        command, check=False, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        env=environment, timeout=20,
    )  # fmt: skip
    assert refused.returncode == 2 and "site start" in refused.stderr
    with subprocess.Popen(
        [*command, "--alone"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=environment,
    ) as alone:  # fmt: skip
        assert alone.stderr is not None and "NOT CLOSED" in alone.stderr.readline()
        alone.kill()
