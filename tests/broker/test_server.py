"""At a real server: what it refuses, what `broker check` sees of that, and what faults cost."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.charters.broker import new_seed
from secure_fgl.transports.broker.carrier import Connection, connected
from secure_fgl.transports.broker.check import Finding, check_broker
from secure_fgl.transports.broker.config import MAX_PAYLOAD, write_config
from secure_fgl.transports.broker.messages import PART, Code, SiteReply
from secure_fgl.transports.broker.server import running, start_server
from tests.broker.carriers import Carried, carried
from tests.broker.stage import Stage, again, assemble, banks, serving

ONE, TWO = "client-1", "client-2"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Stage:
    return assemble(banks(clients=3), tmp_path_factory.mktemp("stage"))


@pytest.fixture(scope="module")
def other(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Stage:
    """A run of other parties at the same server."""
    url, base = stage.charter.broker.urls[0], tmp_path_factory.mktemp("other")
    return assemble(banks(clients=3), base, broker=stage.broker, url=url)


@pytest.fixture(scope="module")
def second(stage: Stage) -> Stage:
    """One more run of the same parties."""
    return again(stage, banks(clients=3))


@pytest.fixture(scope="module")
def server(stage: Stage, other: Stage, second: Stage) -> Iterator[Any]:
    with serving(stage, other, second) as process:
        yield process


class Client:
    """A connection to the server and what it was refused."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.heard: list[tuple[str, bytes]] = []
        self.nats: Any = None

    async def hear(self, subject: str) -> None:
        async def came(message: Any) -> None:
            self.heard.append((message.subject, message.data))

        await self.nats.subscribe(subject, cb=came)

    async def refused(self, verb: str, subject: str) -> bool:
        """Try it; tell whether the server refuses it."""
        if verb == "publish":
            await self.nats.publish(subject, b"x")
        else:
            await self.hear(subject)
        await self.nats.flush(5)
        await asyncio.sleep(0.05)
        wanted = f'{"publish" if verb == "publish" else "subscription"} to "{subject.lower()}"'
        return any(wanted in line.lower() for line in self.lines)


@contextlib.asynccontextmanager
async def client(to: Connection, seed: str | None) -> Any:
    made = Client()

    async def failed(error: Exception) -> None:
        made.lines.append(str(error))

    made.nats = await connected(
        to, seed, note=made.lines.append, error_cb=failed, allow_reconnect=False,
        max_reconnect_attempts=0,
    )  # fmt: skip
    try:
        yield made
    finally:
        await made.nats.close()


def played(play: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(play(), 60))


def test_nobody_enters_without_a_key_of_the_charter(stage: Stage, server: Any) -> None:
    async def play() -> None:
        to = stage.connection(ONE)
        for seed in (None, new_seed()):
            with pytest.raises(Exception, match=r"(?i)authorization violation"):
                async with client(to, seed):
                    pass
        async with client(to, stage.seed(ONE)) as made:  # the control
            assert made.nats.is_connected

    played(play)


def test_nothing_is_taken_in_clear(stage: Stage, server: Any) -> None:
    with socket.create_connection(("localhost", stage.port), 5) as connection:
        connection.sendall(b'CONNECT {"verbose":true,"pedantic":false}\r\nPING\r\n')
        connection.settimeout(10)
        with contextlib.suppress(ConnectionError):
            assert b"PONG" not in connection.recv(65536)


def forbidden(stage: Stage, other: Stage) -> list[tuple[str, str]]:
    """Return what a site tries that is not its own."""
    run, inbox = stage.run, f"fgl.{stage.run}.replies.{AGGREGATOR_NAME}"
    hears = [f"fgl.{run}.to.{TWO}", f"fgl.{run}.to.*", f"fgl.{run}.>", f"{inbox}.>", f"{inbox}.x",
             ">", "*", "$SYS.>", "$JS.API.>", "_INBOX.>", f"fgl.{other.run}.to.{ONE}",
             f"fgl.{run}.replies.{ONE}.>"]  # fmt: skip
    speaks = [f"fgl.{run}.to.{TWO}", f"fgl.{run}.to.{ONE}", f"{inbox}.x", "$SYS.REQ.SERVER.PING",
              "$SYS.REQ.USER.INFO", "$JS.API.INFO", "$JS.API.STREAM.CREATE.x", "x",
              f"fgl.{other.run}.to.{ONE}"]  # fmt: skip
    return [("hear", subject) for subject in hears] + [("publish", subject) for subject in speaks]


def test_a_site_neither_hears_nor_speaks_in_anothers_place(
    stage: Stage, other: Stage, server: Any
) -> None:
    async def play() -> None:
        async with client(stage.connection(ONE), stage.seed(ONE)) as made:
            for verb, subject in forbidden(stage, other):
                assert await made.refused(verb, subject), (verb, subject)
            assert not await made.refused("hear", f"fgl.{stage.run}.to.{ONE}")  # the control

    played(play)


