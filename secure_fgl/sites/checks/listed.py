"""All checks of a site, in their order. Only the last ones send anything, and only if asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from secure_fgl.sites.checks import documents, holdings, network
from secure_fgl.sites.checks.lines import Check, Line, Subject, look, utc

__all__ = ["OFFLINE", "check_site"]

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
    "carrier": network.carrier,
    "separation": network.separation,
}


def check_site(
    party: str | Path,
    *,
    run: str | None = None,
    broker: bool = False,
    now: Callable[[], datetime] = utc,
) -> Iterator[Line]:
    """Look at a party's site, and yield a line for each check; what could fail later fails here.

    A passphrase may be asked for.

    Args:
        party: the party's folder.
        run: the name of the run; None: the one run that the party joined.
        broker: also connect to the broker with the carrier's key, and try what must be refused.
        now: tells the time (UTC).
    """
    subject = Subject(Path(party), run, now())
    for name, check in OFFLINE.items():
        yield look(name, check, subject)
    if broker:
        yield from network.asked_broker(subject)
