"""A worker: plays some clients, asked by the process that it was forked off."""

from __future__ import annotations

import resource
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from algorithms.tasks.site import Site
from protocols.sessions.engine import Session
from secure_fgl import _floors
from secure_fgl.isolation import frames
from secure_fgl.isolation.values import PlainCodec
from secure_fgl.run import cores
from secure_fgl.run.driver import Meter
from secure_fgl.run.workers.failures import told

__all__ = ["CARRY", "CLIENT", "DONE", "END", "Played", "serve"]

CARRY, END = b"X", b"E"
"""What is asked: take these envelopes; end all sessions."""
CLIENT, DONE = b"C", b"D"
"""What is said: how one client ended; how all of it went."""


@dataclass(frozen=True)
class Played:
    """What a worker plays.

    Attributes:
        sessions: its clients', by name.
        sites: theirs.
        codec: of what goes over the channel.
        meter: takes the time of answers.
    """

    sessions: Mapping[str, Session]
    sites: Mapping[str, Site]
    codec: PlainCodec
    meter: Meter


def serve(played: Played, channel: int) -> None:
    """Answer until the channel's other end is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever asks ends this process, in order
    cores.only_one()
    with suppress(BrokenPipeError):
        while (data := frames.read(channel)) is not None:
            kind, asked = data[:1], played.codec.unpack(data[1:])
            for said, content in _replies(played, kind, asked):
                frames.write(channel, said, played.codec.pack(content))


def _replies(played: Played, kind: bytes, asked: dict[str, Any]) -> Said:
    return _carried(played, asked["deliveries"]) if kind == CARRY else _ended(played, asked)


Said = Iterable[tuple[bytes, Any]]


def _carried(played: Played, deliveries: list[tuple[str, bytes]]) -> Said:
    """Hand envelopes to their sessions, as far as the first error."""
    answers: list[list[tuple[str, bytes]]] = []
    before, failed, errors = played.meter.learning, None, {}
    for name, data in deliveries:
        session = played.sessions[name]
        try:
            replies = session.receive(data)
            answers.append([(reply.to, reply.data) for reply in replies])
        except Exception as error:
            failed = told(error)
            break
        finally:
            if session.last_error is not None:
                errors[name] = told(session.last_error)
    learning = played.meter.learning - before
    content = {"answers": answers, "errors": errors, "failed": failed, "learning": learning}
    return [(DONE, content)]


def _ended(played: Played, asked: dict[str, Any]) -> Said:
    """End every session; with `memories` tell what its site remembers, for what follows a run."""
    try:
        _floors.check()
    except ImportError as error:  # what ran here was not ours: the ledgers stay without their ends
        yield DONE, {"failed": told(error), "peak": 0}
        return
    for name, session in played.sessions.items():
        failed = None
        try:
            session.close(None)
        except Exception as error:  # the other sessions are ended all the same
            session.last_error, failed = error, told(error)
        note = session.ledger.checkpoint(session.context.me.signing)
        content: dict[str, Any] = {"failed": failed, "name": name, "note": note}
        if asked["memories"]:
            site = played.sites[name]
            content |= {"draws": site.draws, "memory": site.memory}
        yield CLIENT, content
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield DONE, {"failed": None, "peak": peak}
