"""The process that holds a party's place in the network: sealed bytes in, sealed bytes out.

It has the key of its connection, which opens the broker's door and nothing else, and no key, data
or session of the run. Nobody can command it: what comes from the broker is handed to the party as
it is, and what the party says is published as it is. Its event loop computes nothing, so a party
that trains for hours keeps its connection.

::

    CARRIER/  carrier.key (0600)   the seed of the connection's key (NKey, Ed25519)
              RUN.json             of each run: the servers, their root certificate, the subjects
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import resource
import socket
import ssl
import stat
import sys
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from secure_fgl.isolation.kernel import set_traceable
from secure_fgl.isolation.separation import close_files
from secure_fgl.transports.broker.channel import ASK, CARRY, GONE, GREETING, LENGTH, below
from secure_fgl.transports.broker.messages import (
    MOST,
    Assembly,
    Code,
    Kind,
    Malformed,
    Part,
    decode,
    encode,
    split,
)
from secure_fgl.transports.broker.requests import Requests

__all__ = ["KEY_FILE", "Connection", "Site", "connected", "main"]

KEY_FILE = "carrier.key"  # of `secure_fgl.charters.broker`, which loads more than is needed here
_PING_SECONDS, _PINGS = 20, 2
_PAUSE_SECONDS = 0.2
_MAKES_LONGEST = 2.0  # seconds between two tries to reach a server
_GREETING_SECONDS = 3.0
_WAITING = 16  # messages that may wait for their answer
_MEMORY = 2 << 30  # bytes of a carrier beside its messages
_DEAD_SECONDS = 10  # in which nothing of a server's machine comes, not even an acknowledgement
_KEEP_ALIVE_SECONDS = 5
_GOODBYE_SECONDS = 1.0  # for TLS to close in order: who is cut off never gets that
_BUFFER = 4 << 20  # bytes that are read from the party before anybody asks for them
_SMALL = 1 << 16  # bytes of a message that are copied, so that its length goes with it
T = TypeVar("T")


@dataclass(frozen=True)
class Connection:
    """How a party's carrier reaches the broker in one run; public but for the key beside it.

    Attributes:
        run, party: whose it is.
        urls: the servers, ``tls://HOST:PORT``; any of them will do.
        root: the certificate (PEM) under which theirs are; empty: those of the system.
        listens: the subject on which requests to this party come; empty at the aggregator.
        asks: at the aggregator, the subject of each other party.
        inbox: before the subjects on which replies come to the aggregator.
        limits: bytes of a message: of a request to this party, or of each party's reply.
    """

    run: str
    party: str
    urls: Sequence[str]
    root: str
    listens: str
    inbox: str
    asks: Mapping[str, str] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)

    def text(self) -> str:
        """Return what is saved."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, folder: Path, run: str) -> Connection:
        """Read it; raises OSError, TypeError and ValueError for what is none of ours."""
        return cls(**json.loads((folder / f"{run}.json").read_text("utf-8")))

    def context(self) -> ssl.SSLContext:
        """Return how servers are verified: TLS 1.3, their name, and their root."""
        made = ssl.create_default_context(cadata=self.root or None)
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        return made


async def connected(
    to: Connection, seed: str | None, *, note: Callable[[str], None], **options: Any
) -> Any:
    """Return a client of the broker; raises what `nats.connect` raises.

    Args:
        to: where.
        seed: of the connection's key; None: a stranger's, who shows none.
        note: is given a line for the operator when the connection breaks or is refused something.
        options: beside ours, as `nats.connect` takes them.
    """
    from secure_fgl.transports.broker.client import BrokerClient, printable

    async def failed(error: Exception) -> None:
        note(f"the broker's connection: {printable(error) or type(error).__name__}")

    async def lost() -> None:
        note("the broker's connection is lost; it is made anew")

    ours: dict[str, Any] = {
        "servers": list(to.urls), "tls": to.context(), "tls_handshake_first": True,
        "nkeys_seed_str": seed, "name": to.party,
        "inbox_prefix": to.inbox, "no_echo": True, "connect_timeout": 5,
        "max_reconnect_attempts": -1, "reconnect_time_wait": _PAUSE_SECONDS,
        "ping_interval": _PING_SECONDS, "max_outstanding_pings": _PINGS,
        "error_cb": failed, "disconnected_cb": lost,
    }  # fmt: skip
    client = BrokerClient()
    await client.connect(**(ours | options))
    return client


