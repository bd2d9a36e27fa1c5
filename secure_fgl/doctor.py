"""Whether this machine and this installation are fit: versions, extras, floors, entropy, disk."""

from __future__ import annotations

import os
import platform
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path

import secure_fgl
from audits.evidence.steps import NotChecked
from secure_fgl import _floors
from secure_fgl.data import ROOT_VARIABLE
from secure_fgl.devices import gpu
from secure_fgl.errors import UsageError
from secure_fgl.isolation.kernel import CannotIsolate, check_kernel, close_memory
from secure_fgl.isolation.separation import separable
from secure_fgl.run.cores import usable
from secure_fgl.sites.checks import Line, look
from secure_fgl.store import budgets, state_store

__all__ = ["examine", "extra", "extras", "requirements"]


# What is installed: our own version, the packages that we need, and those of each extra.

_REQUIREMENT = re.compile(r"([A-Za-z0-9_.-]+)(\[[^]]*\])?\s*([^;]*)(?:;\s*(.*))?")
_EXTRA = re.compile(r"extra\s*==\s*[\"']([A-Za-z0-9_-]+)[\"']")
_BOUND = re.compile(r"(>=|<=|==|<|>)\s*([0-9][0-9a-zA-Z.]*)")
_INSTALL = "install Secure-FGL again, into a virtual environment of its own"
_OURS = "secure-fgl"
_TESTS = "test"  # the extra of whoever changes the code


def _listed(wanted: str) -> list[tuple[str, str]]:
    """Return name and bounds of the packages of one extra; of the empty one those always needed."""
    try:
        lines = metadata.requires(_OURS) or []
    except metadata.PackageNotFoundError:
        raise NotChecked("Secure-FGL runs from a checkout that is not installed") from None
    found = [match for line in lines if (match := _REQUIREMENT.fullmatch(line.strip()))]
    of = [_EXTRA.search(match[4] or "") for match in found]
    names = [mark[1] if mark else "" for mark in of]
    return [
        (match[1], match[3].strip())
        for match, name in zip(found, names, strict=True)
        if name == wanted and match[1] != _OURS
    ]


def extras() -> list[str]:
    """Return the names of our extras, but for that of tests; none in a bare checkout."""
    try:
        found = metadata.metadata(_OURS).get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return []
    return sorted(name for name in found if name != _TESTS)


def requirements() -> str:
    """Every package that is always needed is there, in a version that will do."""
    missing, told = _look(_listed(""))
    if missing:
        raise UsageError(f"Not installed, or too old: {', '.join(missing)}.", fix=_INSTALL)
    return ", ".join(told)


def extra(name: str) -> str:
    """The packages of an extra are there; raises NotChecked where all are missing."""
    listed = _listed(name)
    missing, told = _look(listed)
    if len(missing) == len(listed):
        raise NotChecked(f"not installed; if you need it: pip install '{_OURS}[{name}]'")
    if missing:
        raise UsageError(
            f"Not installed, or too old: {', '.join(missing)}.",
            fix=f"pip install '{_OURS}[{name}]'",
        )
    return ", ".join(told)


def _look(listed: list[tuple[str, str]]) -> tuple[list[str], list[str]]:
    missing, told = list[str](), list[str]()
    for name, bounds in listed:
        try:
            version = metadata.version(name)
        except metadata.PackageNotFoundError:
            missing.append(f"{name} {bounds}".strip())
            continue
        fits = all(_fits(version, *bound) for bound in _BOUND.findall(bounds))
        (told if fits else missing).append(f"{name} {version}")
    return missing, told


def _fits(version: str, sign: str, bound: str) -> bool:
    """Compare the numbers of two versions; what follows them (``rc1``) is not looked at."""
    one, other = _numbers(version), _numbers(bound)
    width = max(len(one), len(other))
    one, other = (numbers + (0,) * (width - len(numbers)) for numbers in (one, other))
    return {
        ">=": one >= other,
        "<=": one <= other,
        "==": one == other,
        "<": one < other,
        ">": one > other,
    }[sign]


