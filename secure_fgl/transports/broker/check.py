"""Whether the running server is the one that a charter describes, tried from outside.

A stranger knocks in clear, without a key and with a new one. Then the party connects as itself and
tries, one by one, all that it must not do: to hear and to speak in every other party's place, as
the aggregator, as an administrator, and to storage. Each refusal is the server's own.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from secure_fgl.charters.broker import new_seed
from secure_fgl.charters.charter import Charter
from secure_fgl.errors import UsageError
from secure_fgl.transports.broker.carrier import KEY_FILE, Connection, connected
from secure_fgl.transports.broker.config import MAX_PAYLOAD, rights

__all__ = ["Finding", "check_broker"]

_SECONDS = 10.0
_MONITORING = 8222  # where NATS serves its monitoring pages, if it is told to
_ADMINISTRATION = ("$SYS.REQ.SERVER.PING", "$SYS.REQ.ACCOUNT.PING", "$JS.API.INFO")


@dataclass(frozen=True)
class Finding:
    """One thing that was tried. Attributes: name; ok, None: it could not be tried; a sentence."""

    name: str
    ok: bool | None
    sentence: str


def check_broker(folder: Path, to: Connection, charter: Charter) -> list[Finding]:
    """Try the server with the key of one party's carrier; return the findings in order.

    Args:
        folder: of the carrier, with its key.
        to: how it reaches the broker.
        charter: of the run.

    Raises:
        UsageError: the key cannot be read.
    """
    try:
        seed = (folder / KEY_FILE).read_text("ascii").strip()
    except OSError as error:
        raise UsageError(f"{folder / KEY_FILE} cannot be read ({error.strerror}).") from error
    return asyncio.run(_tried(to, seed, charter))


async def _tried(to: Connection, seed: str, charter: Charter) -> list[Finding]:
    findings = [await _certificate(to)]
    if not findings[0].ok:
        return findings
    findings += [await _clear(to), await _stranger(to, None, "without a key")]
    findings += [await _stranger(to, new_seed(), "with a key that no charter names")]
    findings += [await _monitoring(to)]
    return [*findings, *await _as_itself(to, seed, charter)]


def _at(to: Connection) -> tuple[str, int]:
    host, _, port = to.urls[0].removeprefix("tls://").rpartition(":")
    return host.strip("[]"), int(port)


async def _certificate(to: Connection) -> Finding:
    """The server answers, and shows a certificate of the charter's root for its name."""
    host, port = _at(to)
    try:
        made = asyncio.open_connection(host, port, ssl=to.context(), server_hostname=host)
        reader, writer = await asyncio.wait_for(made, _SECONDS)
        version = writer.get_extra_info("ssl_object").version()
        await asyncio.wait_for(reader.readline(), _SECONDS)
        writer.close()
    except ssl.SSLError as error:
        return Finding("certificate", False, f"{host}:{port} is not taken: {error.reason}")
    except (OSError, TimeoutError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "no answer"
        return Finding("certificate", False, f"{host}:{port} is not reached ({why})")
    return Finding("certificate", True, f"{host}:{port} is the charter's server ({version})")


async def _clear(to: Connection) -> Finding:
    """A connection without TLS is refused."""
    reader, writer = await asyncio.open_connection(*_at(to))
    try:
        with contextlib.suppress(TimeoutError):  # one that begins with TLS says nothing
            await asyncio.wait_for(reader.readline(), 1.0)
        writer.write(b'CONNECT {"verbose":false}\r\nPING\r\n')
        await writer.drain()
        answer = await asyncio.wait_for(reader.read(4096), _SECONDS)
        clear = b"PONG" in answer
    except (OSError, TimeoutError):
        clear = False
    finally:
        writer.close()
    said = "takes connections in clear" if clear else "refuses a connection without TLS"
    return Finding("clear", not clear, f"the server {said}")


async def _stranger(to: Connection, seed: str | None, how: str) -> Finding:
    try:
        client = await _connect(to, seed, [])
        await client.close()
    except Exception as error:  # the client's own errors have no type for each word of a server
        if "authorization" in str(error).lower():
            return Finding("stranger", True, f"a stranger {how} is refused")
        return Finding("stranger", None, f"a stranger {how} was not refused by name ({error})")
    return Finding("stranger", False, f"a stranger {how} may connect")


async def _monitoring(to: Connection) -> Finding:
    """No monitoring pages at their usual port."""
    try:
        host = _at(to)[0]
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, _MONITORING), 2.0)
        writer.close()
    except (OSError, TimeoutError):
        return Finding("monitoring", True, f"nothing listens at the server's port {_MONITORING}")
    return Finding("monitoring", None, f"something listens at the server's port {_MONITORING}")


