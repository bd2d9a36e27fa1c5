"""Random changes of a run folder and of a bundle: which of them does `audit verify` pass?

    python -m tests.laws.changing                    all of them, and which passed, by file
    python -m tests.laws.changing --list             the list of changes, without making any

A change is drawn from the seed and the names of the files alone: its kind, its file and places as
shares of the file's length. So the list is the same for every run of `finished`, and its digest is
kept (`DIGESTS`), where every run's bytes are new.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import random
import sys
import tempfile
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from audits.bundle.archive import MANIFEST, manifest, pack, unpack
from audits.checks.bundle import verify_bundle
from audits.checks.renderings import REPORT
from audits.evidence.steps import Case, run_checks
from audits.evidence.verify import CHECKS
from crypto.signing import SigningKey
from protocols.errors import SecureFglError
from secure_fgl.federation import Federation
from secure_fgl.store.bundles import write_bundle
from secure_fgl.store.finished_run import Run
from tests.laws.runs import config
from tests.secure_fgl.cli_tools import invoke
from tests.secure_fgl.test_audit_cli import waivers

SEED, FOLDER, BUNDLE = 29, 3_700, 1_895
DIGESTS = {
    "folder": "7343aa42350a14adacbd9bcd9011c9005d365e3b5c617b3b385c0dd5a8e7368a",
    "bundle": "d6c08897c6aab40433b963814bde79237792d0085045e0e5d9fa0c6ea69a63fb",
}
"""SHA-256 of the two lists of changes."""

REMOVED, CHANGED, UNREPORTED = "removed", "changed", "changed once report/ is gone"
OTHERS = "any other name"
UNBOUND = {
    "report/*": REMOVED,
    "attacks.json": UNREPORTED,
    "waivers.json": UNREPORTED,
    "rehearsal.json": UNREPORTED,
    "baseline.json": CHANGED,
    "result.json": UNREPORTED,
    "bundle.zip": CHANGED,
    "budgets/*": CHANGED,
    "private/*": CHANGED,
    "models/*": CHANGED,
    OTHERS: CHANGED,
}
"""Files of a run folder that are not bound, and what may happen to them while verification passes.

