"""Checks of what keeps a party's process from the kit's keys and from the network, by the kernel.

Neither is needed for a run, and so neither fails: what does not hold here, or cannot be seen, is
NOT CHECKED, by its name.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from protocols.errors import SecureFglError
from secure_fgl.errors import UsageError
from secure_fgl.isolation.network import check_empty_network, interfaces, leads_nowhere
from secure_fgl.transports.nvflare.checks.lines import NotChecked, Subject
from secure_fgl.transports.nvflare.checks.users import named
from secure_fgl.transports.nvflare.site.leaving import supervisor_of

__all__ = ["apart", "network"]

_KEYS = ("client.key", "server.key")  # below startup, as NVFlare calls them
_USERS = "give NVFlare's kit a user of its own, as deploy/README.md does"


def apart(subject: Subject) -> str:
    """The party's user cannot read the kit, so its process has no key to the network."""
    if subject.kit_folder is None:
        raise NotChecked("no kit was given: --kit KIT")
    me, kit = os.geteuid(), subject.kit_folder
    party, owner = _owner(subject.party), _owner(kit)
    if me != party:
        raise NotChecked("what the party's user can read, that user can say, or root")
    if me == 0:
        raise NotChecked(
            "the party's folder is root's, from whom nothing is closed: give it a user of its own"
        )
    if owner == me:
        raise NotChecked(f"party and kit are of one user, {named(me)}, who can read both: {_USERS}")
    found = {name: _opened(kit / "startup" / name) for name in _KEYS}
    if readable := [name for name, said in found.items() if said is None]:
        key = kit / "startup" / readable[0]
        raise NotChecked(f"the party's user {named(me)} can read {key}: chmod 700 {kit}")
    if PermissionError not in found.values():
        raise NotChecked(f"no key lies in {kit / 'startup'} under NVFlare's names")
    return f"the party's user {named(me)} cannot read the kit's key; the kit is of {named(owner)}"


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
