"""A server for one charter, and adversaries who speak to it without our carrier."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from protocols.plan.plan import roles_of
from secure_fgl.charters.broker import Broker, new_carrier_key
from secure_fgl.charters.charter import Charter
from secure_fgl.charters.party import new_identity
from secure_fgl.config import Config
from secure_fgl.federation import Federation
from secure_fgl.transports.broker.carrier import KEY_FILE, Connection, connected
from secure_fgl.transports.broker.config import connection, new_root, write_config
from secure_fgl.transports.broker.server import free_port, running

_RIGHTS = re.compile(r", permissions: \{.*\}(?=\})")
_CONFIG = {
    "algorithm": {"name": "fed_avg", "rounds": 2},
    "data": {"name": "synthetic_banks", "partition": {"name": "by_owner", "clients": 4}},
    "policy": "masks",
}


@dataclass(frozen=True)
class Stage:
    """A charter, its parties' folders and its broker's folder."""

    charter: Charter
    base: Path

    @property
    def subjects(self) -> str:
        """What begins each subject of the run."""
        return f"fgl.{self.charter.run}"

    def connection(self, name: str, port: int | None = None) -> Connection:
        """Return how a party reaches the broker, or another server on this machine."""
        found = connection(self.charter, name)
        return found if port is None else replace(found, urls=[f"tls://localhost:{port}"])

    def folder(self, name: str) -> Path:
        """Return a party's folder."""
        return self.base / name

    def seed(self, name: str) -> str:
        """Return the seed of a party's connection."""
        return (self.folder(name) / "carrier" / KEY_FILE).read_text("ascii").strip()

    @contextlib.contextmanager
    def serving(self, weaken: Callable[[str], str] = str, **more: Any) -> Iterator[int]:
        """Run a server at a port of its own, with a configuration that a control weakens."""
        port = free_port()
        place = self.base / f"server-{port}"
        place.mkdir(mode=0o700)
        for name in ("root.pem", "root.key"):
            (place / name).write_bytes((self.base / "broker" / name).read_bytes())
        file = write_config([self.charter], place, listen=f"localhost:{port}", **more)
        file.write_text(weaken(file.read_text()))
        with running(file, port):
            yield port


def assemble(base: Path) -> Stage:
    """Make every party's keys and draw up their charter."""
    config = Config.model_validate(_CONFIG)
    federation = Federation.from_config(config)
    known = roles_of(federation.plan(), federation.policy)
    announced = [new_identity(base / name, name, role) for name, role in known.items()]
    charter = Charter.draw_up(
        announced,
        {name: new_carrier_key(base / name) for name in known},
        broker=Broker((f"tls://localhost:{free_port()}",), new_root(base / "broker")),
        plan=federation.plan(),
        policy=federation.policy,
        config=config,
        organisations={name: f"House of {name}" for name in known},
    )
    return Stage(charter, base)


def without_rights(text: str) -> str:
    """Return a server's configuration in which every user may do everything."""
    weak = _RIGHTS.sub("", text)
    assert "permissions" not in weak
    return weak


@dataclass
class Adversary:
    """A connection with somebody's key, what it heard, and how often it was refused."""

    nats: Any
    heard: list[tuple[str, bytes]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)

    async def hears(self, subject: str) -> bool:
        """Subscribe; tell whether the server lets it."""

        async def came(message: Any) -> None:
            self.heard.append((message.subject, bytes(message.data)))

        return await self._tried(lambda: self.nats.subscribe(subject, cb=came))

    async def speaks(self, subject: str, data: bytes = b"x", reply: str = "") -> bool:
        """Publish; tell whether the server lets it."""
        return await self._tried(lambda: self.nats.publish(subject, data, reply=reply))

    async def _tried(self, act: Callable[[], Awaitable[Any]]) -> bool:
        before = len(self.refusals)
        await act()
        await self.nats.flush(5)
        await asyncio.sleep(0.02)  # the client hands a refusal over in a task of its own
        return len(self.refusals) == before


@contextlib.asynccontextmanager
async def adversary(to: Connection, seed: str | None, **options: Any) -> AsyncIterator[Adversary]:
    """Connect with a key, or with none."""
    made = Adversary(None)

    async def failed(error: Exception) -> None:
        made.refusals.append(str(error))

    made.nats = await connected(
        to, seed, note=lambda line: None, error_cb=failed, allow_reconnect=False,
        max_reconnect_attempts=0, **options,
    )  # fmt: skip
    try:
        yield made
    finally:
        await made.nats.close()


def played(play: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    """Return what a coroutine returns."""
    return asyncio.run(asyncio.wait_for(play(), 30))


def child(play: Callable[[], dict[str, str]]) -> dict[str, str]:
    """Return what is found in a child of this process: what it gives up does not come back."""
    read, write = os.pipe()
    if (pid := os.fork()) == 0:
        code = 1
        try:
            os.close(read)
            lines = [f"{name}\t{result}" for name, result in play().items()]
            os.write(write, "\n".join(lines).encode())
            code = 0
        except BaseException:
            os.write(write, traceback.format_exc().encode()[-30_000:])
        finally:
            os._exit(code)
    os.close(write)
    with os.fdopen(read, "rb") as end:
        text = end.read().decode()
    assert os.waitpid(pid, 0)[1] == 0, text
    return dict(line.split("\t") for line in text.splitlines())


def result(act: Callable[[], object]) -> str:
    """Return "done", or the name of the error by which the kernel refused it."""
    try:
        act()
    except OSError as error:
        return type(error).__name__
    return "done"