The page (docs/formats.md) names just these. Other names are those that no program of ours reads.
"""

Files = Mapping[str, bytes]
Made = dict[str, bytes | None]
"""What a change puts into the folder, by path; None: the file is removed."""


@dataclass(frozen=True)
class Change:
    """One change: its kind, its file, another file, and three shares in [0, 1)."""

    kind: str
    file: str
    other: str
    shares: tuple[float, float, float]

    def __str__(self) -> str:
        """Return a line of the list."""
        places = " ".join(f"{share:.6f}" for share in self.shares)
        return f"{self.kind} {self.file} {self.other} {places}"

    def place(self, size: int, share: int = 0) -> int:
        """Return a place in something of that size."""
        return int(self.shares[share] * size)

    def noise(self, size: int) -> bytes:
        """Return bytes that look random, and are a function of the change."""
        return hashlib.shake_128(str(self).encode()).digest(size)


# --- kinds of changes of one file's bytes ---------------------------------------------------------


def flip(data: bytes, change: Change) -> bytes:
    at, bit = change.place(len(data)), 1 << change.place(8, 1)
    return data[:at] + bytes([data[at] ^ bit]) + data[at + 1 :] if data else b""


def other_byte(data: bytes, change: Change) -> bytes:
    at = change.place(len(data))
    return data[:at] + change.noise(1) + data[at + 1 :]


def cut(data: bytes, change: Change) -> bytes:
    return data[: change.place(len(data))]


def cut_last(data: bytes, change: Change) -> bytes:
    return data[:-1]


def behead(data: bytes, change: Change) -> bytes:
    return data[change.place(len(data)) :]


def empty(data: bytes, change: Change) -> bytes:
    return b""


def append(data: bytes, change: Change) -> bytes:
    return data + change.noise(1 + change.place(64))


def append_newline(data: bytes, change: Change) -> bytes:
    return data + b"\n"


def insert(data: bytes, change: Change) -> bytes:
    at = change.place(len(data) + 1)
    return data[:at] + change.noise(1 + change.place(16, 1)) + data[at:]


def space(data: bytes, change: Change) -> bytes:
    """White space behind a comma or a colon: JSON of the same meaning."""
    places = [at for at, byte in enumerate(data) if byte in b",:"]
    at = 1 + places[change.place(len(places))] if places else 0
    return data[:at] + b" " + data[at:]


def remove(data: bytes, change: Change) -> bytes:
    at, size = change.place(len(data)), 1 + change.place(64, 1)
    return data[:at] + data[at + size :]


def zeros(data: bytes, change: Change) -> bytes:
    at, size = change.place(len(data)), 1 + change.place(64, 1)
    return data[:at] + bytes(len(data[at : at + size])) + data[at + size :]


def double(data: bytes, change: Change) -> bytes:
    return data + data


def _lines(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


def drop_line(data: bytes, change: Change) -> bytes:
    lines = _lines(data)
    del lines[change.place(len(lines)) : change.place(len(lines)) + 1]
    return b"".join(lines)


def repeat_line(data: bytes, change: Change) -> bytes:
    lines = _lines(data)
    at = change.place(len(lines))
    return b"".join([*lines[: at + 1], *lines[at : at + 1], *lines[at + 1 :]])


def move_line(data: bytes, change: Change) -> bytes:
    lines = _lines(data)
    if lines:
        line = lines.pop(change.place(len(lines)))
        lines.insert(change.place(len(lines) + 1, 1), line)
    return b"".join(lines)


def swap_lines(data: bytes, change: Change) -> bytes:
    lines = _lines(data)
    if lines:
        one, two = change.place(len(lines)), change.place(len(lines), 1)
        lines[one], lines[two] = lines[two], lines[one]
    return b"".join(lines)


def reverse(data: bytes, change: Change) -> bytes:
    return b"".join(_lines(data)[::-1])


def digit(data: bytes, change: Change) -> bytes:
    """Another digit in the place of one: well-formed, and another number."""
    places = [at for at, byte in enumerate(data) if byte in b"0123456789"]
    if not places:
        return data
    at = places[change.place(len(places))]
    return data[:at] + b"%d" % ((data[at] - 47) % 10) + data[at + 1 :]


def repack(data: bytes, change: Change) -> bytes:
    """The same members in another container: what arrays alone would not tell."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
    except zipfile.BadZipFile:
        return data
    raw, how = io.BytesIO(), change.place(3)
    packing = zipfile.ZIP_DEFLATED if how == 0 else zipfile.ZIP_STORED
    with zipfile.ZipFile(raw, "w", packing) as archive:
        for name in members if how != 1 else reversed(members):
            archive.writestr(name, members[name])
        archive.comment = b"more" if how == 2 else b""
    return raw.getvalue()


BYTES: tuple[Callable[[bytes, Change], bytes], ...] = (
    flip, other_byte, cut, cut_last, behead, empty, append, append_newline, insert, space, remove,
    zeros, double, drop_line, repeat_line, move_line, swap_lines, reverse, digit, repack,
)  # fmt: skip
ONE = {kind.__name__: kind for kind in BYTES}

# --- kinds of changes of whole files --------------------------------------------------------------

NAMES = ("{}.copy", "copy-{}", ".{}", "{}~")


def delete(files: Files, foreign: Files, change: Change) -> Made:
    return {change.file: None}


def swap(files: Files, foreign: Files, change: Change) -> Made:
    return {change.file: files[change.other], change.other: files[change.file]}


def overwrite(files: Files, foreign: Files, change: Change) -> Made:
    return {change.file: files[change.other]}


def of_another_run(files: Files, foreign: Files, change: Change) -> Made:
    return {change.file: foreign.get(change.file, b"")}


def rename(files: Files, foreign: Files, change: Change) -> Made:
    return {change.file: None, _beside(change): files[change.file]}


def duplicate(files: Files, foreign: Files, change: Change) -> Made:
    return {_beside(change): files[change.file]}


def duplicate_elsewhere(files: Files, foreign: Files, change: Change) -> Made:
    """A copy in the folder of another file, under its own name."""
    folder = change.other.rpartition("/")[0]
    name = "-".join(filter(None, ("new", change.file.rpartition("/")[2])))
    return {f"{folder}/{name}" if folder else name: files[change.file]}


