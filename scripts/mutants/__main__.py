"""Plant each fault in a copy of the tree and show that a test finds it.

Run from the repository's root::

    python -m scripts.mutants                 # all faults, each by the tests of found_by.yaml
    python -m scripts.mutants o1-… law-…      # some faults
    python -m scripts.mutants --whole         # whatever these tests do not find, by all tests
    python -m scripts.mutants --list

Exits 1 if a fault is not found, and 2 if the list does not fit the tree: its text is not there,
what was planted cannot be imported, or a test that it names is not there or fails anyhow.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from scripts.house_rules import FLOORS
from scripts.mutants.listed import BadList, Fault, plant, read_faults, read_tests, sources

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE_S = 900  # of the few tests that are tried first; a fault may make one wait for ever
WHOLE = (
    "tests",
    *("-n", "2", "--dist", "worksteal"),
    # They read the source itself, and see that it changed.
    "--ignore=tests/test_mutants.py",
    "--ignore=tests/test_repository.py",
)
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S.*?)(?: - |$)", re.MULTILINE)
_BROKEN = re.compile(
    r"^E\s+(?:\S*\.)?(SyntaxError|IndentationError|ImportError|ModuleNotFoundError|NameError|"
    r"NotOurCode|CircularImport)\b",
    re.MULTILINE,
)


class Copy:
    """The tracked files of a repository, in a folder of their own.

    Args:
        root: the repository.
        place: where the copy is made.

    Raises:
        BadList: a Python that is started there takes a floor from elsewhere.
    """

    def __init__(self, root: Path, place: Path) -> None:
        self.place = place
        git = ["git", "-C", str(root), "ls-files", "-z"]
        listed = subprocess.run(git, check=True, capture_output=True).stdout
        for name in map(os.fsdecode, filter(None, listed.split(b"\0"))):
            if (root / name).is_file():
                (place / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(root / name, place / name)
        # Before any installed floor, in processes that tests start as well.
        paths = [str(place), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        for floor in FLOORS:
            found = self._python(f"import {floor}; print({floor}.__file__)")
            if Path(found).resolve() != (place / floor / "__init__.py").resolve():
                raise BadList(f"{floor} would come from {found}, not from the copy")
        self.texts = sources(place)

    def _python(self, code: str) -> str:
        command = [sys.executable, "-c", code]
        return subprocess.run(
            command,
            check=True,
            cwd=self.place,
            env=self._environment,
            capture_output=True,
            text=True,
        ).stdout.strip()

    def failing(self, tests: Sequence[str], patience: int | None = PATIENCE_S) -> str | None:
        """Return the first test that fails in the copy, or None.

        Raises:
            BadList: nothing was tested: no such test, or what stands here cannot be imported.
        """
        command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=short", "-rfE"]
        command += ["-p", "no:cacheprovider", "-m", "not long", *tests]
        try:
            done = subprocess.run(
                command,
                check=False, cwd=self.place, env=self._environment, timeout=patience,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise BadList(f"its tests took more than {patience} s") from None
        return verdict(done.returncode, done.stdout)

    def with_fault(
        self, fault: Fault, tests: Sequence[str], patience: int | None = PATIENCE_S
    ) -> str | None:
        """Return the first test that fails with a fault, or None; the copy is as before then."""
        file, planted = plant(fault, self.texts)
        file.write_text(planted, "utf-8")
        try:
            return self.failing(tests, patience)
        finally:
            file.write_text(self.texts[file], "utf-8")

    def find(self, fault: Fault, tests: Sequence[str], *, whole: bool) -> str | None:
        """Return the test that finds a fault: one of some, or with `whole` any; None if none does.

        Raises:
            BadList: nothing was tested, or what fails does so without the fault as well.
        """
        found = self.with_fault(fault, tests) if tests else None
        if found or not whole:
            return found
        found = self.with_fault(fault, WHOLE, None)
        if found and self.failing([found]):
            raise BadList(f"{found} fails without the fault too")
        return found


def verdict(code: int, output: str) -> str | None:
    """Return the test that failed, or None if all passed; from pytest's exit code and output.

    Raises:
        BadList: it is no test that failed, but what it wanted to import; or there was no test.
    """
    if code == 0:
        return None
    failed = _FAILED.search(output)
    broken = _BROKEN.search(output)
    # 2: stopped, after a failure with several workers, or because nothing could be collected.
    if code not in (1, 2) or failed is None or "::" not in failed[1] or broken is not None:
        last = output.strip().splitlines()[-1:] or ["no output"]
        raise BadList(f"not tested: {broken[1] if broken else last[0]}")
    return failed[1]


def run(faults: Sequence[Fault], tests: Mapping[str, Sequence[str]], *, whole: bool) -> int:
    """Plant faults one after the other; print what finds each, and return the exit status."""
    missed, spoilt = list[str](), list[str]()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Copy(ROOT, Path(folder))
        named = sorted({test for fault in faults for test in tests.get(fault.id, ())})
        if named and (bad := copy.failing(named, None)):
            raise BadList(f"{bad} fails without any fault")
        for fault in faults:
            start = time.monotonic()
            try:
                found = copy.find(fault, tests.get(fault.id, ()), whole=whole)
            except BadList as error:
                spoilt.append(fault.id)
                print(f"ERROR      {fault.id}: {error}", flush=True)
                continue
            if found is None:
                missed.append(fault.id)
            said = f"by {found}" if found else f"({fault.wrong})"
            took = f"{time.monotonic() - start:.0f} s"
            print(f"{'found' if found else 'NOT FOUND':10} {fault.id} {said} [{took}]", flush=True)
    count = len(faults) - len(missed) - len(spoilt)
    print(f"{count} of {len(faults)} faults found")
    return 2 if spoilt else 1 if missed else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m scripts.mutants", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="by default all")
    parser.add_argument("--list", action="store_true", help="print the faults and end")
    parser.add_argument("--whole", action="store_true", help="run all tests on what is not found")
    given = parser.parse_args(arguments)
    try:
        faults, tests = read_faults(), read_tests()
        if unknown := sorted(set(given.faults) - {fault.id for fault in faults}):
            parser.error(f"no such fault: {', '.join(unknown)}")
        chosen = [fault for fault in faults if not given.faults or fault.id in given.faults]
        if given.list:
            for fault in chosen:
                print(f"{fault.id} ({', '.join(fault.obligations)}): {fault.wrong}")
            return 0
        return run(chosen, tests, whole=given.whole)
    except BadList as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
