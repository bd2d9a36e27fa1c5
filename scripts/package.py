"""Build sdist and wheel, install what a stranger would get into a fresh environment, and use it.

Run from the repository's root, in the environment that the tests run in (`make package`)::

    python -m scripts.package

The wheel is built twice, from the checkout and from the unpacked sdist, and both must hold the same
files: then the sdist is complete. It is installed into an environment of its own without anything
from the net; the packages that it needs are lent by this environment. Then, far from the checkout:
`init --example`, `doctor`, a run of one round, and `audit verify`. Exits 1 at the first thing that
is wrong; otherwise both archives are left in ``dist/``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

__all__ = ["main", "same"]

ROOT = Path(__file__).resolve().parent.parent
TINY = ("algorithm.rounds=1", "policy=masks", "model.hidden=8", "evaluation.references=[]")
"""Settings of examples/banks.yaml, for a run of seconds."""


def _run(*command: str | Path, cwd: Path) -> str:
    """Run a command that sees nothing of the checkout; raises CalledProcessError."""
    hidden = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    own = {name: value for name, value in os.environ.items() if name not in hidden}
    own |= {"SECURE_FGL_STATE": str(cwd / "state"), "SECURE_FGL_BUDGETS": str(cwd / "budgets")}
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, env=own, text=True, stdout=subprocess.PIPE, check=True)
    return done.stdout


def _built(source: Path, target: str, folder: Path) -> Path:
    """Build one archive of `source` with this environment's hatchling; return its path."""
    _run(sys.executable, "-m", "hatchling", "build", "-t", target, "-d", folder, cwd=source)
    (made,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return made


def same(one: Path, other: Path) -> list[str]:
    """Return the names of files in which two wheels differ."""
    with zipfile.ZipFile(one) as first, zipfile.ZipFile(other) as second:
        names = {*first.namelist(), *second.namelist()}
        there = {*first.namelist()} & {*second.namelist()}
        return sorted(n for n in names if n not in there or first.read(n) != second.read(n))


def _environment(wheel: Path, folder: Path) -> Path:
    """Install a wheel, without what it needs, and lend it this environment's packages."""
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "-q")
    _run(*pip, "--no-deps", "--no-index", "--no-compile", wheel, cwd=wheel.parent)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Last on the path, and only once ours is installed: pip would take that of the tests for it.
    (packages / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n", "utf-8")
    return folder / "bin"


def main() -> int:
    """Do it; return the exit status."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name).resolve()
        sdist = _built(ROOT, "sdist", work / "sdist")
        with tarfile.open(sdist) as packed:
            packed.extractall(work / "source", filter="data")
        (source,) = (work / "source").iterdir()
        wheel = _built(source, "wheel", work / "wheel")
        if differing := same(wheel, _built(ROOT, "wheel", work / "checkout")):
            print(f"{sdist.name} makes another wheel than the checkout: {', '.join(differing)}")
            return 1
        bin_folder, away = _environment(wheel, work / "environment"), work / "away"
        away.mkdir()
        found = _run(
            bin_folder / "python", "-c", "import secure_fgl as s; print(s.__file__)", cwd=away
        )
        if work / "environment" not in Path(found.strip()).parents:
            print(f"What was installed is not what is imported: {found.strip()}")
            return 1
        program, example = bin_folder / "secure-fgl", away / "examples" / "banks.yaml"
        _run(program, "init", "--example", "banks", cwd=away)
        settings = [word for setting in TINY for word in ("--set", setting)]
        print(_run(program, "doctor", "--runs", away, cwd=away))
        print(_run(program, "run", example, *settings, "--out", away / "run", cwd=away))
        print(_run(program, "audit", "verify", away / "run", cwd=away))
        (ROOT / "dist").mkdir(exist_ok=True)
        for archive in (wheel, sdist):
            shutil.copy(archive, ROOT / "dist")
        print(f"{wheel.name} and {sdist.name} were built, installed and used; they are in dist/.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
