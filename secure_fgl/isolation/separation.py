"""What a party's process and its carrier each give up, so that keys and network stay apart.

The party holds keys and data: seccomp takes from it every way to open a connection, and Landlock
every way into another process. It keeps the socket at which it listens, and pairs of stream sockets
for the process of its answers. The carrier holds the network: Landlock takes from it every file but
the program's, the system's and its own folder, every port but the broker's, and the right to
listen; seccomp takes changes to files' rights, Unix sockets, and all that reaches into other
processes. Both hold until the process ends, and for all that it starts.

Not taken from the carrier: names, sizes and times of files, and the system's own settings in /etc.

Sources: Linux `Documentation/userspace-api/landlock.rst` and `seccomp_filter.rst`; numbers of
system calls from `arch/x86/entry/syscalls/syscall_64.tbl` and `include/uapi/asm-generic/unistd.h`.
"""

from __future__ import annotations

import ctypes
import os
import platform
import site
import socket
import struct
import sys
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from secure_fgl.isolation import kernel

__all__ = ["close_files", "close_network", "separable"]

_INTO_OTHERS = {  # io_uring_setup, ptrace, process_vm_readv and _writev, pidfd_getfd
    "x86_64": (425, 101, 310, 311, 438),
    "aarch64": (425, 117, 270, 271, 438),
}
_CONNECTING = {"x86_64": (41, 42), "aarch64": (198, 203)}  # socket, connect
_SOCKETPAIR = {"x86_64": 53, "aarch64": 199}
_SOCKET = {"x86_64": 41, "aarch64": 198}
_CHANGING = {
    # chmod, fchmod, chown, fchown, lchown, fchownat, fchmodat, fchmodat2, utime, utimes, futimesat,
    # utimensat, setxattr, lsetxattr, fsetxattr, setxattrat, removexattr and its kin,
    # setpriority, sched_setaffinity, sched_setparam, sched_setscheduler, unshare, setns, mount,
    # kexec_load, bpf, kill, tkill, pidfd_send_signal, prlimit64
    "x86_64": (
        *(90, 91, 92, 93, 94, 260, 268, 452, 132, 235, 261, 280, 188, 189, 190, 463, 197, 198, 199),
        *(141, 203, 142, 144, 272, 308, 165, 246, 321, 62, 200, 424, 302),
    ),
    "aarch64": (
        *(52, 53, 54, 55, 452, 88, 5, 6, 7, 463, 14, 15, 16, 140, 122, 118, 119, 97, 268, 40, 104),
        *(280, 129, 130, 424, 261),
    ),
}
_IOCTL = {"x86_64": 16, "aarch64": 29}
_TYPE_INTO_TERMINAL = 0x5412  # TIOCSTI
_SECCOMP = {"x86_64": 317, "aarch64": 277}
_SET_FILTER, _ALL_THREADS = 1, 1
_X32 = 0x40000000
_AT_LEAST, _AND = 0x35, 0x54  # BPF_JMP | BPF_JGE, BPF_ALU | BPF_AND
_KIND = 0xF  # of a socket, without its flags
_BIND, _CONNECT = 0b01, 0b10
_NAMES = 53  # DNS over TCP, where an answer is too long for UDP
_REFUSE = kernel.answer(kernel.ERRNO | kernel.EPERM)
_ALLOW = kernel.answer(kernel.ALLOW)


def separable() -> str:
    """Say that this machine can keep keys and network apart; raises CannotIsolate."""
    return f"Landlock {kernel.check_kernel()} and seccomp keep keys and network apart"


