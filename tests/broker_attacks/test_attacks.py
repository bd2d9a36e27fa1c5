"""Attacks that stay refused, each beside the same attack where the protection is taken away."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from secure_fgl.charters.broker import new_seed
from secure_fgl.isolation.separation import close_files, close_network
from secure_fgl.transports.broker import channel
from secure_fgl.transports.broker.config import Cluster
from secure_fgl.transports.broker.messages import (
    PART,
    Assembly,
    Kind,
    Malformed,
    Part,
    decode,
    encode,
    split,
)
from secure_fgl.transports.broker.server import free_port, running
from tests.broker_attacks.stage import (
    Stage,
    adversary,
    assemble,
    child,
    played,
    result,
    without_rights,
)

ONE, TWO, OFFICE = "client-1", "client-2", "aggregator"
_ATTACH = 16  # ptrace


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return assemble(tmp_path_factory.mktemp("stage"))


@pytest.fixture(scope="module")
def port(stage: Stage) -> Iterator[int]:
    with stage.serving() as found:
        yield found


@pytest.fixture(scope="module")
def weak(stage: Stage) -> Iterator[int]:
    """A server whose users may do everything."""
    with stage.serving(without_rights) as found:
        yield found


def _doors(stage: Stage) -> tuple[list[str], list[str]]:
    """Return where a site tried to hear and to speak: the second door's attacks among them."""
    run = stage.subjects
    hears = [f"{run}.to.{TWO}", f"{run}.to.*", f"{run}.>", "fgl.*.to.*", f"{run}.*.{ONE}", ">",
             f"{run}.replies.{OFFICE}.>", "_INBOX.>", "$SYS.>"]  # fmt: skip
    speaks = [f"{run}.to.{TWO}", f"{run}.to.{ONE}", f"{run}.replies.{OFFICE}.guessed", "other",
              "$SYS.REQ.SERVER.PING.VARZ",  # files, logs, processes and jobs of an engine were
              "$SYS.REQ.SERVER.PING.CONNZ",  # to be had by such requests
              "$SYS.REQ.USER.INFO", "$JS.API.STREAM.LIST", "_R_.guessed"]  # fmt: skip
    return hears, speaks


def test_a_site_hears_itself_alone_and_speaks_to_nobody(stage: Stage, port: int, weak: int) -> None:
    hears, speaks = _doors(stage)

    async def tried(at: int) -> tuple[list[bool], list[bool]]:
        async with adversary(stage.connection(ONE, at), stage.seed(ONE)) as site:
            heard = [await site.hears(subject) for subject in hears]
            return heard, [await site.speaks(subject) for subject in speaks]

    assert played(lambda: tried(port)) == ([False] * len(hears), [False] * len(speaks))
    assert played(lambda: tried(weak)) == ([True] * len(hears), [True] * len(speaks))


async def _replies(stage: Stage, at: int) -> list[bytes]:
    """Return what the aggregator hears of one request: of its site twice, and of another site."""
    inbox = f"{stage.subjects}.replies.{OFFICE}"
    async with (
        adversary(stage.connection(OFFICE, at), stage.seed(OFFICE)) as office,
        adversary(stage.connection(ONE, at), stage.seed(ONE)) as one,
        adversary(stage.connection(TWO, at), stage.seed(TWO)) as two,
    ):
        assert await office.hears(f"{inbox}.>")
        assert await one.hears(f"{stage.subjects}.to.{ONE}")
        await office.speaks(f"{stage.subjects}.to.{ONE}", b"request", f"{inbox}.token")
        await asyncio.sleep(0.1)
        assert one.heard == [(f"{stage.subjects}.to.{ONE}", b"request")]
        await two.speaks(f"{inbox}.token", b"stolen")
        await one.speaks(f"{inbox}.token", b"first")
        await one.speaks(f"{inbox}.token", b"second")
        await asyncio.sleep(0.1)
        return [data for _, data in office.heard]


def test_a_request_has_one_reply_and_none_of_another_site(
    stage: Stage, port: int, weak: int
) -> None:
    assert played(lambda: _replies(stage, port)) == [b"first"]
    assert played(lambda: _replies(stage, weak)) == [b"stolen", b"first", b"second"]


def test_a_stranger_stays_outside(stage: Stage, port: int) -> None:
    async def inside(at: int, seed: str | None) -> bool:
        try:
            async with adversary(stage.connection(ONE, at), seed):
                return True
        except Exception as error:
            assert "authorization" in str(error).lower()
            return False

    assert not played(lambda: inside(port, None))
    assert not played(lambda: inside(port, new_seed()))
    with stage.serving(lambda text: f"{text}no_auth_user: {stage.charter.carriers[TWO]}\n") as at:
        assert played(lambda: inside(at, None))
    assert played(lambda: inside(port, stage.seed(ONE)))


