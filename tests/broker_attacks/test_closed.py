"""Attacks that once worked, each closed since: a fault that opens one again fails here."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from secure_fgl.isolation import sandbox, worker
from secure_fgl.isolation.forked import ONE_THREAD
from secure_fgl.isolation.separation import close_files, close_network
from secure_fgl.sites import session
from secure_fgl.sites.session import OwnCarrier
from secure_fgl.transports.broker import channel
from secure_fgl.transports.broker.messages import Code, Kind, Part, encode, split
from secure_fgl.transports.broker.requests import Requests
from tests.broker_attacks.stage import (
    Adversary,
    Stage,
    adversary,
    assemble,
    child,
    played,
    result,
)

ONE, TWO, OFFICE = "client-1", "client-2", "aggregator"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return assemble(tmp_path_factory.mktemp("stage"))


@pytest.fixture(scope="module")
def port(stage: Stage) -> Iterator[int]:
    with stage.serving() as found:
        yield found


def test_a_connection_that_somebody_strips_of_tls_is_not_taken(stage: Stage) -> None:
    """Who holds no key stands between, and says that the server wants no TLS."""
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def strip() -> None:
            with contextlib.suppress(OSError):
                between, _ = listener.accept()
                info = {"server_id": "x", "version": "2.15.1", "nonce": "AAAA", "headers": True,
                        "proto": 1, "max_payload": 1 << 22, "auth_required": True}  # fmt: skip
                between.settimeout(5)
                between.sendall(b"INFO " + json.dumps(info).encode() + b"\r\n")
                heard.append(between.recv(65536))
                between.close()

        thread = threading.Thread(target=strip)
        thread.start()

        async def connects() -> None:
            to = stage.connection(ONE, listener.getsockname()[1])
            with contextlib.suppress(Exception):
                async with adversary(to, stage.seed(ONE)):
                    pass

        played(connects)
        thread.join()
    assert not heard[0].startswith(b"CONNECT")  # nothing of the login crosses in clear


async def _answer_well(site: Adversary, message: Any) -> None:
    part = Part.decode(message.data)
    reply = split(Kind.REPLY, part.name, encode({"code": "done"}, [b"answer"]))[0]
    await site.nats.publish(message.reply, reply.encode())


async def _answer_with_a_bad_header(site: Adversary, message: Any) -> None:
    head = b"NATS/1.0 \xff\xff\xff\r\n\r\n"
    line = f"HPUB {message.reply} {len(head)} {len(head)}\r\n".encode()
    await site.nats._send_command(line + head + b"\r\n")
    await site.nats.flush()


def test_a_header_of_one_site_costs_no_other_site_its_reply(stage: Stage, port: int) -> None:
    async def asked() -> dict[str, Code]:
        async with (
            adversary(stage.connection(OFFICE, port), stage.seed(OFFICE)) as office,
            adversary(stage.connection(ONE, port), stage.seed(ONE)) as one,
            adversary(stage.connection(TWO, port), stage.seed(TWO)) as two,
        ):
            for site, name, answer in (
                (one, ONE, _answer_with_a_bad_header), (two, TWO, _answer_well),
            ):  # fmt: skip

                async def came(message: Any, site: Any = site, answer: Any = answer) -> None:
                    await answer(site, message)

                await site.nats.subscribe(f"{stage.subjects}.to.{name}", cb=came)
                await site.nats.flush()
            to = stage.connection(OFFICE, port)
            requests = Requests(office.nats, to.asks, to.limits)
            control = await requests.carry("envelopes", {TWO: [b"a"]}, 3, ())
            assert control[TWO].code is Code.DONE
            await requests.carry("envelopes", {ONE: [b"a"]}, 0.5, ())
            replies = await requests.carry("envelopes", {TWO: [b"a"]}, 2, ())
            return {name: reply.code for name, reply in replies.items()}

    assert played(asked) == {TWO: Code.DONE}


class _Unreadable:
    """A carrier whose answer the aggregator cannot read, as many small envelopes make it."""

    def __init__(self, answers: Sequence[bytes]) -> None:
        self.answers, self.asked_for = [*answers], 0

    def asked(self, message: bytes, seconds: float) -> bytes:
        """Answer at once."""
        self.asked_for += 1
        if self.asked_for > 50:
            raise channel.Stopped
        time.sleep(0.01)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def hang_up(self) -> None:
        """Nothing is kept."""


def test_replies_of_too_many_envelopes_end_with_the_deadline() -> None:
    good = encode({"replies": [[ONE, "done", 1]]}, [b"a"])
    assert OwnCarrier(_Unreadable([good])).carry("envelopes", {ONE: [b"a"]}, 1, ())  # type: ignore[arg-type]
    many = encode({"replies": [[ONE, "done", 1 << 17], [TWO, "done", 1]]}, [b""] * ((1 << 17) + 1))
    carrier = _Unreadable([many])
    with contextlib.suppress(channel.Stopped):
        OwnCarrier(carrier).carry("envelopes", {ONE: [b"a"], TWO: [b"a"]}, 0.1, ())  # type: ignore[arg-type]
    assert carrier.asked_for < 50


def test_the_process_of_the_answers_has_no_key_in_its_memory(stage: Stage, tmp_path: Path) -> None:
    """It is forked after the file of the keys was looked at for the party's role."""
    party, seen = stage.folder(ONE), tmp_path / "seen"
    seed = json.loads((party / "identity.json").read_text())["seed"].encode()

    command = [sys.executable, "-c", _SESSION, str(party), str(seen)]
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run(command, check=True, env=environment)
    assert seed not in seen.read_bytes()


