"""What a party's process and its carrier each give up, so that keys and network stay apart.

The party holds keys and data: seccomp takes from it every way to open a connection or to reach
into another process. It keeps the socket at which it listens and the pairs that it makes for the
process of its answers. The carrier holds the network: Landlock takes from it every file but the
program's, the system's and its own folder, and the right to listen at a port. Both hold until the
process ends, and for all that it starts.

Sources: Linux `Documentation/userspace-api/landlock.rst` and `seccomp_filter.rst`; numbers of
system calls as in `secure_fgl.isolation.kernel`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import site
import socket
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from secure_fgl.isolation import kernel

__all__ = ["close_files", "close_network", "separable"]

_TAKEN = {  # socket, connect, io_uring_setup, ptrace, process_vm_readv and _writev, pidfd_getfd
    "x86_64": (41, 42, 425, 101, 310, 311, 438),
    "aarch64": (198, 203, 425, 117, 270, 271, 438),
}
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER, _ALL_THREADS = 1, 1
_X32 = 0x40000000
_AT_LEAST = 0x35  # BPF_JMP | BPF_JGE
_BIND_TCP = 0b01


def separable() -> str:
    """Say that this machine can keep keys and network apart; raises CannotIsolate."""
    return f"Landlock {kernel.check_kernel()} and seccomp keep keys and network apart"


def close_network() -> None:
    """Take from this process, all its threads and all that it starts, the way to any other.

    Raises:
        CannotIsolate: the kernel refuses, or a connection can still be opened.
    """
    kernel.check_kernel()
    machine = platform.machine()
    refuse = kernel.answer(kernel.ERRNO | kernel.EPERM)
    rows: list[kernel.Instruction] = [
        (kernel.LOAD, 0, 0, kernel.ARCH),
        (kernel.EQUAL, 1, 0, kernel.ARCHITECTURE[machine]),
        kernel.answer(kernel.KILL),
        (kernel.LOAD, 0, 0, kernel.NUMBER),
    ]
    if machine == "x86_64":  # the same calls by other numbers
        rows += [(_AT_LEAST, 0, 1, _X32), refuse]
    for number in _TAKEN[machine]:
        rows += [(kernel.EQUAL, 0, 1, number), refuse]
    rows.append(kernel.answer(kernel.ALLOW))
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *row) for row in rows))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(rows), ctypes.addressof(code)))
    try:
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if kernel.call(_SECCOMP[machine], _SET_FILTER, _ALL_THREADS, program):
            raise kernel.cannot("a thread of the process that holds keys kept its network")
    except OSError as error:
        raise kernel.cannot(f"the kernel refused a step of it ({error.strerror})") from error
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
        with suppress(OSError):
            socket.socket(family).close()
            raise kernel.cannot("the process that holds keys can still open a connection")


def close_files(own: Path, secret: Iterable[Path]) -> None:
    """Take from this process all files but the program's, the system's and those below `own`.

    Args:
        own: the carrier's folder.
        secret: files and folders of which one that is there must not open afterwards.

    Raises:
        CannotIsolate: the kernel refuses, or one of `secret` can still be opened.
    """
    version = kernel.check_kernel()
    try:
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.landlock(version, [own, *_program()], network=_BIND_TCP)
    except OSError as error:
        raise kernel.cannot(f"the kernel refused a step of it ({error.strerror})") from error
    for path in secret:
        with suppress(PermissionError, FileNotFoundError):
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            raise kernel.cannot(f"the carrier can still read {path}")


def _program() -> list[Path]:
    """Return what code is read from, and where the system says how names are looked up."""
    house = Path(__file__).resolve().parents[1]  # the package, never the folder around it
    installed = [*site.getsitepackages(), sys.prefix, sys.base_prefix]
    system = [
        "/usr",
        "/lib",
        "/lib64",
        "/etc",
        "/run/systemd/resolve",
        "/proc/self",
        "/dev/urandom",
    ]
    wanted = [house, *map(Path, [*installed, *system])]
    floors = [house.parent / name for name in ("audits", "algorithms", "protocols", "crypto")]
    return [path for path in [*wanted, *floors] if path.exists()]
