"""Sides of a run on disk: one party's side as a file, and such files put into one run folder."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from audits.bundle.archive import BUNDLE_LIMIT
from audits.bundle.hand_over import Gathered, gather, hand_over
from audits.evidence.steps import Verification
from audits.evidence.verify import verify
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder, content, create, held, open_plain
from secure_fgl.store.finished_run import Run
from secure_fgl.store.run_folder import RunFolder
from secure_fgl.store.sides.places import place_of

__all__ = ["at_rest", "gather_files", "write_hand_over"]


def write_hand_over(
    party: str | Path,
    out: str | Path,
    *,
    run: str | None = None,
    figures: bytes = b"",
) -> tuple[Path, Verification]:
    """Write a party's own side of a run as a file for the others.

    Args:
        party: the party's folder.
        out: the file; it must not exist.
        run: the run's name; None: the one run that the party joined.
        figures: of attacks on this side, signed; see `secure_fgl.store.sides.figures`.

    Returns:
        The file, and what this side's own steps say of it.

    Raises:
        UsageError: the party never joined that run, or did not begin it, a process of the party is
            at work on it, or the file cannot be written.
        EvidenceError: a document of the run is missing or cannot be read.
    """
    place = place_of(party, run)
    found = Run(place)
    with at_rest(place):
        view = found.view()
    path, packed = Path(out), hand_over(view, figures)
    _write(path, packed)
    return path, verify(view)


def gather_files(files: Sequence[str | Path], out: str | Path) -> Gathered:
    """Put the sides that parties handed over into one run folder.

    Args:
        files: of `write_hand_over`, one a party.
        out: the run folder; it must not exist, or be empty.

    Raises:
        EvidenceError: at step ``hand-over``: a file cannot be read, or two contradict each other.
            Nothing is written then.
        UsageError: a file or the folder cannot be read or written.
    """
    place = RunFolder(Path(out))  # refuses what is there
    found = gather([(str(path), _read(Path(path))) for path in files])
    place.make()
    folder = Folder(place.path)
    try:
        for name, data in found.files.items():
            folder.create(name, data)
    except OSError as error:
        raise UsageError(
            f"The run folder {out} cannot be written ({error.strerror}).",
            fix="choose another --out",
        ) from error
    return found


def _read(path: Path) -> bytes:
    try:
        data = content(path, BUNDLE_LIMIT)
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read ({error.strerror}).", fix="check the path"
        ) from error
    if data is None:
        raise UsageError(f"{path} is too large to be one party's side of a run.")
    return data


def _write(path: Path, data: bytes) -> None:
    try:
        create(path, data)
    except FileExistsError as error:
        raise UsageError(
            f"{path} exists already.",
            why="what was handed over is evidence; it is not overwritten",
            fix="choose another --out",
        ) from error
    except OSError as error:
        raise UsageError(
            f"{path} cannot be written ({error.strerror}).", fix="choose another --out"
        ) from error


@contextlib.contextmanager
def at_rest(
    place: Path,
    why: str = "its ledger still grows",
    fix: str = "try again when the run is over at this party, or after its process was ended",
) -> Iterator[None]:
    """Keep processes of a party away from a run.

    Args:
        place: the folder of the run at the party.
        why: none may be at work, as the error says.
        fix: what to do then.

    Raises:
        UsageError: one is at work on it, or nobody can tell.
    """
    try:
        file = open_plain(place / "lock", os.O_RDONLY)
    except FileNotFoundError:  # no session was ever opened here
        yield
        return
    except OSError as error:
        raise UsageError(
            f"Nobody can tell whether a process is at work on {place} ({error.strerror}).",
            why=why,
            fix=f"see why {place / 'lock'} is no file of ours",
        ) from error
    try:
        if not held(file, fcntl.LOCK_SH):
            what = f"A process of this party is at work on the run {place.name}."
            raise UsageError(what, why=why, fix=fix)
        yield
    finally:
        os.close(file)