def _beside(change: Change) -> str:
    folder, slash, name = change.file.rpartition("/")
    return f"{folder}{slash}{NAMES[change.place(len(NAMES))].format(name)}"


WHOLE = {
    kind.__name__: kind
    for kind in (
        delete, swap, overwrite, of_another_run, rename, duplicate, duplicate_elsewhere,
    )
}  # fmt: skip
RELISTED = "relisted"  # of a bundle: the manifest is made anew over the change
RAW = "archive"  # of a bundle: the bytes of the archive itself


def changes(names: Sequence[str], count: int, seed: int, *, bundle: bool = False) -> list[Change]:
    """Return that many changes of files of these names."""
    rng, found = random.Random(f"{seed}/{'bundle' if bundle else 'folder'}"), []
    kinds, ordered = [*ONE, *WHOLE], sorted(names)
    for _ in range(count):
        file, other = rng.choice(ordered), rng.choice(ordered)
        kind = rng.choice(kinds)
        if bundle:
            where = rng.choice((RAW, "packed", RELISTED))
            kind = f"{where}:{rng.choice([*ONE]) if where == RAW else kind}"
        found.append(Change(kind, file, other, (rng.random(), rng.random(), rng.random())))
    return found


def listing(found: Sequence[Change]) -> str:
    """Return the list of changes as text, a line each."""
    return "".join(f"{change}\n" for change in found)


def made(files: Files, foreign: Files, change: Change, kind: str = "") -> Made:
    """Return what a change puts in place; where it would change nothing, a byte is appended."""
    kind = kind or change.kind
    if kind in ONE:
        put: Made = {change.file: ONE[kind](files[change.file], change)}
    else:
        put = WHOLE[kind](files, foreign, change)
    if all(files.get(path) == data for path, data in put.items()):
        put = {change.file: files[change.file] + b"."}
    return put


# --- verifying ------------------------------------------------------------------------------------


def contents(folder: Path) -> dict[str, bytes]:
    """Return a folder's files by path."""
    files = (f for f in sorted(folder.rglob("*")) if f.is_file())
    return {str(f.relative_to(folder)): f.read_bytes() for f in files}


def passes(run: Path) -> bool:
    """Tell whether `audit verify` passes a folder; what it refuses to read it does not pass.

    The report, which takes longest, is rendered only where no other step failed.
    """
    try:
        case = Case(Run(run).view())
    except SecureFglError:
        return False
    if run_checks(case, [check for check in CHECKS if check is not REPORT]).failed:
        return False
    return run_checks(case, CHECKS).ok


@dataclass(frozen=True)
class Passed:
    """A change that verification passed, and the files that it touched."""

    change: Change
    paths: tuple[str, ...]


def of_folder(run: Path, foreign: Files, found: Sequence[Change]) -> Iterator[Passed]:
    """Make each change in a run folder, verify it, take it back, and yield those that passed."""
    files = contents(run)
    for change in found:
        put = made(files, foreign, change)
        try:
            for path, data in put.items():
                _put(run / path, data)
            if passes(run):
                yield Passed(change, tuple(put))
        finally:
            for path in put:
                _put(run / path, files.get(path))


def _put(path: Path, data: bytes | None) -> None:
    if data is not None:
        path.write_bytes(data)
    elif path.exists():
        path.unlink()


def of_bundle(data: bytes, foreign: bytes, found: Sequence[Change]) -> Iterator[Passed]:
    """Make each change of a bundle, verify it, and yield those that passed."""
    files, others = unpack(data), unpack(foreign)
    for change in found:
        where, _, kind = change.kind.partition(":")
        if where == RAW:
            changed, paths = ONE[kind](data, change), ("bundle.zip",)
            changed = changed if changed != data else data + b"."
        else:
            put = made(files, others, change, kind)
            left = {path: content for path, content in {**files, **put}.items() if content}
            paths = tuple(put)
            changed = _packed(left, anew=where == RELISTED)
        if changed != data and verify_bundle(changed).ok:
            yield Passed(change, paths)


