"""Giving up everything but one descriptor, for good, by the Linux kernel.

Landlock takes the file system away but for reading code, seccomp takes away every system call but
those that computing needs, resource limits take away writing and new processes. Each of them holds
for this process until it ends, whoever it runs as; none can be undone.

Sources: Linux `Documentation/userspace-api/landlock.rst`, `no_new_privs.rst` and
`seccomp_filter.rst`; `include/uapi/linux/{landlock,seccomp,audit,filter}.h`; numbers of system
calls from `arch/x86/entry/syscalls/syscall_64.tbl` and `include/uapi/asm-generic/unistd.h`.

Not taken away: asking for names, sizes and times of files, the clock, and the processor.
"""

from __future__ import annotations

import ctypes
import os
import platform
import resource
import signal
import socket
import stat
import struct
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from secure_fgl.errors import UsageError

__all__ = ["CannotIsolate", "check_kernel", "close_memory", "close_sandbox", "set_traceable"]

_PR_GET_SECCOMP, _PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 21, 22, 38
_PR_SET_PDEATHSIG = 1
_PR_GET_DUMPABLE, _PR_SET_DUMPABLE = 3, 4
_closed = threading.Event()  # by `close_memory`, for good
_MODE_FILTER = 2

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every machine
_VERSION = 1
_PATH_BENEATH, _NET_PORT = 1, 2
MAKE_BLOCK = 1 << 11
_CONNECT = 0b10
_READ_FILE = 1 << 2
_READ = _READ_FILE | (1 << 3)  # files and folders
_FS_BITS = {1: 13, 2: 14, 3: 15, 5: 16}  # from which version on how many rights there are
_NET, _NET_FROM = 0b11, 4  # bind and connect
_SCOPED, _SCOPED_FROM = 0b11, 6  # abstract sockets and signals

_FREE = {
    "x86_64": (
        *(0, 1, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 17, 19, 20, 21, 24, 25, 27, 28, 35),
        *(36, 37, 38, 39, 60, 63, 79, 89, 96, 97, 98, 99, 100, 102, 104, 107, 108, 110, 131),
        *(186, 202, 204, 217, 218, 219, 228, 229, 230, 231, 262, 267, 269, 271, 273, 309, 318),
        *(324, 332, 334, 439),
    ),
    "aarch64": (
        *(17, 48, 57, 61, 62, 63, 64, 65, 66, 67, 73, 78, 79, 80, 93, 94, 96, 98, 99, 101, 102),
        *(103, 113, 114, 115, 123, 124, 128, 132, 134, 135, 139, 153, 160, 163, 165, 168, 169),
        *(172, 173, 174, 175, 176, 177, 178, 179, 214, 215, 216, 222, 226, 232, 233, 278, 283),
        *(291, 293, 439),
    ),
}
"""System calls that computing needs: memory, time, locks, chance, reading what is open, looking
at names, ending. No socket, no new process or thread, no program, no other process, no key ring."""

_ASKED = {
    "x86_64": {"open": 2, "openat": 257, "fcntl": 72, "tgkill": 234, "prlimit": 302, "clone3": 435},
    "aarch64": {"openat": 56, "fcntl": 25, "tgkill": 131, "prlimit": 261, "clone3": 435},
}
"""System calls whose arguments decide."""

ARCHITECTURE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}

LOAD, EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
EPERM, _ENOSYS = 1, 38
NUMBER, ARCH, _ARGUMENTS = 0, 4, 16  # places in struct seccomp_data
_WRITING = os.O_ACCMODE | os.O_CREAT | os.O_TRUNC | os.O_APPEND | (1 << 22)  # and __O_TMPFILE
_F_GETFD, _F_GETFL = 1, 3

_LIMITS = {"RLIMIT_FSIZE": 0, "RLIMIT_NPROC": 0, "RLIMIT_CORE": 0, "RLIMIT_NOFILE": 256}

Instruction = tuple[int, int, int, int]  # code, jump if true, jump if false, operand


class CannotIsolate(UsageError):
    """This machine's kernel cannot hold answers in a process of their own."""


def cannot(what: str) -> CannotIsolate:
    return CannotIsolate(
        f"Answers cannot be isolated on this machine: {what}.",
        why="it takes Linux 5.13 or later with Landlock and seccomp, on x86_64 or aarch64; a "
        "container's own profile may forbid both",
        fix="run this site on such a machine, or let the container have landlock_create_ruleset "
        "and seccomp; in a simulation of code that you read, set isolate: false. Nothing was "
        "started",
    )


