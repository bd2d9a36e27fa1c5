"""Which network a process has, and whether this machine can give one that leads nowhere.

Sources: Linux `man 7 network_namespaces`, `man 2 unshare`, `include/uapi/linux/sched.h`.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress
from pathlib import Path

from secure_fgl.errors import UsageError

__all__ = ["check_empty_network", "interfaces", "leads_nowhere"]

_NEW_USER, _NEW_NET = 0x10000000, 0x40000000
_LOOPBACK = "lo"
_HEAD = 2  # lines above the interfaces
_WRONG = 255  # exit code of a child whose new network has more than the loopback interface


def interfaces(process: int | str = "self") -> list[str]:
    """Return the network interfaces that a process sees, by name; raises OSError."""
    lines = Path(f"/proc/{process}/net/dev").read_text("ascii").splitlines()[_HEAD:]
    return sorted(line.partition(":")[0].strip() for line in lines)


def leads_nowhere(names: list[str]) -> bool:
    """Tell whether these interfaces reach no other machine: the loopback one, or none."""
    return {*names} <= {_LOOPBACK}


def check_empty_network() -> None:
    """See that this user can give a process a network of its own, with nothing in it.

    A child tries and ends. Root asks for the network alone, as systemd does for ``PrivateNetwork``;
    another user needs a user namespace besides, which many machines keep from users.

    Raises:
        UsageError: the kernel refuses, or there is no such thing on this system.
    """
    if sys.platform != "linux":
        raise UsageError(f"{sys.platform} has no network namespaces.")
    flags = _NEW_NET if os.geteuid() == 0 else _NEW_NET | _NEW_USER
    child = os.fork()
    if child == 0:
        code = _WRONG
        with suppress(BaseException):
            libc = ctypes.CDLL(None, use_errno=True)
            refused = libc.unshare(ctypes.c_int(flags)) and ctypes.get_errno()
            code = refused or (0 if leads_nowhere(interfaces()) else _WRONG)
        os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 0:
        return
    said = os.strerror(code) if 0 < code < _WRONG else "and it was not empty"
    raise UsageError(f"This user may make no empty network namespace here ({said}).")