@dataclass
class _Heard:
    """What the server refused, by subject."""

    lines: list[str] = field(default_factory=list)

    def refused(self, verb: str, subject: str) -> bool:
        """Tell whether it refused this; its messages are in lower case."""
        wanted = f'permissions violation for {verb} to "{subject.lower()}"'
        return any(wanted in line.lower() for line in self.lines)


async def _as_itself(to: Connection, seed: str, charter: Charter) -> list[Finding]:
    heard = _Heard()
    try:
        client = await _connect(to, seed, heard.lines)
    except Exception as error:
        said = f"this party is refused ({type(error).__name__}: {error})"
        return [Finding("entry", False, said)]
    try:
        info = client._server_info
        findings = [Finding("entry", True, "this party may connect, by the key in its facts")]
        findings += [*_described(info)]
        subscribed, published = _forbidden(to, charter)
        for subject in subscribed:
            await client.subscribe(subject)
        for subject in published:
            await client.publish(subject, b"")
        await client.flush(_SECONDS)
        await asyncio.sleep(0.2)  # the client hands errors over one by one
        wrong = [s for s in subscribed if not heard.refused("subscription", s)]
        findings.append(_listed("hearing", wrong, len(subscribed), "hear"))
        wrong = [s for s in published if not heard.refused("publish", s)]
        findings.append(_listed("speaking", wrong, len(published), "publish to"))
        return findings
    finally:
        await client.close()


def _described(info: dict[str, Any]) -> Iterator[Finding]:
    most = info.get("max_payload")
    right = most == MAX_PAYLOAD
    yield Finding("limits", right, f"messages up to {most} bytes, the charter says {MAX_PAYLOAD}")
    stores = bool(info.get("jetstream"))
    yield Finding("storage", not stores, "the server stores nothing" if not stores else
                  "the server stores messages (JetStream)")  # fmt: skip


def _forbidden(to: Connection, charter: Charter) -> tuple[list[str], list[str]]:
    """Return the subjects that this party must not hear, and those to which it must not publish."""
    theirs = {n: r for n, r in rights(charter).items() if n != to.party}
    hears = [s for r in theirs.values() for s in r.subscribe]
    speaks = {s for r in theirs.values() for s in (*r.publish, *r.subscribe)}
    own = {*rights(charter)[to.party].publish}
    plain = [s.replace(".>", ".x") for s in sorted(speaks - own)]
    return [*hears, ">", "$SYS.>", "$JS.>"], [*plain, *_ADMINISTRATION]


def _listed(name: str, wrong: list[str], tried: int, verb: str) -> Finding:
    if not wrong:
        return Finding(name, True, f"{tried} subjects that this party must not {verb}: all refused")
    return Finding(name, False, f"this party may {verb} {json.dumps(wrong[:3])}")


async def _connect(to: Connection, seed: str | None, lines: list[str]) -> Any:
    async def failed(error: Exception) -> None:
        lines.append(str(error))

    note: Callable[[str], None] = lines.append
    return await asyncio.wait_for(
        connected(to, seed, note=note, allow_reconnect=False, error_cb=failed,
                  max_reconnect_attempts=0),
        _SECONDS,
    )  # fmt: skip