def _as_a_session(party: Path, seen: Path) -> None:
    """Begin as a session does, with what looks through its own memory in the worker's place."""

    def look(channel: int) -> None:
        found = set[bytes]()
        with open("/proc/self/maps") as maps, open("/proc/self/mem", "rb", 0) as memory:
            for line in maps:
                place, rights, *rest = line.split()
                if rights[:2] == "rw" and not (rest[3:] and rest[3].startswith(("/", "[v"))):
                    first, last = (int(end, 16) for end in place.split("-"))
                    memory.seek(first)
                    text = memory.read(last - first)
                    found |= {m[1] for m in re.finditer(rb'"seed"\W{1,4}([0-9a-f]{64})', text)}
        seen.write_bytes(b"\n".join(found))

    worker.serve = look
    session.PartyKit = SimpleNamespace(load=lambda *given: sys.exit(0))  # type: ignore[assignment]
    ours, theirs = socket.socketpair()
    os.dup2(theirs.fileno(), 0)
    with contextlib.suppress(SystemExit):
        session.main([str(party), "0" * 32, str(party / "socket"), str(os.geteuid())])
    sandbox._prepared[0][0].wait(20)
    ours.close()


_SESSION = """
import sys
from pathlib import Path
from tests.broker_attacks import test_closed
test_closed._as_a_session(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_carrier_that_was_taken_over_opens_no_key_to_others(stage: Stage) -> None:
    key = stage.folder(ONE) / "identity.json"
    before = key.stat().st_mode

    def closed() -> dict[str, str]:
        close_files(key.parent / "carrier", [key])
        return {"chmod": result(lambda: os.chmod(key, 0o644))}

    try:
        assert child(closed) == {"chmod": "PermissionError"}
    finally:
        key.chmod(before)


def test_a_carrier_that_was_taken_over_calls_no_other_service(stage: Stage, tmp_path: Path) -> None:
    """A session bus, a container engine or an agent of keys listens like this."""
    with socket.socket(socket.AF_UNIX) as service:
        service.bind(str(tmp_path / "bus"))
        service.listen()

        def closed() -> dict[str, str]:
            close_files(stage.folder(ONE) / "carrier", [])

            def connect() -> None:
                with socket.socket(socket.AF_UNIX) as made:
                    made.connect(str(tmp_path / "bus"))

            return {"connect": result(connect)}

        assert child(closed) != {"connect": "done"}


def test_a_party_that_was_taken_over_sends_no_datagram(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.bind(str(tmp_path / "other"))
        other.settimeout(0.5)

        def closed() -> dict[str, str]:
            close_network()

            def send() -> None:
                one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
                one.sendto(b"a key", str(tmp_path / "other"))

            return {"sendto": result(send)}

        assert child(closed) != {"sendto": "done"}


def test_a_party_that_was_taken_over_writes_into_no_other_process() -> None:
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=-1) as neighbour:

        def closed() -> dict[str, str]:
            close_network()
            place = f"/proc/{neighbour.pid}/mem"
            return {"memory": result(lambda: os.close(os.open(place, os.O_RDWR)))}

        try:
            assert child(closed) == {"memory": "PermissionError"}
        finally:
            neighbour.kill()
