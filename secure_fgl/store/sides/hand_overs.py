"""Which figures of its own attacks a site hands on: what the policy lets it, or what it says."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from audits.bundle.archive import BUNDLE_LIMIT
from audits.bundle.hand_over import Gathered, gather, hand_over
from audits.elsewhere.sites import figures_of
from audits.evidence.steps import Case, Verification
from audits.evidence.verify import verify
from audits.report.attack_rows import read_attacks
from protocols.wire.roster import Identity
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder, content, create, held, open_plain
from secure_fgl.store.finished_run import Run
from secure_fgl.store.run_folder import RunFolder
from secure_fgl.store.sides.party_side import place_of


@dataclass(frozen=True)
class HandedOn:
    """What goes into a hand-over.

    Attributes:
        data: the signed figures; empty: none.
        ids: of the attacks whose figures they are.
        kept: of the attacks whose figures stay at the site.
    """

    data: bytes = b""
    ids: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def handed_on(
    party: str | Path, me: Callable[[], Identity], *, run: str | None = None, yes: bool = False
) -> HandedOn:
    """Return the figures of a site's own attacks that it hands on, signed by it.

    Args:
        party: the party's folder.
        me: returns its keys; asked for only if there is something to sign.
        run: the run's name; None: the one run that the party joined.
        yes: the figures of all attacks, whatever the policy lets it share.

    Raises:
        EvidenceError: ``attacks.json`` is not of this side as it is, or its verdicts are not what
            its figures give.
        UsageError: there is no such run, or the keys cannot be opened.
    """
    view = Run(place_of(party, run)).view()
    if not view.attacks_text:
        return HandedOn()
    case = Case(view)
    found = read_attacks(case)
    silent = ("NOT_TESTED", "NOT_APPLICABLE")
    ran = {row.id for row in found.rows if row.verdict not in silent}
    audit = case.policy.audit
    share = ran if yes else ran & set(audit.share if audit is not None else ())
    kept = tuple(sorted(ran - share))
    if not share:
        return HandedOn(kept=kept)
    signed = figures_of(found, view.side, share).signed_by(me().signing)
    return HandedOn(signed.text(), tuple(sorted(share)), kept)


# --- Sides of a run on disk: one party's side as a file, and such files put into one run folder
# ---


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
        figures: of attacks on this side, signed; see `secure_fgl.store.sides.hand_overs`.

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