class Site:
    """Answers what comes from the broker for one party: one request at a time, each once.

    The last reply stays until the next request is there, since its parts may be lost on the way.

    Args:
        ask: has the party answer a message; raises `Away` or `Left`.
        limit: bytes of a request that are taken.
    """

    def __init__(self, ask: Callable[[bytes], Any], limit: int) -> None:
        self._ask, self._limit = ask, min(limit, MOST)
        self._request: Assembly | None = None
        self._name, self._work = b"", asyncio.Future[list[Part] | str]()
        self._work.set_result("unknown")

    async def answer(self, data: bytes) -> bytes:
        """Return the one answer to a message of the broker's."""
        try:
            part = Part.decode(data)
        except Malformed:
            return _code(bytes(16), Code.UNREADABLE)
        try:
            return await self._answered(part)
        except Malformed:
            if self._request is not None and self._request.first.name == part.name:
                self._request = None
            return _code(part.name, Code.UNREADABLE)

    async def _answered(self, part: Part) -> bytes:
        mine = part.name == self._name
        if part.kind is not Kind.PUT and part.data:
            raise Malformed
        if part.kind is Kind.GET:
            reply = self._work.result() if mine and self._work.done() else "unknown"
            if isinstance(reply, list) and part.index < len(reply):
                return reply[part.index].encode()
            return _code(part.name, "unknown")
        if part.kind is Kind.PUT and not mine:
            if not self._work.done():
                return _code(part.name, Code.BUSY)
            if part.index == 0:
                self._request = Assembly(part, self._limit)
            if self._request is None or self._request.first.name != part.name:
                return _code(part.name, "unknown")
            message = self._request.add(part)
            if message is None:
                return Part(Kind.MORE, part.name, part.index + 1).encode()
            self._request, self._name = None, part.name
            self._work = asyncio.ensure_future(self._worked(part.name, message))
        elif part.kind not in (Kind.PUT, Kind.WAIT):
            raise Malformed
        elif not mine:
            return _code(part.name, "unknown")
        return await self._held(replace(part, data=b""))  # what is held keeps no bytes

    async def _held(self, part: Part) -> bytes:
        """Return the reply's first part once it is there, or how far the work is."""
        with contextlib.suppress(TimeoutError):
            hold = min(part.hold, 60_000) / 1000
            done = await asyncio.wait_for(asyncio.shield(self._work), hold)
            return done[0].encode() if isinstance(done, list) else _code(part.name, done)
        return _code(part.name, "taken")

    async def _worked(self, name: bytes, message: bytes) -> list[Part] | str:
        try:
            return split(Kind.REPLY, name, await self._ask(message))
        except Left:
            return Code.LEFT
        except Away:
            return Code.AWAY


def _code(name: bytes, word: str) -> bytes:
    return Part(Kind.CODE, name, data=str(word).encode()).encode()


class Away(Exception):
    """The party's process is not there."""


class Left(Away):
    """The party's process ended in order, or was never started."""