def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def call(number: int, *arguments: Any) -> int:
    """Make a system call; raises OSError."""
    given = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    found = _libc().syscall(ctypes.c_long(number), *given)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(found)


def prctl(option: int, *arguments: Any) -> int:
    """Call prctl; raises OSError."""
    given = [ctypes.c_ulong(a) if isinstance(a, int) else a for a in arguments]
    given += [ctypes.c_ulong(0)] * (4 - len(given))
    found = _libc().prctl(ctypes.c_int(option), *given)
    if found < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(found)


def check_kernel() -> int:
    """Return the version of Landlock; raises CannotIsolate where a part of it is missing."""
    if sys.platform != "linux":
        raise cannot(f"{platform.system() or sys.platform} has neither Landlock nor seccomp")
    if platform.machine() not in _FREE or sys.maxsize < 2**32:
        raise cannot(f"there is no list of system calls for {platform.machine()}")
    try:
        version = call(_CREATE_RULESET, None, 0, _VERSION)
    except OSError as error:
        raise cannot(f"Landlock is not to be had ({error.strerror})") from error
    try:
        prctl(_PR_GET_SECCOMP)
    except OSError as error:
        raise cannot(f"seccomp is not to be had ({error.strerror})") from error
    return version


def set_traceable(allowed: bool) -> bool:
    """Say whether other processes of this user may look into this one; return what held before.

    After `close_memory` none may, whatever is allowed: the process holds keys.

    Raises:
        OSError: the kernel refuses.
    """
    before = prctl(_PR_GET_DUMPABLE) == 1
    prctl(_PR_SET_DUMPABLE, int(allowed and not _closed.is_set()))
    return before


def close_memory() -> None:
    """Keep what this process holds in memory from its user's other processes, and from core dumps.

    Until it ends or runs another program: none of them may attach to it or read its memory. Who
    has ``CAP_SYS_PTRACE``, as root has, may all the same. On a system without prctl only core dumps
    are refused; `secure-fgl doctor` says so.

    Raises:
        UsageError: the kernel refuses; nothing secret may be loaded then.
    """
    try:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if sys.platform == "linux":
            set_traceable(False)
            _closed.set()
    except OSError as error:
        raise UsageError(
            f"This process cannot close its memory to others ({error.strerror}).",
            why="it is to hold secret keys, and the kernel refuses prctl(PR_SET_DUMPABLE)",
            fix="let the container's seccomp profile pass prctl",
        ) from error


def threads() -> int:
    """Return how many threads this process has, those of native libraries included."""
    return len(os.listdir("/proc/self/task"))


def die_with(parent: int) -> None:
    """Let the kernel end this process when its parent ends; end it now if that is over already."""
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def close_sandbox(keep: int, readable: Iterable[Path]) -> None:
    """Give up everything but one descriptor and reading below some folders.

    Args:
        keep: the descriptor that stays open; standard input, output and error become nothing.
        readable: folders that may be read, with all below them.

    Raises:
        CannotIsolate: the kernel refuses, other threads run, or a forbidden thing still works.
    """
    version = check_kernel()
    if (running := threads()) != 1:  # they would stay outside
        raise cannot(f"{running} threads run in a process that must have one")
    try:
        _close_all_but(keep)
        set_traceable(False)
        for name, limit in _LIMITS.items():
            resource.setrlimit(getattr(resource, name), (limit, limit))
        prctl(PR_SET_NO_NEW_PRIVS, 1)
        landlock(version, readable)
        _seccomp()
    except OSError as error:
        raise cannot(f"the kernel refused a step of it ({error.strerror})") from error
    _try_it()


def _close_all_but(keep: int) -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        if descriptor != keep:
            os.dup2(nothing, descriptor)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.closerange(3, keep)
    os.closerange(max(3, keep + 1), most if most != resource.RLIM_INFINITY else 1 << 20)


