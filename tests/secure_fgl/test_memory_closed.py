"""The memory of a process that holds keys: closed to its user's other processes, never dumped."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from protocols.wire.roles import Role
from secure_fgl import doctor
from secure_fgl.charters import identity_file
from secure_fgl.charters.identity_file import load_identity, new_identity
from secure_fgl.errors import UsageError
from secure_fgl.isolation import kernel
from secure_fgl.sites.checks import Status, look

PARTY = 61_500
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
_SEIZE = 0x4206  # of ptrace
_READS, _ATTACHES, _DUMPS = 1, 2, 4


def reached(folder: Path) -> int:
    """Load a party's keys in a process; return what another one of the same user can do to it."""
    ready, loaded = os.pipe()
    victim = os.fork()
    if victim == 0:
        with contextlib.suppress(BaseException):
            kernel._closed.clear()
            kernel.set_traceable(True)  # as every program that was just started is
            load_identity(folder)
            core = resource.getrlimit(resource.RLIMIT_CORE)[0]
            os.write(loaded, b"0" if core == 0 else b"1")
            os.read(os.pipe()[0], 1)
        os._exit(1)
    os.close(loaded)
    found = {b"0": 0, b"1": _DUMPS}[os.read(ready, 1)]
    with contextlib.suppress(OSError), open(f"/proc/{victim}/mem", "rb", buffering=0):
        found |= _READS
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p]
    found |= _ATTACHES if libc.ptrace(_SEIZE, victim, None, None) == 0 else 0
    os.kill(victim, 9)
    os.waitpid(victim, 0)
    return found


def as_user(uid: int, act: Callable[[], int]) -> int:
    """Return what `act` returns in a child that is another user."""
    child = os.fork()
    if child == 0:
        code = 99
        with contextlib.suppress(BaseException):
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            code = act()
        os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@as_root
@pytest.mark.parametrize("role", list(Role))
def test_who_holds_keys_is_closed_to_its_user_s_other_processes(
    role: Role, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the role. Root, which may do all of it, becomes another user for this."""
    base = Path(tempfile.mkdtemp(prefix="secure-fgl-memory-"))
    try:
        base.chmod(0o711)
        new_identity(base / "party", "one", role)
        for path in (base / "party", base / "party" / "identity.json"):
            os.chown(path, PARTY, PARTY)
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
        assert as_user(PARTY, lambda: reached(base / "party")) == 0
        monkeypatch.setattr(identity_file, "close_memory", lambda: None)
        open_ = as_user(PARTY, lambda: reached(base / "party"))
        assert open_ & (_READS | _ATTACHES) == _READS | _ATTACHES  # the control
    finally:
        shutil.rmtree(base)


@pytest.mark.parametrize("holds_keys", [True, False])
def test_no_sandbox_that_ends_opens_the_memory_of_who_holds_keys(holds_keys: bool) -> None:
    """One that began before the keys were read puts back what held then; the control has none."""
    child = os.fork()
    if child == 0:
        kernel._closed.clear()
        kernel.set_traceable(True)
        before = kernel.set_traceable(False)  # a sandbox begins
        if holds_keys:
            kernel.close_memory()
        kernel.set_traceable(before)  # and ends
        os._exit(kernel.prctl(kernel._PR_GET_DUMPABLE))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == int(not holds_keys)


def test_core_dumps_are_refused_for_good() -> None:
    def limits() -> int:
        kernel.close_memory()
        return int(resource.getrlimit(resource.RLIMIT_CORE) != (0, 0))

    child = os.fork()
    if child == 0:
        os._exit(limits())
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_kernel_that_refuses_lets_no_key_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(allowed: bool) -> bool:
        raise OSError(1, "Operation not permitted")

    new_identity(tmp_path / "party", "one", Role.CLIENT)
    monkeypatch.setattr(kernel, "set_traceable", refuses)
    if sys.platform == "linux":
        with pytest.raises(UsageError, match="cannot close its memory"):
            load_identity(tmp_path / "party")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "platform", "darwin")
        assert look("memory", doctor._memory, tmp_path).status is Status.NOT_CHECKED
        load_identity(tmp_path / "party")  # no prctl there: only core dumps are refused