class Party:
    """The connection to the party's own process.

    Args:
        at: where it listens.
        handed: returns a connected socket; None: this process connects itself.
    """

    def __init__(
        self, at: Path, handed: Callable[[], Awaitable[socket.socket]] | None = None
    ) -> None:
        self._at, self._handed = at, handed
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, message: bytes) -> bytes:
        """Return the party's reply; raises Away, or Left."""
        for again in (False, True):
            kept = self._streams is not None
            reader, writer = await self.reached()
            try:
                await write(writer, message)
                return await read(reader)
            except (OSError, EOFError) as error:
                self.hang_up()
                if again or not kept:  # a connection that was kept may be a killed process's
                    raise Away from error
        raise Away

    async def reached(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return the streams, connected and greeted; raises Away, or Left."""
        if self._streams is None:
            try:
                if self._handed is not None:
                    made = await self._handed()
                    streams = await asyncio.open_unix_connection(sock=made, limit=_BUFFER)
                else:
                    with below(self._at) as name:
                        streams = await asyncio.open_unix_connection(name, limit=_BUFFER)
            except FileNotFoundError as error:
                raise Left from error
            except OSError as error:
                raise Away from error
            self._streams = streams
            try:
                greeting = streams[0].readexactly(len(GREETING))
                if await asyncio.wait_for(greeting, _GREETING_SECONDS) != GREETING:
                    raise EOFError
            except (OSError, EOFError, TimeoutError) as error:
                self.hang_up()
                raise Away from error
        return self._streams

    def hang_up(self) -> None:
        """Forget the connection."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


async def write(writer: asyncio.StreamWriter, message: bytes) -> None:
    """Write a message to the party; raises OSError."""
    head = LENGTH.pack(len(message))
    if len(message) <= _SMALL:
        writer.write(head + message)
    else:
        writer.write(head)
        writer.write(message)
    await writer.drain()


async def read(reader: asyncio.StreamReader) -> bytes:
    """Read a message of the party; raises OSError and EOFError."""
    (size,) = LENGTH.unpack(await reader.readexactly(LENGTH.size))
    if size > MOST:
        raise EOFError
    return await reader.readexactly(size)


async def carry_for_site(client: Any, to: Connection, party: Party) -> None:
    """Serve one party that is not the aggregator, for as long as the process lives."""
    site = Site(party.ask, to.limits.get(to.party, MOST))
    waiting = set[asyncio.Task[None]]()

    async def answered(message: Any) -> None:
        answer = await site.answer(message.data)
        with contextlib.suppress(Exception):  # the connection is lost: it will be asked again
            await message.respond(answer)

    async def came(message: Any) -> None:
        if len(waiting) >= _WAITING:  # more than any aggregator of ours has open
            return
        task = asyncio.create_task(answered(message))
        waiting.add(task)
        task.add_done_callback(waiting.discard)

    await client.subscribe(to.listens, cb=came, pending_msgs_limit=64)
    await asyncio.Event().wait()


async def carry_for_aggregator(client: Any, to: Connection, party: Party) -> None:
    """Carry what the aggregator's own process asks for, whichever process of it is there."""
    requests = Requests(client, to.asks, to.limits)
    client._reconnected_cb = requests.reconnected
    while True:
        try:
            reader, writer = await party.reached()
            head, envelopes = decode(await read(reader))
            if head.get("do") != CARRY:
                raise Malformed
            bundles: dict[str, list[bytes]] = {}
            for name, count in head["parties"]:
                bundles[name], envelopes = envelopes[:count], envelopes[count:]
            carried = requests.carry(
                str(head["task"]), bundles, float(head["seconds"]), {*head["unhurried"]}
            )
            replies = await _while_there(reader, carried)
            came = [[name, str(r.code), len(r.envelopes)] for name, r in replies.items()]
            content = [envelope for r in replies.values() for envelope in r.envelopes]
            await write(writer, encode({"replies": came}, content))
        except (Away, OSError, EOFError, Malformed, KeyError, TypeError, ValueError):
            party.hang_up()
            await asyncio.sleep(_PAUSE_SECONDS)


async def _while_there(reader: asyncio.StreamReader, work: Coroutine[Any, Any, T]) -> T:
    """Await work for as long as the party that asked for it is there; raises EOFError."""
    task, gone = asyncio.create_task(work), asyncio.create_task(reader.read(1))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise EOFError
        return task.result()
    finally:
        task.cancel()
        gone.cancel()
        with contextlib.suppress(asyncio.CancelledError, OSError):
            await gone


class Loop(asyncio.SelectorEventLoop):
    """An event loop whose connections notice within seconds that their line was cut.

    The kernel does, by what is acknowledged: a slow line that moves at all is none that was cut.
    Pings of the protocol wait behind megabytes, so those alone would need a minute.
    """

    async def create_connection(self, *arguments: Any, **options: Any) -> Any:
        """Connect as asyncio does, and have the kernel watch the connection."""
        transport, protocol = await super().create_connection(*arguments, **options)
        connection = transport.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            (socket.TCP_KEEPIDLE, _KEEP_ALIVE_SECONDS),
            (socket.TCP_KEEPINTVL, _KEEP_ALIVE_SECONDS),
            (socket.TCP_USER_TIMEOUT, 1000 * _DEAD_SECONDS),
        ):
            connection.setsockopt(socket.IPPROTO_TCP, option, value)
        return transport, protocol

    async def start_tls(self, *arguments: Any, **options: Any) -> Any:
        """Begin TLS as asyncio does; it waits half a minute for a goodbye otherwise."""
        return await super().start_tls(*arguments, ssl_shutdown_timeout=_GOODBYE_SECONDS, **options)