def _numbers(version: str) -> tuple[int, ...]:
    found = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, found[0].split("."))) if found else (0,)


# The checks of this machine, in the order in which they are shown.

_LEAST_FREE = 1 << 30  # bytes; a run over some rounds, with what it captures, needs less
_TRIES = 5  # of looking at a folder that others make and take away meanwhile
_SKEW = 60.0  # seconds between this machine's clock and that of its disk
_PYTHON = (3, 11)
Check = Callable[[Path], str]


def examine(folder: Path) -> Iterator[Line]:
    """Yield the outcome of each check; nothing is changed, and nothing is sent.

    Args:
        folder: where runs are to be written.
    """
    checks: list[tuple[str, Check]] = [
        ("versions", _versions),
        ("packages", lambda _: requirements()),
        *((f"extra {name}", partial(_extra, name)) for name in extras()),
        ("floors", _our_code),
        ("entropy", _entropy),
        ("runs", _disk),
        ("keys", lambda _: _private(state_store.default_folder(), state_store.VARIABLE)),
        ("budgets", lambda _: _private(budgets.default_folder(), budgets.VARIABLE)),
        ("clock", _clock),
        ("data", _data),
        ("isolation", _isolation),
        ("memory", _memory),
        ("separation", lambda _: separable()),
        ("device", _device),
    ]
    for name, check in checks:
        yield look(name, check, folder)


def _extra(name: str, _: Path) -> str:
    return extra(name)


def _versions(_: Path) -> str:
    if sys.version_info < _PYTHON:
        raise UsageError(
            f"Python {platform.python_version()} is too old.", fix="take Python 3.11 or later"
        )
    return (
        f"secure-fgl {secure_fgl.__version__}, Python {platform.python_version()}, "
        f"{platform.system()} {platform.machine()}, cores: {usable()}"
    )


def _our_code(_: Path) -> str:
    """The five floors are imported from this installation."""
    _floors.check()
    return f"crypto, protocols, algorithms, audits and secure_fgl are ours: {_home()}"


def _home() -> Path:
    return Path(secure_fgl.__file__).resolve().parent.parent


def _entropy(_: Path) -> str:
    """The operating system gives random bytes without waiting."""
    try:
        first, second = (os.getrandom(32, os.GRND_NONBLOCK) for _ in range(2))
    except BlockingIOError as error:
        raise UsageError(
            "The operating system has not gathered enough entropy yet.",
            why="the machine has just started, or has no source of it",
            fix="wait, or install an entropy daemon; no key is to be made before",
        ) from error
    except AttributeError:  # another system than Linux
        first, second = os.urandom(32), os.urandom(32)
    if first == second or not any(first):
        raise UsageError(
            "The operating system's random numbers repeat.",
            why="its source is replaced or broken",
            fix="make no key on this machine",
        )
    return "the operating system's source answers at once"


def _nearest(folder: Path) -> Path:
    """Return the folder, or the nearest one above it that is there."""
    found = folder.absolute()
    while not found.exists():
        found = found.parent
    return found


def _disk(folder: Path) -> str:
    place, free = _room(folder)
    if free < _LEAST_FREE:
        raise UsageError(
            f"Only {free >> 20} MiB are free at {place}.",
            why="a ledger that cannot be written ends a run",
            fix="make room, or write runs elsewhere with --out",
        )
    return f"{free >> 30} GiB free at {place}"


def _room(folder: Path) -> tuple[Path, int]:
    """Return where a folder is, or would be made, and how many bytes are free there.

    Other runs on this machine make folders and take them away: one that goes while it is looked at
    is looked for anew, and is no fault of the machine's.
    """
    for _ in range(_TRIES):
        place = _nearest(folder)
        fit = place.is_dir() and os.access(place, os.W_OK | os.X_OK)
        try:
            free = shutil.disk_usage(place).free
        except FileNotFoundError:
            continue
        if not fit and place.exists():
            raise UsageError(
                f"{place} is no folder that can be written to.", fix="name another one"
            )
        if fit:
            return place, free
    raise NotChecked(f"{folder} was made and taken away while it was looked at")