def test_a_party_of_two_runs_has_the_rights_of_both(
    stage: Stage, second: Stage, other: Stage, server: Any
) -> None:
    async def play() -> None:
        async with (
            client(second.connection(ONE), second.seed(ONE)) as site,
            client(stage.connection(AGGREGATOR_NAME), stage.seed(AGGREGATOR_NAME)) as office,
        ):
            for run in (stage.run, second.run):
                await site.hear(f"fgl.{run}.to.{ONE}")
                assert await site.refused("hear", f"fgl.{run}.to.{TWO}")
                assert await site.refused("publish", f"fgl.{run}.to.{ONE}")
            assert await site.refused("hear", f"fgl.{other.run}.to.{ONE}")
            for run in (stage.run, second.run):
                await office.nats.publish(f"fgl.{run}.to.{ONE}", run.encode())
            await office.nats.flush(5)
            await asyncio.sleep(0.2)
            assert {data.decode() for _, data in site.heard} == {stage.run, second.run}
            assert not office.lines

    played(play)


def test_the_aggregator_hears_its_replies_and_asks_alone(
    stage: Stage, other: Stage, server: Any
) -> None:
    async def play() -> None:
        to, run = stage.connection(AGGREGATOR_NAME), stage.run
        async with client(to, stage.seed(AGGREGATOR_NAME)) as made:
            for verb, subject in (
                ("hear", f"fgl.{run}.to.{ONE}"), ("hear", ">"), ("hear", "$SYS.>"),
                ("publish", f"fgl.{run}.replies.{AGGREGATOR_NAME}.x"), ("publish", "$JS.API.INFO"),
                ("publish", f"fgl.{other.run}.to.{ONE}"),
            ):  # fmt: skip
                assert await made.refused(verb, subject), (verb, subject)
            assert not await made.refused("publish", f"fgl.{run}.to.{ONE}")
            assert not await made.refused("hear", f"fgl.{run}.replies.{AGGREGATOR_NAME}.>")

    played(play)


def test_one_reply_leaves_for_each_message_and_no_other(stage: Stage, server: Any) -> None:
    async def play() -> None:
        office, site = stage.connection(AGGREGATOR_NAME), stage.connection(ONE)
        async with (
            client(office, stage.seed(AGGREGATOR_NAME)) as asks,
            client(site, stage.seed(ONE)) as made,
        ):
            reply = f"{office.inbox}.abc"
            got = asyncio.Event()

            async def came(message: Any) -> None:
                for answer in (b"one", b"two"):
                    await made.nats.publish(message.reply, answer)
                await made.nats.publish(f"{office.inbox}.other", b"x")
                got.set()

            await made.nats.subscribe(site.listens, cb=came)
            await made.nats.flush(5)
            await asks.hear(f"{office.inbox}.>")
            assert await made.refused("publish", reply), "before anything came"
            made.lines.clear()
            await asks.nats.publish(f"fgl.{stage.run}.to.{ONE}", b"q", reply=reply)
            await asyncio.wait_for(got.wait(), 5)
            await made.nats.flush(5)
            await asyncio.sleep(0.2)
            assert asks.heard == [(reply, b"one")]
            assert sum("permissions violation" in line.lower() for line in made.lines) == 2

    played(play)


def planted(stage: Stage, change: Callable[[str], str]) -> contextlib.AbstractContextManager[Any]:
    """Run a server with a configuration that somebody changed."""
    config = write_config([stage.charter], stage.broker, listen=f"localhost:{stage.port}")
    before = config.read_text()
    config.write_text(change(before))
    assert config.read_text() != before
    return running(config, stage.port)


def found(stage: Stage, name: str = ONE) -> dict[str, list[Finding]]:
    of: dict[str, list[Finding]] = {}
    listed = check_broker(stage.folders[name] / "carrier", stage.connection(name), stage.charter)
    for finding in listed:
        of.setdefault(finding.name, []).append(finding)
    return of


@pytest.fixture
def own(tmp_path: Path) -> Stage:
    """A stage whose server a test changes."""
    return assemble(banks(clients=3), tmp_path)


ALL = ["certificate", "clear", "stranger", "monitoring", "entry", "limits", "storage", "hearing",
       "speaking"]  # fmt: skip


@pytest.mark.parametrize("name", [ONE, AGGREGATOR_NAME])
def test_the_right_server_passes_every_check(stage: Stage, server: Any, name: str) -> None:
    findings = found(stage, name)
    assert [*findings] == ALL
    wrong = [f for some in findings.values() for f in some if f.ok is not True]
    assert [f.name for f in wrong] in ([], ["monitoring"]), wrong


