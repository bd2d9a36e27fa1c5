"""All checks of a site, in their order. Only those of `ONLINE` send anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from secure_fgl.transports.nvflare.checks import documents, engine, holdings
from secure_fgl.transports.nvflare.checks.lines import Check, Line, Subject, look, utc

__all__ = ["OFFLINE", "ONLINE", "check_site"]

OFFLINE: dict[str, Check] = {
    "folder": documents.folder,
    "keys": documents.keys,
    "versions": documents.versions,
    "charter": documents.charter,
    "plan": documents.plan,
    "spec": documents.spec,
    "data": holdings.data,
    "budget": holdings.budget,
    "disk": holdings.disk,
    "clock": holdings.clock,
    "kernel": holdings.kernel,
    "process": holdings.at_rest,
    "kit": engine.kit,
    "in force": engine.in_force,
    "sending": engine.sending,
    "certificate": engine.certificate,
}
ONLINE: dict[str, Check] = {
    "server's name": engine.server_name,
    "server": engine.server_answers,
}


def check_site(
    party: str | Path,
    kit: str | Path | None = None,
    *,
    run: str | None = None,
    now: Callable[[], datetime] = utc,
) -> Iterator[Line]:
    """Look at a party's site, and yield a line for each check; what could fail later fails here.

    A passphrase may be asked for. Nothing is sent without `kit`; with it the server's name is
    looked up and a TLS handshake is made, with the kit's certificate and no more.

    Args:
        party: the party's folder.
        kit: the engine's start-up kit of its site.
        run: the name of the run; None: the one run that the party joined.
        now: tells the time (UTC).
    """
    subject = Subject(Path(party), run, Path(kit) if kit is not None else None, now())
    for name, check in {**OFFLINE, **ONLINE}.items():
        yield look(name, check, subject)