def landlock(
    version: int,
    readable: Iterable[Path],
    *,
    files: int | None = None,
    network: int = _NET,
    ports: Iterable[int] = (),
) -> None:
    """Give up rights over files and ports for good; raises OSError.

    Args:
        version: of Landlock.
        readable: files and folders that may be read, with all below them.
        files: rights over files that are given up; None: all.
        network: rights over TCP ports that are given up.
        ports: to which it may still connect.
    """
    known = (1 << max(bits for since, bits in _FS_BITS.items() if since <= version)) - 1
    facts = [known if files is None else files]
    facts += [network] if version >= _NET_FROM else []
    facts += [_SCOPED] if version >= _SCOPED_FROM and files is None else []
    attributes = struct.pack(f"={len(facts)}Q", *facts)
    rules = call(_CREATE_RULESET, attributes, len(attributes), 0)
    try:
        for path in readable:
            place = os.open(path, os.O_PATH | os.O_CLOEXEC)
            rights = _READ if stat.S_ISDIR(os.fstat(place).st_mode) else _READ_FILE
            try:
                call(_ADD_RULE, rules, _PATH_BENEATH, struct.pack("=Qi", rights, place), 0)
            finally:
                os.close(place)
        for port in ports if network and version >= _NET_FROM else ():
            call(_ADD_RULE, rules, _NET_PORT, struct.pack("=QQ", _CONNECT, port), 0)
        call(_RESTRICT_SELF, rules, 0)
    finally:
        os.close(rules)


def argument(index: int, *, high: bool = False) -> Instruction:
    return (LOAD, 0, 0, _ARGUMENTS + 8 * index + 4 * high)


def answer(action: int) -> Instruction:
    return (_RETURN, 0, 0, action)


def _only(values: Sequence[int]) -> list[Instruction]:
    """Allow if the loaded word is one of these, else refuse."""
    rows: list[Instruction] = []
    for value in values:
        rows += [(EQUAL, 0, 1, value), answer(ALLOW)]
    return [*rows, answer(ERRNO | EPERM)]


def _reading(flags: int) -> list[Instruction]:
    refused = [(_ANY_BIT, 0, 1, _WRITING), answer(ERRNO | EPERM), answer(ALLOW)]
    return [argument(flags), *refused]


def _zeros(words: Sequence[Instruction]) -> list[Instruction]:
    """Allow if all these words are zero, else refuse."""
    rows: list[Instruction] = []
    for word in words:
        rows += [word, (EQUAL, 1, 0, 0), answer(ERRNO | EPERM)]
    return [*rows, answer(ALLOW)]


def _program(machine: str, me: int) -> list[Instruction]:
    """Return the filter: what is not named fails with EPERM, a foreign architecture kills."""
    asked = {
        "open": _reading(1),
        "openat": _reading(2),
        "fcntl": [argument(1), *_only((_F_GETFD, _F_GETFL))],  # F_SETOWN would send signals
        "tgkill": [argument(0), *_only((me,))],  # how a process aborts
        "prlimit": _zeros([argument(0), argument(2), argument(2, high=True)]),  # reading its own
        "clone3": [answer(ERRNO | _ENOSYS)],  # what libc takes as "try clone", which fails
    }
    rows: list[Instruction] = [
        (LOAD, 0, 0, ARCH),
        (EQUAL, 1, 0, ARCHITECTURE[machine]),
        answer(KILL),
        (LOAD, 0, 0, NUMBER),
    ]
    for number in _FREE[machine]:
        rows += [(EQUAL, 0, 1, number), answer(ALLOW)]
    for name, number in _ASKED[machine].items():
        block = asked[name]
        rows += [(EQUAL, 0, len(block), number), *block]
    return [*rows, answer(ERRNO | EPERM)]


def _seccomp() -> None:
    rows = _program(platform.machine(), os.getpid())
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *row) for row in rows))
    # struct sock_fprog: a length, padding, a pointer.
    program = ctypes.create_string_buffer(struct.pack("@HP", len(rows), ctypes.addressof(code)))
    prctl(_PR_SET_SECCOMP, _MODE_FILTER, program)


def _try_it() -> None:
    """Try what must fail now; raises CannotIsolate if something works."""

    def fork() -> None:
        if os.fork() == 0:
            os._exit(0)

    attempts: dict[str, Callable[[], object]] = {
        "a socket": lambda: socket.socket(socket.AF_UNIX),
        "writing": lambda: os.open(os.devnull, os.O_WRONLY),
        "reading": lambda: os.open("/proc/self/environ", os.O_RDONLY),
        "a new process": fork,
        "a signal to another process": lambda: os.kill(os.getppid(), signal.SIGCONT),
    }
    for name, attempt in attempts.items():
        with suppress(OSError):
            attempt()
            raise cannot(f"{name} still works in the closed process")