WIDE = '{{nkey: {key}, permissions: {{publish: ">", subscribe: ">"}}}}'


def _first(text: str, line: str) -> str:
    return text.replace("max_control_line", f"{line}\nmax_control_line", 1)


FAULTS: dict[str, tuple[str, Callable[[str], str]]] = {
    "another hears": ("hearing", lambda t: t.replace(f".to.{ONE}\"], allow", ".to.*\"], allow")),
    "another speaks": ("speaking", lambda t: t.replace('{deny: [">"]}', '"fgl.>"')),
    "administration": ("speaking", lambda t: t.replace('{deny: [">"]}', '"$SYS.>"')),
    "storage": ("storage", lambda t: _first(t, "jetstream: enabled")),
    "a smaller limit": ("limits", lambda t: t.replace(f"{MAX_PAYLOAD}", f"{1 << 19}", 1)),
    "a larger limit": ("limits", lambda t: t.replace(f"{MAX_PAYLOAD}", f"{MAX_PAYLOAD + 1}", 1)),
    "clear": ("clear", lambda t: t.replace("users: [", 'users: [{user: "u", password: "p"}')
              .replace("tls {", "allow_non_tls: true\ntls {", 1)
              .replace("handshake_first: true", 'handshake_first: "50ms"') + "\nno_auth_user: u\n"),
    "no key": ("stranger", lambda t: t.replace("users: [", 'users: [{user: "u", password: "p"}')
               + "\nno_auth_user: u\n"),
    "a key less": ("entry", lambda t: "\n".join(
        line for line in t.splitlines() if not line.endswith(f"# {ONE}"))),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_each_check_sees_its_fault(fault: str, own: Stage, tmp_path: Path) -> None:
    name, change = FAULTS[fault]
    place = os.getcwd()
    os.chdir(tmp_path)  # where a server with storage keeps it
    try:
        with planted(own, lambda t: change(t).replace("enabled", f'{{store_dir: "{tmp_path}/j"}}')):
            findings = found(own)
    finally:
        os.chdir(place)
    assert any(finding.ok is False for finding in findings[name]), findings
    harmless = {*ALL} - {name, "speaking", "hearing"} - ({"stranger"} if name == "clear" else set())
    assert not [f for n in harmless for f in findings.get(n, []) if f.ok is False]


def test_a_server_of_another_root_or_none_fails_the_first_check(own: Stage, tmp_path: Path) -> None:
    (gone,) = (some for some in found(own).values())
    assert [(f.name, f.ok) for f in gone] == [("certificate", False)]
    url = own.charter.broker.urls[0]
    strange = assemble(banks(clients=3), tmp_path / "strange", url=url)
    with serving(strange):
        (wrong,) = (some for some in found(own).values())
    assert [(f.name, f.ok) for f in wrong] == [("certificate", False)]
    assert "is not taken" in wrong[0].sentence


def test_an_account_sees_nothing_of_another_even_with_every_right(
    own: Stage, tmp_path: Path
) -> None:
    url = own.charter.broker.urls[0]
    second = assemble(banks(clients=3), tmp_path / "second", broker=own.broker, url=url)
    charters = [own.charter, second.charter]
    config = write_config(charters, own.broker, listen=f"localhost:{own.port}")
    key = re.escape(own.charter.carriers[ONE])
    text, count = re.subn(rf"(?m)^.*{key}.*$", WIDE.format(key=own.charter.carriers[ONE]),
                          config.read_text())  # fmt: skip
    assert count == 1
    config.write_text(text)

    async def play() -> None:
        offices = [
            (stage, client(stage.connection(AGGREGATOR_NAME), stage.seed(AGGREGATOR_NAME)))
            for stage in (own, second)
        ]
        async with client(own.connection(ONE), own.seed(ONE)) as spy:
            await spy.hear(">")
            await spy.nats.flush(5)
            for stage, entered in offices:
                async with entered as office:
                    await office.nats.publish(f"fgl.{stage.run}.to.{TWO}", b"secret")
                    await office.nats.flush(5)
            await asyncio.sleep(0.2)
            assert spy.heard == [(f"fgl.{own.run}.to.{TWO}", b"secret")]

    with running(config, own.port):
        played(play)


def test_another_run_is_added_without_cutting_the_first(own: Stage, tmp_path: Path) -> None:
    url = own.charter.broker.urls[0]
    second = assemble(banks(clients=3), tmp_path / "second", broker=own.broker, url=url)

    async def play(server: Any) -> None:
        async with client(own.connection(AGGREGATOR_NAME), own.seed(AGGREGATOR_NAME)) as first:
            with pytest.raises(Exception, match=r"(?i)authorization"):
                async with client(second.connection(ONE), second.seed(ONE)):
                    pass
            charters = [own.charter, second.charter]
            write_config(charters, own.broker, listen=f"localhost:{own.port}")
            server.send_signal(signal.SIGHUP)
            for _ in range(100):
                await asyncio.sleep(0.05)
                with contextlib.suppress(Exception):
                    async with client(second.connection(ONE), second.seed(ONE)) as made:
                        assert made.nats.is_connected
                        break
            else:
                raise AssertionError("the second run was not added")
            await first.nats.flush(5)
            assert first.nats.is_connected
            assert first.lines == []

    with serving(own) as server:
        asyncio.run(asyncio.wait_for(play(server), 60))


def echo(envelopes: Sequence[bytes]) -> Sequence[bytes]:
    return [bytes(reversed(envelope)) for envelope in envelopes]


def slowly(seconds: float) -> Callable[[Sequence[bytes]], Sequence[bytes]]:
    def work(envelopes: Sequence[bytes]) -> Sequence[bytes]:
        time.sleep(seconds)
        return echo(envelopes)

    return work


def test_large_messages_cross_both_ways(stage: Stage, server: Any) -> None:
    large = [os.urandom(9 << 20), os.urandom(PART), b"small"]
    with carried(stage, {ONE: echo, TWO: echo}, limit=32 << 20) as made:
        replies = made.carry({ONE: large, TWO: [b"abc"]})
    assert replies == {ONE: SiteReply(Code.DONE, echo(large)), TWO: SiteReply(Code.DONE, [b"cba"])}


def test_messages_above_the_charters_limit_are_refused_at_both_ends(
    stage: Stage, server: Any
) -> None:
    limit = stage.connection(ONE).limits[ONE]
    asked: list[int] = []

    def floods(envelopes: Sequence[bytes]) -> Sequence[bytes]:
        asked.append(len(envelopes[0]))
        return [bytes(limit + 1)]

    with carried(stage, {ONE: floods, TWO: echo}) as made:
        replies = made.carry({ONE: [bytes(limit + 1)], TWO: [b"a"]})
        assert replies == {ONE: SiteReply(Code.UNREADABLE, []), TWO: SiteReply(Code.DONE, [b"a"])}
        assert asked == []
        replies = made.carry({ONE: [b"b"], TWO: [b"a"]})
        assert replies == {ONE: SiteReply(Code.FAILED, []), TWO: SiteReply(Code.DONE, [b"a"])}
        assert asked == [1]


def meanwhile(made: Carried, *acts: Callable[[], object]) -> threading.Thread:
    """Do something while an exchange is under way."""

    def later() -> None:
        time.sleep(0.7)
        for act in acts:
            act()

    thread = threading.Thread(target=later)
    thread.start()
    return thread


@pytest.mark.parametrize("name", [ONE, AGGREGATOR_NAME])
def test_a_carrier_that_is_killed_costs_nothing(stage: Stage, server: Any, name: str) -> None:
    sooner = {"PYTHONPATH": str(Path(__file__).parent / "tap"), "SECURE_FGL_TEST_HOLD": "1"}
    with carried(stage, {ONE: slowly(2.0), TWO: echo}, more=sooner) as made:
        made.up()
        act = meanwhile(made, lambda: made.kill(name), lambda: made.start(name))
        began = time.monotonic()
        codes = list[Code]()
        asked = {ONE: [b"ab"], TWO: [b"cd"]}
        while asked:  # as `waiting` asks again
            replies = made.carry(asked)
            codes += [reply.code for reply in replies.values()]
            asked = {n: asked[n] for n, r in replies.items() if r.code is not Code.DONE}
            for n, r in replies.items():
                assert r.code is not Code.DONE or r.envelopes == [b"ba" if n == ONE else b"dc"]
        act.join()
        assert {*codes} <= {Code.DONE, Code.BUSY}
        assert time.monotonic() - began < 20


def test_a_server_that_is_killed_costs_at_most_the_wait_for_it(own: Stage) -> None:
    config = write_config([own.charter], own.broker, listen=f"localhost:{own.port}")
    servers = [start_server(config, own.port)]

    def anew() -> None:
        servers[0].kill()
        servers[0].wait()
        time.sleep(0.5)
        servers.append(start_server(config, own.port))

    try:
        with carried(own, {ONE: slowly(1.5), TWO: echo}) as made:
            made.up()
            act, began = meanwhile(made, anew), time.monotonic()
            replies = made.carry({ONE: [b"ab"], TWO: [b"cd"]}, 60.0)
            act.join()
            assert {n: r.envelopes for n, r in replies.items()} == {ONE: [b"ba"], TWO: [b"dc"]}
            assert time.monotonic() - began < 15
            assert made.carry({ONE: [b"x"]})[ONE].code is Code.DONE
    finally:
        for server in servers:
            server.kill()
            server.wait()
