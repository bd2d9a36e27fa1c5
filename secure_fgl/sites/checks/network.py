"""Checks of the broker: the carrier's key, what it needs to know, and the server itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from secure_fgl.charters.broker import CARRIER, KEY_FILE
from secure_fgl.errors import UsageError
from secure_fgl.isolation.separation import separable
from secure_fgl.sites.checks.lines import Line, NotChecked, Status, Subject, failed
from secure_fgl.transports.broker.carrier import Connection
from secure_fgl.transports.broker.check import check_broker
from secure_fgl.transports.broker.config import connection

__all__ = ["asked_broker", "carrier", "separation"]

_MARKS = {True: Status.OK, False: Status.FAIL, None: Status.NOT_CHECKED}


def carrier(subject: Subject) -> str:
    """The carrier's key is closed, and what the carrier knows is what the charter says."""
    kit = subject.agreed
    folder = subject.party / CARRIER
    if not (folder / KEY_FILE).exists():
        raise NotChecked(f"{folder / KEY_FILE} is not here: the carrier has a user of its own")
    if (folder / KEY_FILE).stat().st_mode & 0o077:
        path = folder / KEY_FILE
        raise UsageError(f"{path} can be read by other users.", fix=f"chmod 600 {path}")
    wanted = connection(kit.charter, kit.name)
    try:
        kept = Connection.load(folder, kit.charter.run)
        if replace(kept, urls=wanted.urls, root=wanted.root).text() != wanted.text():
            raise ValueError
    except (OSError, TypeError, ValueError):
        raise UsageError(
            f"{folder / kit.charter.run}.json is missing, or not what the charter says.",
            fix="secure-fgl site join PARTY CHARTER once more",
        ) from None
    own = "" if kept.text() == wanted.text() else ", a server of this site's own (broker leaf),"
    return f"connects to {', '.join(kept.urls)}{own} with a key of its own"


def separation(subject: Subject) -> str:
    """This machine can keep the network from the party's process and files from the carrier."""
    return separable()


def asked_broker(subject: Subject) -> Iterator[Line]:
    """Yield a line for each thing that was tried at the server."""
    try:
        kit = subject.agreed
        to = connection(kit.charter, kit.name)
        for found in check_broker(subject.party / CARRIER, to, kit.charter):
            code = 0 if found.ok is not False else 2
            fix = "see broker config, and whoever runs the server" if code else ""
            yield Line(f"broker: {found.name}", _MARKS[found.ok], found.sentence, fix, code)
    except NotChecked as missing:
        yield Line("broker", Status.NOT_CHECKED, str(missing))
    except Exception as error:
        yield failed("broker", error)
