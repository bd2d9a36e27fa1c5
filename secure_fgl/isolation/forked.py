"""Processes that are forked off this one: all code is loaded, and nothing secret is yet.

Importing what a session needs takes seconds. So `site start` imports it once and forks the party's
process, again and again where that one crashes; and that one forks the process of its answers
before it loads a key. Nothing is drawn before a fork: every secret draw is the operating system's
(`crypto.samplers`), and no library's generator was used yet. Where other threads run already, a
fork would be unsafe, and the callers start a fresh interpreter.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from secure_fgl.isolation.kernel import prctl

__all__ = ["ONE_THREAD", "Forked", "can_fork", "lose_descriptors"]

ONE_THREAD = dict.fromkeys(
    ("MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1"
)
"""Environment of a process that libraries start no threads in, where it is set from the start."""

_LOOK_SECONDS = 0.01
_SET_NAME = 15  # PR_SET_NAME
_FAILED = 70  # sysexits' EX_SOFTWARE


def can_fork() -> bool:
    """Tell whether this process has one thread, so that a fork is a whole copy of it."""
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:  # no /proc
        return False


class Forked:
    """A child that runs a function and ends with what it returns; used as `subprocess.Popen` is.

    The child leads a session of its own where `leads`, has all signals as at a program's start, and
    no descriptor of this process but standard input, output and error: all others lead nowhere.

    Args:
        work: returns the exit code.
        stdin: descriptor that becomes standard input; None: nothing is to be read.
        output: descriptor that becomes standard output and error; None: as they are.
        leads: whether the child is deaf to the terminal, as the first of a new session.
        name: what lists of processes call it, up to 15 characters.
    """

    def __init__(
        self,
        work: Callable[[], int],
        *,
        stdin: int | None = None,
        output: int | None = None,
        leads: bool = False,
        name: str = "",
    ) -> None:
        self.returncode: int | None = None
        self.args: list[str] = []
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            code = _FAILED
            try:
                _begin(stdin, output, leads)
                if name:
                    prctl(_SET_NAME, name.encode()[:15])
                code = work()
            except SystemExit as error:
                code = error.code if isinstance(error.code, int) else _FAILED
            except BaseException as error:  # its text could hold what may not be printed
                with contextlib.suppress(OSError):
                    os.write(2, f"the process ended ({type(error).__name__})\n".encode())
            finally:
                with contextlib.suppress(BaseException):
                    sys.stdout.flush()
                    sys.stderr.flush()
                os._exit(code)

    def poll(self) -> int | None:
        """Return the exit code, below 0 for a signal; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end; raises TimeoutExpired."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(self.args, timeout or 0.0)
            time.sleep(_LOOK_SECONDS)
        return code

    def send_signal(self, number: int) -> None:
        """Signal it, unless it ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def _begin(stdin: int | None, output: int | None, leads: bool) -> None:
    if leads:
        os.setsid()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing if stdin is None else stdin, 0)
    if output is not None:
        os.dup2(output, 1)
        os.dup2(output, 2)
    lose_descriptors(2)


def lose_descriptors(last: int) -> None:
    """Let every descriptor above `last` lead nowhere.

    They are not closed: a library whose own descriptor is gone may end the process at the next fork
    (Arrow does).
    """
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    for number in map(int, os.listdir("/proc/self/fd")):
        if number > last and number != nothing:
            os.dup2(nothing, number, inheritable=False)