def close_network() -> None:
    """Take from this process, all its threads and all that it starts, the way to any other.

    Raises:
        CannotIsolate: the kernel refuses, or a connection can still be opened.
    """
    version, machine = kernel.check_kernel(), platform.machine()
    taken = (*_CONNECTING[machine], *_INTO_OTHERS[machine])
    pairs = [  # AF_UNIX streams alone: a pair of datagram sockets sends to any address
        kernel.argument(0), (kernel.EQUAL, 1, 0, socket.AF_UNIX), _REFUSE,
        kernel.argument(1), (_AND, 0, 0, _KIND),
        (kernel.EQUAL, 1, 0, socket.SOCK_STREAM), _REFUSE, _ALLOW,
    ]  # fmt: skip
    try:
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        # A domain of its own: the kernel lets no process in one look into one outside.
        kernel.landlock(version, [], files=kernel.MAKE_BLOCK, network=0)
        _filter(machine, taken, {_SOCKETPAIR[machine]: pairs})
    except OSError as error:
        raise kernel.cannot(f"the kernel refused a step of it ({error.strerror})") from error
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX):
        with suppress(OSError):
            socket.socket(family).close()
            raise kernel.cannot("the process that holds keys can still open a connection")


def close_files(
    own: Path, secret: Iterable[Path], *, ports: Collection[int] = (), unix: bool = False
) -> None:
    """Take from this process all files but the program's, the system's and those below `own`.

    Args:
        own: the carrier's folder.
        secret: files and folders of which one that is there must not open afterwards.
        ports: of the broker's servers, the only ones to which it may still connect.
        unix: keep Unix sockets, for a carrier that nobody hands its connection to the party.

    Raises:
        CannotIsolate: the kernel refuses, or one of `secret` can still be opened.
    """
    version, machine = kernel.check_kernel(), platform.machine()
    inet = [
        kernel.argument(0), (kernel.EQUAL, 0, 1, socket.AF_UNIX), _REFUSE, _ALLOW,
    ]  # fmt: skip
    typing = [kernel.argument(1), (kernel.EQUAL, 0, 1, _TYPE_INTO_TERMINAL), _REFUSE, _ALLOW]
    asked = {_IOCTL[machine]: typing} | ({} if unix else {_SOCKET[machine]: inet})
    try:
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        kernel.landlock(
            version, [own, *_program()], network=_BIND | _CONNECT, ports=[*ports, _NAMES]
        )
        _filter(machine, (*_INTO_OTHERS[machine], *_CHANGING[machine]), asked)
    except OSError as error:
        raise kernel.cannot(f"the kernel refused a step of it ({error.strerror})") from error
    for path in secret:
        with suppress(PermissionError, FileNotFoundError):
            os.close(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            raise kernel.cannot(f"the carrier can still read {path}")


def _filter(machine: str, taken: Sequence[int], asked: dict[int, list[kernel.Instruction]]) -> None:
    """Install a filter in all threads: `taken` calls fail, those in `asked` by their arguments."""
    rows: list[kernel.Instruction] = [
        (kernel.LOAD, 0, 0, kernel.ARCH),
        (kernel.EQUAL, 1, 0, kernel.ARCHITECTURE[machine]),
        kernel.answer(kernel.KILL),
        (kernel.LOAD, 0, 0, kernel.NUMBER),
    ]
    if machine == "x86_64":  # the same calls by other numbers
        rows += [(_AT_LEAST, 0, 1, _X32), _REFUSE]
    for number in taken:
        rows += [(kernel.EQUAL, 0, 1, number), _REFUSE]
    for number, block in asked.items():
        rows += [(kernel.EQUAL, 0, len(block), number), *block]
    rows.append(_ALLOW)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *row) for row in rows))
    program = ctypes.create_string_buffer(struct.pack("@HP", len(rows), ctypes.addressof(code)))
    if kernel.call(_SECCOMP[machine], _SET_FILTER, _ALL_THREADS, program):
        raise kernel.cannot("a thread of this process kept what all are to give up")


def _program() -> list[Path]:
    """Return what code is read from, and where the system says how names are looked up."""
    house = Path(__file__).resolve().parents[1]  # the package, never the folder around it
    installed = [*site.getsitepackages(), sys.prefix, sys.base_prefix]
    system = ["/usr", "/lib", "/lib64", "/etc", "/run/systemd/resolve", "/proc/self"]
    system += ["/dev/urandom"]
    wanted = [house, *map(Path, [*installed, *system])]
    floors = [house.parent / name for name in ("audits", "algorithms", "protocols", "crypto")]
    return [path for path in [*wanted, *floors] if path.exists()]
