"""Whose a folder is, and looking at it as its owner: what root may read says nothing of others.

A party and its kit of NVFlare have a user each, and neither reads the other's. Root looks at each
in a process that is its owner's for good, so that a check meets what the owner's own process will
meet, and a plug-in that the check loads is never root's. Before any is loaded that process leaves
root's terminal and whatever root holds open: who shares a terminal can type into it.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

import secure_fgl
from protocols.errors import SecureFglError
from secure_fgl.errors import UsageError
from secure_fgl.transports.nvflare.checks.lines import Check, Line, Status, Subject, failed, look

__all__ = ["closed_to_us", "look_as_owner", "named", "unseen"]

_LIMIT = 1 << 20  # bytes of a line; longer ones are none
_ASKS = "keys"  # the check that may ask for a passphrase; what runs up to it is ours


def named(uid: int) -> str:
    """Return what messages call a user."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return f"number {uid}"


def closed_to_us(folder: Path) -> int | None:
    """Return whose a folder is that is another user's and that this one cannot list; else None."""
    try:
        owner = folder.stat().st_uid
        if owner == os.geteuid():
            return None
        os.scandir(folder).close()
    except PermissionError:
        with contextlib.suppress(OSError):
            return folder.stat().st_uid
    except OSError:
        pass
    return None


def unseen(names: Iterable[str], why: str) -> Iterator[Line]:
    """Yield a line for each of some checks that could not look."""
    for name in names:
        yield Line(name, Status.NOT_CHECKED, why)


def look_as_owner(checks: Mapping[str, Check], subject: Subject, folder: Path) -> Iterator[Line]:
    """Run checks as the owner of a folder, where this is root; else as who this is.

    Args:
        checks: by name, in their order.
        subject: what they look at.
        folder: the party's, or the kit.

    Returns:
        A line a check. Where the process that looks ends early, the first check that it owes fails.
    """
    owner = _other_owner(folder)
    if owner is None:
        yield from _looked(checks, subject)
        return
    found = 0
    try:
        told = _lines_of(owner, lambda: _looked(checks, subject), _ASKS in checks)
        with contextlib.closing(told) as lines:
            for line in lines:
                if line.name != [*checks][found]:
                    raise UsageError("The process that looks answered what it was not asked.")
                found += 1
                yield line
                if found == len(checks):
                    return
        raise UsageError(
            f"The process that looks as the user {named(owner[0])} ended early.",
            fix="run site check as that user, and see what it says",
        )
    except SecureFglError as error:
        name, *others = [*checks][found:]
        yield failed(name, error)
        yield from unseen(others, f"see {name}")


def _other_owner(folder: Path) -> tuple[int, int] | None:
    """Return user and group of a folder that is not root's, for root; None for everybody else."""
    if os.geteuid() != 0:
        return None
    try:
        found = folder.stat()
    except OSError:  # the checks say it
        return None
    return None if found.st_uid == 0 else (found.st_uid, found.st_gid)


def _looked(checks: Mapping[str, Check], subject: Subject) -> Iterator[Line]:
    for name, check in checks.items():
        yield look(name, check, subject)


def _lines_of(
    owner: tuple[int, int], looked: Callable[[], Iterable[Line]], asks: bool
) -> Generator[Line, None, None]:
    """Yield what a process of another user finds; raises UsageError where it finds nothing."""
    ours, theirs = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        with contextlib.suppress(BaseException), os.fdopen(theirs, "wb") as out:
            os.close(ours)
            _tell(out, owner, looked, asks)
        os._exit(0)
    os.close(theirs)
    try:
        with os.fdopen(ours, "rb") as told:
            while text := told.readline(_LIMIT):
                yield _read(text)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)  # it has said all, or nobody listens any more
        os.waitpid(child, 0)


def _tell(
    out: BinaryIO, owner: tuple[int, int], looked: Callable[[], Iterable[Line]], asks: bool
) -> None:
    try:
        _become(*owner)
        if not asks:
            _let_go(out.fileno())
        for line in looked():
            told = [line.name, str(line.status), line.said, line.todo, line.code]
            out.write(json.dumps(told).encode() + b"\n")
            out.flush()
            if line.name == _ASKS:
                _let_go(out.fileno())
    except UsageError as error:
        out.write(json.dumps([error.what, error.why, error.fix]).encode() + b"\n")


def _let_go(kept: int) -> None:
    """Leave root's terminal, and close what root has open, but for one descriptor."""
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(nothing, number)
    for number in map(int, os.listdir("/dev/fd")):  # of limits of a thousand million few are open
        if number > 2 and number != kept:
            with contextlib.suppress(OSError):
                os.close(number)


def _read(text: bytes) -> Line:
    try:
        told = json.loads(text)
        if len(told) == 3:
            what, why, fix = map(str, told)
            raise UsageError(what, why=why, fix=fix)
        name, status, said, todo, code = told
        return Line(str(name), Status(status), str(said), str(todo), int(code))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise UsageError("The process that looks said what is no line.") from error


def _become(uid: int, gid: int) -> None:
    """Be another user for good, with its groups and its home, as a unit of systemd is.

    Raises:
        UsageError: this root may not, as in a container without its capabilities; or that user
            cannot read this program.
    """
    home: str | None = None
    groups = [gid]
    with contextlib.suppress(KeyError):
        found = pwd.getpwuid(uid)
        gid, home = found.pw_gid, found.pw_dir
        groups = os.getgrouplist(found.pw_name, gid)
    try:
        os.setgroups(groups)
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    except OSError as error:
        raise UsageError(
            f"This root may not look as the user {named(uid)} ({error.strerror}).",
            why="the container, or the unit, took the capabilities for it away",
            fix="run site check as that user",
        ) from error
    if home is not None:
        os.environ["HOME"] = home
    _check_program(uid)


def _check_program(uid: int) -> None:
    for file in (secure_fgl.__file__, os.__file__):
        try:
            os.close(os.open(file, os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise UsageError(
                f"The user {named(uid)} cannot read this program ({file}: {error.strerror}).",
                why="it is installed in a folder of another user",
                fix="install it where all users of this machine can read it, as in /opt",
            ) from error
