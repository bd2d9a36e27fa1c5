"""All checks of a site, in their order. Only those of `ONLINE` send anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

from secure_fgl.transports.nvflare.checks import documents, engine, holdings, isolation
from secure_fgl.transports.nvflare.checks.lines import Check, Line, Subject, look, utc
from secure_fgl.transports.nvflare.checks.users import closed_to_us, look_as_owner, named, unseen

__all__ = ["AT_KIT", "AT_PARTY", "OFFLINE", "ONLINE", "check_site"]

AT_PARTY: dict[str, Check] = {
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
}
"""What the party's own user sees."""
BETWEEN: dict[str, Check] = {"kit": engine.kit}
"""What takes both folders, and so root where they are of two users."""
AT_KIT: dict[str, Check] = {
    "in force": engine.in_force,
    "sending": engine.sending,
    "certificate": engine.certificate,
}
"""What the kit's user sees."""
APART: dict[str, Check] = {"apart": isolation.apart}
"""What the party's user is not to see."""
ALONE: dict[str, Check] = {"network": isolation.network}
OFFLINE = {**AT_PARTY, **BETWEEN, **AT_KIT, **APART, **ALONE}
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

    Where party and kit are of two users, neither can read the other's folder. Root looks at each as
    its owner; of these two users each looks at its own, and the rest is NOT CHECKED.

    Args:
        party: the party's folder.
        kit: the engine's start-up kit of its site.
        run: the name of the run; None: the one run that the party joined.
        now: tells the time (UTC).
    """
    subject = Subject(Path(party), run, Path(kit) if kit is not None else None, now())
    place, given = subject.party, subject.kit_folder
    closed = closed_to_us(given) if given is not None else None
    others = closed_to_us(place) if given is not None and closed is None else None
    if others is not None:
        yield from unseen(AT_PARTY, _of_another(place, others, "party"))
    else:
        yield from look_as_owner(AT_PARTY, subject, place)
    if closed is not None and given is not None:
        yield from unseen({**BETWEEN, **AT_KIT}, _of_another(given, closed, "kit"))
    else:
        for name, check in BETWEEN.items():
            yield look(name, check, subject)
        yield from look_as_owner(AT_KIT, subject, given or place)
    yield from look_as_owner(APART, subject, place)
    for name, check in ALONE.items():
        yield look(name, check, subject)
    if closed is not None and given is not None:
        yield from unseen(ONLINE, _of_another(given, closed, "kit"))
    else:
        yield from look_as_owner(ONLINE, subject, given or place)


def _of_another(folder: Path, owner: int, what: str) -> str:
    return (
        f"{folder} is of the user {named(owner)} and closed to this one, as it should be: run site "
        f"check as root, or as that user for the {what}'s lines"
    )