@contextlib.contextmanager
def _leaf(stage: Stage, hub: int, folder: Path) -> Iterator[int]:
    """Run a server of a site's own that logs in at the hub with the site's key."""
    port, file = free_port(), folder / f"leaf-{hub}.conf"
    root = stage.base / "broker" / "root.pem"
    file.write_text(
        f'listen: "localhost:{port}"\nleafnodes {{ remotes: [ {{ url: "tls://localhost:{hub}", '
        f'nkey: "{stage.seed(ONE)}", tls {{ ca_file: "{root}" }} }} ] }}\n'
    )
    with running(file, port):
        yield port


def test_a_leaf_node_with_a_site_s_key_hears_what_the_site_hears(
    stage: Stage, tmp_path: Path
) -> None:
    run = stage.subjects

    async def overheard(hub: int, leaf: int) -> set[bytes]:
        import nats

        heard = set[bytes]()

        async def came(message: Any) -> None:
            heard.add(bytes(message.data))

        inside = await nats.connect(f"nats://localhost:{leaf}", no_echo=True, allow_reconnect=False)
        await inside.subscribe(f"{run}.>", cb=came)
        await inside.flush()
        async with (
            adversary(stage.connection(OFFICE, hub), stage.seed(OFFICE)) as office,
            adversary(stage.connection(TWO, hub), stage.seed(TWO)) as two,
        ):
            assert await two.hears(f"{run}.to.{TWO}")
            for _ in range(100):  # until the leaf's wishes are known at the hub
                await office.speaks(f"{run}.to.{TWO}", b"for two")
                await office.speaks(f"{run}.to.{ONE}", b"for one")
                if b"for one" in heard:
                    break
            await inside.publish(f"{run}.to.{TWO}", b"forged")
            await inside.flush()
            await asyncio.sleep(0.1)
            await inside.close()
            return heard | {data for _, data in two.heard if data == b"forged"}

    for weaken, expected in ((str, {b"for one"}),
                             (without_rights, {b"for one", b"for two", b"forged"})):  # fmt: skip
        leaves = free_port()
        cluster = Cluster(name="hub", leaves=f"localhost:{leaves}")
        with stage.serving(weaken, cluster=cluster) as hub, _leaf(stage, leaves, tmp_path) as leaf:
            assert played(lambda hub=hub, leaf=leaf: overheard(hub, leaf)) == expected


@contextlib.contextmanager
def _neighbour() -> Iterator[int]:
    """Run another process of this user; yields its number."""
    with subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE) as made:
        try:
            yield made.pid
        finally:
            made.kill()


def test_a_carrier_that_was_taken_over_reaches_no_key_and_no_process(
    stage: Stage, tmp_path: Path
) -> None:
    party = stage.folder(ONE)
    (party / "runs").mkdir(exist_ok=True)
    libc = ctypes.CDLL(None, use_errno=True)

    def attached(process: int) -> None:
        if libc.ptrace(_ATTACH, process, None, None) != 0:
            raise PermissionError(ctypes.get_errno(), "ptrace")
        os.waitpid(process, 0)
        libc.ptrace(17, process, None, None)

    with _neighbour() as neighbour:
        acts = {
            "key": lambda: (party / "identity.json").read_bytes(),
            "by another name": lambda: Path(f"/proc/self/root{party}/identity.json").read_bytes(),
            "runs": lambda: os.listdir(party / "runs"),
            "move": lambda: os.rename(party / "identity.json", party / "carrier" / "moved"),
            "link": lambda: os.link(party / "identity.json", party / "carrier" / "linked"),
            "write": lambda: (tmp_path / "written").write_text("x"),
            "environment": lambda: Path(f"/proc/{neighbour}/environ").read_bytes(),
            "memory": lambda: os.close(os.open(f"/proc/{neighbour}/mem", os.O_RDONLY)),
            "ptrace": lambda: attached(neighbour),
            "signal": lambda: os.kill(neighbour, signal.SIGCONT),
            "program": lambda: subprocess.run(["/bin/true"], check=True),
            "listen": lambda: socket.create_server(("127.0.0.1", 0)).close(),
        }

        def closed() -> dict[str, str]:
            close_files(party / "carrier", [party / "identity.json", party / "runs"])
            assert (party / "carrier" / "carrier.key").read_text()  # its own is all that it has
            return {name: result(act) for name, act in acts.items()}

        assert child(closed) == dict.fromkeys(acts, "PermissionError")
        del acts["move"]
        assert child(lambda: {n: result(a) for n, a in acts.items()}) == dict.fromkeys(acts, "done")


