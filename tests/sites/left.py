"""Processes that have to do with a folder, found in the kernel's list; and those that a test left.

A process is known by a path: the kernel shows with which command line and, unless it holds keys and
somebody else looks, in which environment it was started. The fixtures here let every process that
this run of the tests starts carry the run's own folder in its environment, so that neither what
began earlier nor another run on this machine is taken for it. They are in use for all of this
folder (`conftest.py`).
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest

GRACE_SECONDS = 20.0
"""In which what was ended may end: a process of answers sees that its session is gone."""


def processes_of(folder: Path) -> list[int]:
    """Return the processes that were started with a path below `folder`, this one left out."""
    return [pid for pid in _listed() if _started_with(pid, folder)]


def left(before: Collection[int], folder: Path) -> dict[int, str]:
    """Return what began meanwhile and still lives, by number, with its command line.

    Args:
        before: the processes there were; see `listed`.
        folder: whose paths tell that a process is of this run. What this process forked off has its
            parent's environment, and is known as a child of it.
    """
    found = {}
    for pid in sorted(listed() - {*before}):
        parent, state = _parent(pid)
        if state not in "ZX" and (parent == os.getpid() or _started_with(pid, folder)):
            found[pid] = _read(pid, "cmdline").replace(b"\0", b" ").decode("utf-8", "replace")
    return found


def listed() -> set[int]:
    """Return the numbers of all processes but this one."""
    return {*_listed()}


def check_nothing_left(
    before: Collection[int], folder: Path, *, seconds: float | None = None
) -> None:
    """Fail if something that began since `before` lives on, and end it; see `left`."""
    if not left(before, folder):
        return
    gc.collect()  # what only garbage holds ends with it
    deadline = time.monotonic() + (GRACE_SECONDS if seconds is None else seconds)
    while (found := left(before, folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    assert not found, f"processes are left: {_shown(found)}"


def _shown(found: Mapping[int, str]) -> str:
    return "; ".join(f"{pid} ({command.strip()[:200]})" for pid, command in found.items())


@pytest.fixture(scope="session")
def folder_of_this_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Let every process that is started from here on carry this folder's path, and return it.

    On the search path of programs, where it adds nothing: a process of answers is given that, and
    little else of the environment.
    """
    folder = tmp_path_factory.getbasetemp()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{os.environ.get('PATH', os.defpath)}{os.pathsep}{folder / 'none'}")
        yield folder


@pytest.fixture(scope="module", autouse=True)
def no_module_leaves_a_process(folder_of_this_run: Path) -> Iterator[None]:
    """What a module's fixtures start ends with the module."""
    before = listed()
    yield
    check_nothing_left(before, folder_of_this_run)


@pytest.fixture(autouse=True)
def no_test_leaves_a_process(folder_of_this_run: Path) -> Iterator[None]:
    """What a test starts, or a fixture of its own, ends with the test, which fails else."""
    before = listed()
    yield
    check_nothing_left(before, folder_of_this_run)


def _listed() -> Iterator[int]:
    mine = os.getpid()
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != mine:
            yield int(name)


def _started_with(pid: int, folder: Path) -> bool:
    wanted = re.compile(re.escape(os.fsencode(folder)) + rb"(?![^/:\0])")
    return any(wanted.search(_read(pid, told)) for told in ("environ", "cmdline"))


def _read(pid: int, told: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{told}").read_bytes()
    except OSError:  # it is gone, or another user's
        return b""


def _parent(pid: int) -> tuple[int, str]:
    """Return the number of a process's parent, and its state."""
    told = _read(pid, "stat").rpartition(b")")[2].split()
    return (int(told[1]), told[0].decode()) if told else (0, "X")