def _private(folder: Path, variable: str) -> str:
    """Keys and budgets lie where this user alone reads and writes."""
    told = _disk(folder)
    try:
        found = folder.stat()
    except FileNotFoundError:
        return f"{folder} is made when it is first needed; {told}"
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise UsageError(
            f"{folder} can be read by other users of this machine.", fix=f"chmod 700 {folder}"
        )
    if found.st_uid != os.getuid():
        raise UsageError(
            f"{folder} belongs to another user.", fix=f"set {variable} to a folder of your own"
        )
    return f"{folder} is yours alone; {told}"


def _clock(folder: Path) -> str:
    """Captures, waivers and certificates end by the day, so the clock matters."""
    now = time.time()
    made = max(file.stat().st_mtime for file in Path(secure_fgl.__file__).parent.glob("*.py"))
    told = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%d %H:%M UTC")
    if now < made - _SKEW:
        raise UsageError(
            f"The clock says {told}, which is before this program was installed.",
            fix="set the clock; captures and waivers end by it",
        )
    try:
        with tempfile.TemporaryFile(dir=_nearest(folder)) as file:
            written, after = os.fstat(file.fileno()).st_mtime, time.time()
    except OSError as error:
        raise NotChecked(
            f"{told}; the disk's clock could not be asked ({error.strerror})"
        ) from error
    # On a loaded machine minutes may pass in between, and no clock is wrong for that.
    apart = max(now - written, written - after)
    if apart > _SKEW:
        raise UsageError(
            f"The clock of the disk and that of this machine are {apart:.0f} s apart.",
            why="a network's disk has a clock of its own",
            fix="set both clocks",
        )
    return told


def _data(_: Path) -> str:
    root = os.environ.get(ROOT_VARIABLE)
    if not root:
        raise NotChecked(f"{ROOT_VARIABLE} names no folder; generated data need none")
    place = Path(root).expanduser()
    if not place.is_dir() or not os.access(place, os.R_OK | os.X_OK):
        raise UsageError(
            f"{ROOT_VARIABLE} names {place}, which is no folder that can be read.",
            fix=f"export {ROOT_VARIABLE}=FOLDER, or name it with --set data.root=FOLDER",
        )
    return f"{place}, {sum(entry.is_dir() for entry in os.scandir(place))} folders"


def _device(_: Path) -> str:
    try:
        name = gpu()
    except RuntimeError as error:  # its driver does not answer, or others hold all its memory
        raise NotChecked("PyTorch knows of a GPU and cannot reach it now") from error
    if name:
        return f"device=cuda and device=auto train on {name}; device=cpu, the default, does not"
    raise NotChecked("no GPU that PyTorch can use; clients train on the processor")


def _memory(_: Path) -> str:
    """A child closes its memory as a process with keys does."""
    if sys.platform != "linux":
        raise NotChecked(
            f"{platform.system()} has no prctl: processes that hold keys cannot keep their memory "
            "from their user's other processes here, only from core dumps"
        )
    child = os.fork()
    if child == 0:
        code = 1
        with suppress(BaseException):
            close_memory()
            code = 0
        os._exit(code)
    if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0:
        raise UsageError(
            "A process that holds keys cannot close its memory here.",
            why="the kernel refuses prctl(PR_SET_DUMPABLE)",
            fix="let the container's seccomp profile pass prctl",
        )
    return "processes that hold keys are closed to their user's other processes, not to root"


def _isolation(_: Path) -> str:
    try:
        return f"the kernel holds answers in a process of their own (Landlock {check_kernel()})"
    except CannotIsolate as error:
        raise NotChecked(f"{error.what} Only sites that run apart need it") from error
