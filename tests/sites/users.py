"""Users of this machine, each with a home of its own, who type commands as docs/pilot.md has them.

As root each user has an id of its own. Where the programs lie in a folder that others may not
enter, each command sees them in a mount namespace in which it may. Without root everybody is the
user who runs the tests, and `why_one` says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shlex
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from tests.sites.left import processes_of
from tests.secure_fgl.cli_tools import ROOT

FIRST_UID = 61_400
_SET_CHILD_SUBREAPER = 36  # of prctl
_PROGRAMS = Path(sys.executable).parent  # of the environment, with its links
_PLACES = (ROOT, Path(sys.prefix), Path(sys.base_prefix))


def _closed() -> dict[Path, list[Path]]:
    """Return the outermost folders that others may not enter, and the places of ours in each."""
    found: dict[Path, list[Path]] = {}
    for place in dict.fromkeys(_PLACES):
        above = (one for one in reversed(place.parents) if not one.stat().st_mode & stat.S_IXOTH)
        if (first := next(above, None)) is not None:
            found.setdefault(first, []).append(place)
    return found


def _shown(words: list[str], hold: Path) -> list[str]:
    """Return a command that sees the programs where they are, whoever may enter there."""
    steps, held = ["umask 022"], 0
    for folder, places in _closed().items():
        kept = {hold / str(held + number): place for number, place in enumerate(places)}
        held += len(places)
        steps += [f"mkdir -p {aside} && mount --bind {p} {aside}" for aside, p in kept.items()]
        steps.append(f"mount -t tmpfs -o mode=0755 none {folder}")
        steps += [f"mkdir -p {p} && mount --bind {aside} {p}" for aside, p in kept.items()]
    if held == 0:
        return words
    whole = " && ".join([*steps, 'exec "$@"'])
    return ["unshare", "--mount", "--propagation", "private", "sh", "-euc", whole, "sh", *words]


@cache
def why_one(hold: Path) -> str:
    """Say why all users are one on this machine; empty where each has an id of its own."""
    if os.geteuid() != 0:
        return "only root starts processes of other users"
    if shutil.which("setpriv") is None or shutil.which("unshare") is None:
        return "setpriv and unshare of util-linux are not here"
    tried = User("nobody", hold, FIRST_UID - 1, hold)
    done = tried.ran("cd / && python3 -c 'import secure_fgl, torch'")
    return "" if done.returncode == 0 else f"others cannot read the programs: {done.stdout[-200:]}"


@dataclass
class User:
    """One user.

    Attributes:
        name: what the page calls it.
        home: its folder.
        uid: its number; None: that of who runs the tests.
        hold: a folder of root's for mounts.
        more: of its environment.
    """

    name: str
    home: Path
    uid: int | None
    hold: Path
    more: dict[str, str] = field(default_factory=dict)

    @property
    def _environment(self) -> dict[str, str]:
        """Nothing is taken over from whoever runs the tests."""
        path = os.pathsep.join([str(_PROGRAMS), "/usr/local/bin", "/usr/bin", "/bin"])
        who = {"HOME": str(self.home), "USER": self.name, "LOGNAME": self.name}
        fixed = {"PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8"}
        return {**who, **fixed, **self.more}

    def _words(self, line: str) -> list[str]:
        words = ["sh", "-c", f"umask 077; {line}"]
        if self.uid is None:
            return words
        me = str(self.uid)
        return _shown(
            ["setpriv", "--reuid", me, "--regid", me, "--clear-groups", *words], self.hold
        )

    def ran(self, line: str, *, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a line in its home until it ends; what it says on either way is in `stdout`."""
        return subprocess.run(
            self._words(line), cwd=self.home, env=self._environment, input=given, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, check=False,
        )  # fmt: skip

    def does(self, line: str) -> str:
        """Run a line that must succeed; return what it says."""
        done = self.ran(line)
        assert done.returncode == 0, f"{self.name}: {line}\n{done.stdout[-3000:]}"
        return done.stdout

    def starts(self, line: str, log: Path) -> subprocess.Popen[bytes]:
        """Start a line that goes on; what it says is added to a file."""
        with log.open("ab") as file:
            return subprocess.Popen(
                self._words(line), cwd=self.home, env=self._environment,
                stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True,
            )  # fmt: skip

    def opens(self, paths: Iterable[Path]) -> list[str]:
        """Return what of these it can read, list, or, of a socket, connect to."""
        done = self.ran(f"python3 -Sc {shlex.quote(_TRIES)}", given="\n".join(map(str, paths)))
        assert done.returncode == 0, done.stdout
        return done.stdout.splitlines()


_TRIES = """
import os, socket, stat, sys
for path in sys.stdin.read().splitlines():
    try:
        mode = os.stat(path).st_mode
        if stat.S_ISDIR(mode):
            os.listdir(path)
        elif stat.S_ISSOCK(mode):
            os.chdir(os.path.dirname(path))
            socket.socket(socket.AF_UNIX).connect(os.path.basename(path))
        else:
            os.close(os.open(path, os.O_RDONLY))
    except OSError:
        continue
    print(path)
"""


@contextlib.contextmanager
def adopting(*, seconds: float = 60.0) -> Iterator[None]:
    """Let what a command leaves in the background be this process's, and collect it once it ended.

    It is else process 1's, which in a container may collect nothing.

    Raises:
        AssertionError: something of it has not ended at the end.
    """
    import psutil  # NVFlare needs it too

    here, libc = psutil.Process(), ctypes.CDLL(None)
    before = {*here.children()}
    libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
        deadline = time.monotonic() + seconds
        while left := {*here.children()} - before:
            assert time.monotonic() < deadline, f"these did not end: {left}"
            for one in left:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(one.pid, os.WNOHANG)
            time.sleep(0.05)
    finally:
        libc.prctl(_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def end(base: Path, *, seconds: float = 60.0) -> list[int]:
    """End all that was started below a folder; return what does not end."""
    number, deadline = signal.SIGTERM, time.monotonic() + seconds
    while (left := processes_of(base)) and time.monotonic() < deadline:
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        time.sleep(0.5 if number == signal.SIGKILL else 5.0)
        number = signal.SIGKILL
    return left