def test_a_party_that_was_taken_over_opens_no_connection(tmp_path: Path) -> None:
    at = tmp_path / "service"
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(at))
        unix.listen()

        def to_unix() -> None:
            with socket.socket(socket.AF_UNIX) as made:
                made.connect(str(at))

        acts = {
            "tcp": lambda: socket.create_connection(tcp.getsockname(), 2).close(),
            "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close(),
            "unix": to_unix,
            "by a child": lambda: (
                os.waitpid(os.fork() or _exit(to_unix), 0)[1]
                and (_ for _ in ()).throw(PermissionError())
            ),
        }

        def closed() -> dict[str, str]:
            close_network()
            return {name: result(act) for name, act in acts.items()}

        assert child(closed) == dict.fromkeys(acts, "PermissionError")
        assert child(lambda: {n: result(a) for n, a in acts.items()}) == dict.fromkeys(acts, "done")


def _exit(act: Any) -> int:
    """End a child, with a code that says whether it could do something."""
    os._exit(result(act) != "done")


def test_another_user_is_not_greeted(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    for users, greeting in (({os.geteuid() + 1}, b""), ({os.geteuid()}, channel.GREETING)):
        with channel.bound(tmp_path / "socket") as listener, socket.socket(socket.AF_UNIX) as made:
            listener.listen()
            made.connect(str(tmp_path / "socket"))
            kept = channel.accept(listener, users)
            assert made.recv(64) == greeting
            if kept is not None:
                kept.close()


def test_a_socket_s_place_that_others_prepared_is_not_used(tmp_path: Path) -> None:
    victim, at = tmp_path / "victim", tmp_path / "party" / "socket"
    victim.write_text("mine")
    at.parent.mkdir(mode=0o700)
    at.symlink_to(victim)
    with pytest.raises(PermissionError, match="no socket"):
        channel.bound(at)
    at.unlink()
    at.parent.chmod(0o777)
    with pytest.raises(PermissionError, match="open to others"):
        channel.bound(at)
    at.parent.chmod(0o700)
    channel.bound(at).close()
    assert victim.read_text() == "mine"


def _message(head: bytes, rest: bytes = b"") -> bytes:
    return struct.pack(">I", len(head)) + head + rest


@pytest.mark.parametrize(
    "bomb",
    [
        b"",
        struct.pack(">I", 2**32 - 1),
        _message(b"[" * 500_000 + b"]" * 500_000),
        _message(b'{"sizes": ' + b"9" * 900_000 + b"}"),
        _message(b'{"sizes": [%s]}' % b",".join([b"0"] * 200_000)),
        _message(b'{"sizes": [4294967296]}'),
        _message(b'{"sizes": [-1, 1]}'),
        _message(b'{"sizes": [true]}', b"x"),
        _message(b'{"sizes": []}', b"x"),
        _message(b'{"do": "envelopes"}'),
        _message(b'["sizes"]'),
        _message(b"\xff\xfe{}"),
    ],
    ids=lambda bomb: repr(bomb[:20]),
)
def test_no_head_of_a_message_is_a_bomb(bomb: bytes) -> None:
    assert decode(encode({"do": "envelopes"}, [b"a"])) == ({"do": "envelopes"}, [b"a"])
    began = time.process_time()
    with pytest.raises(Malformed):
        decode(bomb)
    assert time.process_time() - began < 1


def test_a_size_that_is_announced_takes_no_memory_before_it_came() -> None:
    message = bytes(2 * PART)
    first, second = split(Kind.PUT, bytes(16), message)
    whole = Assembly(first, len(message))
    assert whole.add(first) is None
    assert whole.add(second) == message  # the control: what is announced and comes is taken
    tracemalloc.start()
    try:
        huge = Part(Kind.PUT, bytes(16), count=256, size=256 * PART)
        Assembly(huge, 256 * PART)
        with pytest.raises(Malformed):
            Assembly(huge, 256 * PART - 1)
        assert tracemalloc.get_traced_memory()[1] < 1 << 16
    finally:
        tracemalloc.stop()
    for wrong in (second, first, Part(Kind.PUT, bytes(16), 1, 2, len(message), first.digest)):
        begun = Assembly(first, len(message))
        if wrong is not second:
            begun.add(first)
        with pytest.raises(Malformed):
            begun.add(wrong)


def test_names_of_a_charter_write_nothing_into_a_configuration(stage: Stage) -> None:
    from dataclasses import replace

    from protocols.errors import EvidenceError
    from secure_fgl.charters.charter import Charter

    assert Charter.decode(stage.charter.encode()).run == stage.charter.run
    keys = {**stage.charter.carriers, ONE: "U} ] } accounts { evil { users: [ {nkey: U"}
    forged = replace(stage.charter, carriers=keys).encode()
    assert json.loads(forged)["carriers"][ONE].startswith("U}")
    with pytest.raises(EvidenceError):
        Charter.decode(forged)