def _packed(files: Mapping[str, bytes | None], *, anew: bool) -> bytes:
    there = {path: data for path, data in files.items() if data is not None}
    try:
        return pack({**there, MANIFEST: manifest(there)} if anew else there)
    except SecureFglError:  # a name that no bundle holds: no verifier would see it
        return b""


def rule(path: str, names: Sequence[str]) -> str:
    """Return under which name the page lists a path; empty where it lists none."""
    known = [pattern for pattern in UNBOUND if fnmatchcase(path, pattern)]
    if known:
        return known[0]
    folders = ("captured", "checkpoints", "heads", "ledger", "report")
    inside = path.split("/", maxsplit=1)[0] in folders and "/" in path
    return "" if inside or path in names else OTHERS


def named(one: Passed, names: Sequence[str]) -> bool:
    """Tell whether the page says of every file that a change touched that this may happen."""
    kind = REMOVED if one.change.kind == delete.__name__ else CHANGED
    return all(UNBOUND.get(rule(path, names)) in (kind, CHANGED) for path in one.paths)


# --- the runs that are changed --------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """A finished run with captures, attacks, waivers and a baseline; the same of another run."""

    run: Path
    foreign: dict[str, bytes]
    bundle: bytes
    other_bundle: bytes


def finished(folder: Path) -> Stage:
    """Play two runs of one plan, audit both, and bundle both under an auditor's signature."""
    signer, bundles = SigningKey.generate(), []
    for name in ("one", "two"):
        run = folder / name
        # Without clients' own models, which no audit reads.
        chosen = config("fed_avg", "masks").model_copy(update={"keep_models": False})
        Federation.from_config(chosen).run(run)
        for words in (
            ("audit", "attack", run, "--attacks", "A09,A10", "--fail-on", "never"),
            ("audit", "report", run, "--fail-on", "never", "--baseline", run / "report/report.json",
             "--waivers", waivers(folder, {"rule": "SIMULATION"})),
        ):  # fmt: skip
            shown = invoke(*words)
            assert shown.exit_code == 0, shown.output
        bundles.append(write_bundle(run, folder / f"{name}.zip", key=signer).read_bytes())
        (run / "bundle.zip").write_bytes(bundles[-1])
    assert passes(folder / "one") and verify_bundle(bundles[0]).ok
    return Stage(folder / "one", contents(folder / "two"), *bundles)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make all changes, and print how many passed, by file; return 1 if one should not have."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--folder", type=int, default=FOLDER, help="changes of a run folder")
    parser.add_argument("--bundle", type=int, default=BUNDLE, help="changes of a bundle")
    parser.add_argument("--list", action="store_true", help="print the list and make no change")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as place:
        for variable in ("SECURE_FGL_STATE", "SECURE_FGL_BUDGETS"):
            os.environ[variable] = str(Path(place, variable))
        stage = finished(Path(place))
        names = [*contents(stage.run)]
        folder = changes(names, asked.folder, asked.seed)
        bundle = changes([*unpack(stage.bundle)], asked.bundle, asked.seed, bundle=True)
        for name, found in (("folder", folder), ("bundle", bundle)):
            digest = hashlib.sha256(listing(found).encode()).hexdigest()
            print(f"{len(found)} changes of a {name}, seed {asked.seed}, list {digest}")
        if asked.list:
            print(listing(folder) + listing(bundle), end="")
            return 0
        passed = list(of_folder(stage.run, stage.foreign, folder))
        wrong = [one for one in passed if not named(one, names)]
        _tell(passed, names, len(folder))
        broken = list(of_bundle(stage.bundle, stage.other_bundle, bundle))
        print(f"{len(bundle) - len(broken)} of {len(bundle)} changes of the bundle do not pass")
    for one in (*wrong, *broken):
        print(f"PASSED AND SHOULD NOT: {one.change}")
    return int(bool(wrong or broken))


def _tell(passed: Sequence[Passed], names: Sequence[str], count: int) -> None:
    print(f"{count - len(passed)} of {count} changes of the folder do not pass; those that do:")
    seen = Counter(
        (path if path in names else f"{path} (new)", one.change.kind)
        for one in passed
        for path in one.paths
    )
    for (path, kind), number in sorted(seen.items()):
        print(f"  {number:4} {kind:20} {path}")


if __name__ == "__main__":
    sys.exit(main())