class Starter:
    """The socket to `site start`: it hands connections to the party over, and its end ends us.

    So this process opens no Unix socket, and none of another service.

    Args:
        control: from the process that started this one.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control, self._asked = control, list[asyncio.Future[socket.socket]]()
        self._task = asyncio.current_task()
        control.setblocking(False)
        asyncio.get_running_loop().add_reader(control, self._hear)

    async def connection(self) -> socket.socket:
        """Return a socket that is connected to the party; raises FileNotFoundError, or OSError."""
        asked = asyncio.get_running_loop().create_future()
        self._asked.append(asked)
        self._control.send(ASK)
        return await asyncio.wait_for(asked, _GREETING_SECONDS)

    def _hear(self) -> None:
        try:
            word, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
        except OSError:
            word, descriptors = b"", []
        made = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        asked = self._asked.pop(0) if self._asked else None
        if not word and self._task is not None:
            asyncio.get_running_loop().remove_reader(self._control)
            self._task.cancel()
        elif asked is None or asked.done():
            for connection in made:
                connection.close()
        elif made:
            asked.set_result(made[0])
        else:
            asked.set_exception(FileNotFoundError() if word == GONE else ConnectionRefusedError())


async def run(
    folder: Path,
    to: Connection,
    at: Path,
    secret: Sequence[Path],
    note: Callable[[str], None],
    control: socket.socket | None,
) -> None:
    """Connect, give up all files, and carry; ends only when it is cancelled.

    Args:
        folder: of the carrier.
        to: how it reaches the broker.
        at: where the party listens.
        secret: files that must not open.
        note: prints a line for the operator.
        control: to the process that started this one; None: this one keeps Unix sockets.
    """
    import nats

    from secure_fgl.transports.broker.client import printable

    seed = _seed(folder)
    starter = Starter(control) if control is not None else None
    ports = {int(url.rpartition(":")[2]) for url in to.urls}
    close_files(folder, secret, ports=ports, unix=starter is None)
    pause = _PAUSE_SECONDS
    while True:
        try:
            client = await connected(to, seed, note=note)
            break
        except (nats.errors.Error, OSError, TimeoutError) as error:
            if pause == _PAUSE_SECONDS:
                why = printable(error)
                note(f"the broker is not reached yet ({type(error).__name__}: {why})")
            await asyncio.sleep(pause)
            pause = min(2 * pause, _MAKES_LONGEST)
    note("connected to the broker")
    party = Party(at, starter.connection if starter is not None else None)
    await (carry_for_aggregator if to.asks else carry_for_site)(client, to, party)


def _seed(folder: Path) -> str:
    """Return the connection's key; raises PermissionError where others can read it."""
    path = folder / KEY_FILE
    if path.stat().st_mode & 0o077:
        raise PermissionError(f"{path} can be read by other users: chmod 600 {path}")
    return path.read_text("ascii").strip()


def _is_socket(descriptor: int) -> bool:
    try:
        return stat.S_ISSOCK(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Be one party's carrier: ``python -m secure_fgl.transports.broker.carrier``.

    `site start` and `site carry` start it with a socket as its standard input, and nothing starts
    without one but with ``--alone``: then it connects to the party itself, keeps Unix sockets, and
    says so. Tests and measurements do that.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("run")
    parser.add_argument("socket", type=Path)
    parser.add_argument("--secret", type=Path, action="append", default=[])
    parser.add_argument("--alone", action="store_true")
    given = parser.parse_args(arguments)

    def note(line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    if not given.alone and not _is_socket(0):
        note("a carrier is started by site start, or by site carry")
        return 2
    if given.alone:
        note("NOT CLOSED: this carrier keeps Unix sockets, since nothing hands it connections")
    control = None if given.alone else socket.socket(fileno=os.dup(0))
    try:
        to = Connection.load(given.folder, given.run)
    except (OSError, TypeError, ValueError) as error:
        note(f"{given.folder} holds no connection for {given.run} ({type(error).__name__})")
        return 2
    set_traceable(False)  # it holds the connection's key
    held = int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    most = held + _MEMORY + 4 * min(sum(to.limits.values()), 8 * MOST)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    ended = (KeyboardInterrupt, asyncio.CancelledError)
    try:
        with contextlib.suppress(*ended), asyncio.Runner(loop_factory=Loop) as runner:
            runner.run(run(given.folder, to, given.socket, given.secret, note, control))
    except PermissionError as error:
        note(str(error))
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
