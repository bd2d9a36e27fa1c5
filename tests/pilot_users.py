"""Users of this machine, each with a home of its own, who type commands as docs/pilot.md has them.

As root each user has an id of its own. Where the programs lie in a folder that others may not
enter, each command sees them in a mount namespace in which it may. Without root all are the user
of the tests, and `why_one` gives the reason.
"""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.secure_fgl.cli_tools import ROOT

FIRST_UID = 61_400
_PROGRAMS = Path(sys.executable).parent  # of the environment, with its links
_PLACES = (ROOT, Path(sys.prefix), Path(sys.base_prefix))


def _closed() -> dict[Path, list[Path]]:
    """Return the outermost folders that others may not enter, and the places of ours in each."""
    found: dict[Path, list[Path]] = {}
    for place in dict.fromkeys(_PLACES):
        above = (p for p in reversed(place.parents) if not p.stat().st_mode & stat.S_IXOTH)
        if (first := next(above, None)) is not None:
            found.setdefault(first, []).append(place)
    return found


def _shown(words: list[str], hold: Path) -> list[str]:
    """Return a command that sees the programs at their paths, also where others may not enter."""
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


def why_one(hold: Path) -> str:
    """Return why all users are one on this machine; empty where each has an id of its own."""
    if os.geteuid() != 0:
        return "only root starts processes of other users"
    if shutil.which("setpriv") is None or shutil.which("unshare") is None:
        return "setpriv and unshare of util-linux are not here"
    tried = User("nobody", Path("/"), FIRST_UID - 1, hold)
    done = tried.ran("python3 -c 'import secure_fgl, torch'")
    return "" if done.returncode == 0 else f"others cannot read the programs: {done.stdout[-200:]}"


@dataclass
class User:
    """One user.

    Attributes:
        name: what the page calls it.
        home: its folder.
        uid: its number; None: that of the tests' user.
        hold: a folder of root's for mounts.
        more: of its environment.
    """

    name: str
    home: Path
    uid: int | None
    hold: Path
    more: dict[str, str] = field(default_factory=dict)

    def ran(self, line: str, *, given: str = "") -> subprocess.CompletedProcess[str]:
        """Run a line in its home until it ends; both outputs are in `stdout`."""
        return subprocess.run(
            self._words(line), cwd=self.home, env=self._environment, input=given, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, check=False,
        )  # fmt: skip

    def does(self, line: str) -> str:
        """Run a line that must succeed; return what it prints."""
        done = self.ran(line)
        assert done.returncode == 0, f"{self.name}: {line}\n{done.stdout[-3000:]}"
        return done.stdout

    def starts(self, line: str, log: Path) -> subprocess.Popen[bytes]:
        """Start a line that goes on; what it prints is added to a file."""
        with log.open("ab") as file:
            return subprocess.Popen(
                self._words(f"exec {line}"), cwd=self.home, env=self._environment,
                stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            )  # fmt: skip

    def opens(self, paths: Iterable[Path]) -> list[str]:
        """Return what of these it can read or list."""
        done = self.ran(f"python3 -Sc {shlex.quote(_TRIES)}", given="\n".join(map(str, paths)))
        assert done.returncode == 0, done.stdout
        return done.stdout.splitlines()

    @property
    def _environment(self) -> dict[str, str]:
        """Nothing is taken over from the tests."""
        path = os.pathsep.join([str(_PROGRAMS), "/usr/local/bin", "/usr/bin", "/bin"])
        who = {"HOME": str(self.home), "USER": self.name, "LOGNAME": self.name}
        fixed = {"PATH": path, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "LANG": "C.UTF-8"}
        return {**who, **fixed, **self.more}

    def _words(self, line: str) -> list[str]:
        words = ["sh", "-c", f"umask 077; {line}"]
        if self.uid is None:
            return words
        me = str(self.uid)
        change = ["setpriv", "--reuid", me, "--regid", me, "--clear-groups", *words]
        return _shown(change, self.hold)


_TRIES = """
import os, sys
for path in sys.stdin.read().splitlines():
    try:
        os.listdir(path) if os.path.isdir(path) else os.close(os.open(path, os.O_RDONLY))
    except OSError:
        continue
    print(path)
"""
