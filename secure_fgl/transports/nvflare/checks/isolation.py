"""Checks of what keeps party and engine from each other's files, and the party from the network.

That the engine is another user's is needed: what its user can read, other sites can. The party's
process needs neither the kit's keys nor a network, so what else does not hold here, or cannot be
seen, is NOT CHECKED, by its name.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from protocols.errors import SecureFglError
from secure_fgl.errors import UsageError
from secure_fgl.isolation.network import check_empty_network, interfaces, leads_nowhere
from secure_fgl.transports.nvflare.checks.kit_files import KitFiles
from secure_fgl.transports.nvflare.checks.lines import NotChecked, Subject
from secure_fgl.transports.nvflare.checks.users import named
from secure_fgl.transports.nvflare.engine.listener import CLEAR_READS, OTHERS_READ, check_listener
from secure_fgl.transports.nvflare.kits import PROJECT
from secure_fgl.transports.nvflare.site.leaving import supervisor_of

__all__ = ["apart", "check_kit", "check_two_users", "network", "no_engine_here"]

_KEYS = ("client.key", "server.key")  # below startup, as NVFlare calls them
_ENGINE = "nvflare.private.fed.app."
_REHEARSED = f"/kits/{PROJECT}/prod_00/"  # as `office.rehearsal` lays them out
_USERS = "give NVFlare's kit a user of its own, as deploy/README.md does"


def apart(subject: Subject) -> str:
    """Party and engine are of two users, and the party's cannot read the kit's key."""
    if subject.kit_folder is None:
        raise NotChecked("no kit was given: --kit KIT")
    me, kit = os.geteuid(), subject.kit_folder
    party = _owner(subject.party)
    owner = check_two_users(party, kit)
    if me != party:
        raise NotChecked("what the party's user can read, that user can say, or root")
    if me == 0:
        raise NotChecked(
            "the party's folder is root's, from whom nothing is closed: give it a user of its own"
        )
    found = {name: _opened(kit / "startup" / name) for name in _KEYS}
    if readable := [name for name, said in found.items() if said is None]:
        key = kit / "startup" / readable[0]
        raise NotChecked(f"the party's user {named(me)} can read {key}: chmod 700 {kit}")
    if PermissionError not in found.values():
        raise NotChecked(f"no key lies in {kit / 'startup'} under NVFlare's names")
    return f"the party's user {named(me)} cannot read the kit's key; the kit is of {named(owner)}"


def check_two_users(party: int, kit: Path) -> int:
    """See that the engine's user is neither the party's nor root, and return it.

    Args:
        party: the party's user.
        kit: the engine's, whose owner runs it.

    Raises:
        UsageError: the engine could read the party's files; or whose it is cannot be seen.
    """
    engine = _owner(kit)
    if engine == party:
        raise UsageError(
            f"Party and engine are of one user, {named(engine)}: {OTHERS_READ}.",
            why="NVFlare looks at rights only where a message asks for that, whatever its kit says",
            fix=_USERS,
        )
    if engine == 0:
        raise UsageError(
            f"The engine is root's, from whom no file is closed: {OTHERS_READ}.",
            why="NVFlare looks at rights only where a message asks for that, whatever its kit says",
            fix=_USERS,
        )
    return engine


def check_kit(kit: Path) -> None:
    """See that a folder is a kit of NVFlare, as far as this user can look into it.

    A kit that is closed to the party's user is as it should be, and cannot be told from another
    closed folder; the look for an engine's process (`no_engine_here`) does not rest on it.

    Raises:
        UsageError: it can be looked into, and is none.
    """
    try:
        KitFiles.open(kit)
    except UsageError as error:
        if not isinstance(error.__cause__, PermissionError):
            raise


def no_engine_here() -> str:
    """No process of NVFlare runs as this user, and none that is seen listens in clear.

    A rehearsal's are left out: all its sites are of one person.
    """
    if not Path("/proc/self/cmdline").exists():
        raise NotChecked("this system does not show which processes run")
    for number, user, words in _engines():
        if user == os.geteuid():
            raise UsageError(
                f"NVFlare's process {number} runs as this user: {OTHERS_READ}.",
                why="NVFlare looks at rights only where a message asks for that",
                fix=_USERS,
            )
        try:
            check_listener(words)
        except UsageError as error:
            raise UsageError(
                f"NVFlare's process {number}, of {named(user)}: {CLEAR_READS}.", fix=error.fix
            ) from error
    return "no process of NVFlare runs as this user, and none that is seen listens in clear"


def _engines() -> Iterator[tuple[int, int, list[str]]]:
    """Yield number, user and command line of NVFlare's processes, but of a rehearsal's."""
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):  # no process, or it is gone
            words = (place / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
            if _ENGINE in " ".join(words) and not any(_REHEARSED in word for word in words):
                yield int(place.name), place.stat().st_uid, words


def network(subject: Subject) -> str:
    """The party's process has no network; before it is up, this machine can give it none."""
    process = _supervisor(subject)
    if process is not None:
        return _network_of(process)
    with contextlib.suppress(OSError):
        if leads_nowhere(interfaces()):
            return "where this was asked there is no interface but loopback"
    try:
        check_empty_network()
    except UsageError as error:
        raise NotChecked(
            f"PrivateNetwork: {error.what} Where systemd or a container starts the party's "
            "process, ask again while it is up"
        ) from error
    return (
        "this machine can start a process without one (PrivateNetwork=yes, network_mode: none); "
        "ask again while the party's process is up"
    )


def _network_of(process: int) -> str:
    try:
        found = interfaces(process)
    except OSError as error:
        raise NotChecked(
            f"the network of the party's process {process} cannot be seen ({error.strerror})"
        ) from error
    if leads_nowhere(found):
        return f"the party's process {process} has no interface but loopback"
    raise NotChecked(
        f"the party's process {process} has a network ({', '.join(found[:5])}), which it does not "
        "need: start it as deploy/README.md does (PrivateNetwork=yes, network_mode: none)"
    )


def _supervisor(subject: Subject) -> int | None:
    with contextlib.suppress(SecureFglError, OSError):
        return supervisor_of(subject.place)
    return None


def _owner(folder: Path) -> int:
    try:
        return folder.stat().st_uid
    except OSError as error:
        raise UsageError(
            f"{folder} cannot be reached ({error.strerror}).",
            why="site start looks whose the kit is, to know who may connect",
            fix="let the folders above it be passed through: chmod a+x",
        ) from error


def _opened(file: Path) -> type[OSError] | None:
    """Try to open a file; return what kind of error says no, None if nothing does."""
    try:
        os.close(os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK))
    except OSError as error:
        return type(error)
    return None
