"""Where a party's runs lie: ``PARTY/runs/RUN/``, one folder for each run that it joined.

A run is reached by its name alone. The name is checked before it becomes part of a path, and no
link is followed: what is not a plain folder below ``PARTY/runs`` is no run of this party.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from audits.bundle.archive import DIGESTS_LIMIT, digests_of
from audits.evidence.charter_file import CHARTER_LIMIT
from secure_fgl.errors import UsageError
from secure_fgl.reasons import explain
from secure_fgl.run.clock import clock
from secure_fgl.run.model_digest import npz_digest
from secure_fgl.store.files import Folder, is_run_name, is_temporary, open_plain, run_name

RUNS = "runs"
"""Folder of a party in which the folders of its runs lie."""


def places_of(party: str | Path) -> dict[str, Path]:
    """Return the folder of each run that a party joined, by the run's name.

    Raises:
        EvidenceError: at step ``files``: the folder of all runs is a link.
        UsageError: it cannot be listed.
    """
    place = Path(party)
    try:
        names = Folder(place).folders(RUNS)  # links are none of them
    except OSError as error:
        raise UsageError(f"{place / RUNS} cannot be listed ({error.strerror}).") from error
    return {name: place / RUNS / name for name in names if is_run_name(name)}


def place_of(party: str | Path, run: str | None = None) -> Path:
    """Return the folder of a run at a party: ``PARTY/runs/RUN``.

    Args:
        party: the party's folder.
        run: the run's name, 32 hexadecimal digits; None: the one run that the party joined.

    Raises:
        UsageError: that is no run's name, the party never joined that run, or it joined several
            and none is named.
        EvidenceError: at step ``files``: the folder of all runs is a link.
    """
    if run is not None and not is_run_name(run):
        raise UsageError(
            "--run takes the name of a run: 32 hexadecimal digits.",
            fix="secure-fgl charter show charter.json prints it",
        )
    found = places_of(party)
    if run in found:
        return found[run]
    if run is None and len(found) == 1:
        (place,) = found.values()
        return place
    if run is None and found:
        raise UsageError(
            f"{party} holds {len(found)} runs, and none is named.",
            why=f"this party joined {', '.join(found)}",
            fix="name one of them: --run RUN",
        )
    raise UsageError(
        f"{party} holds {'no run' if run is None else 'no such run'}.",
        why="this party joined no charter of it, or this is not a party's folder",
        fix="secure-fgl site join PARTY charter.json, with a charter that all signed",
    )


def party_of(place: Path) -> Path:
    """Return the party's folder, of the folder of a run in it."""
    return place.resolve().parents[1]


# --- ``PARTY/site.log`` (0600): why something went wrong at a site, for the site's own people ---
#
# The others hear one of two codes, and the engine's logs, which an administrator may see, hold the
# error's class. Here stands what a command would print: our own sentences, which hold no value of a
# record and no key (`protocols.errors`), and of any other error its class and place alone.

NAME = "site.log"
_MOST = 1 << 20  # bytes; then it is put aside as site.log.1, so that no peer fills the disk
_LONGEST = 500  # characters of a line


def note(
    party: str | Path,
    what: str,
    error: BaseException | None = None,
    *,
    now: Callable[[], str] = clock,
) -> None:
    """Append why something went wrong; a log that cannot be written stops nothing.

    Args:
        party: the party's folder.
        what: happened, in a sentence of ours without a full stop.
        error: the reason, if one is known.
        now: tells the time.
    """
    told, head = ([] if error is None else explain(error, again="")), f"{now()} {what}"
    lines = [_plain(line) for text in told for line in text.splitlines()]
    kind = "" if error is None else f" ({type(error).__name__})"
    text = "\n  ".join([f"{head}{kind}", *lines]) + "\n"
    with contextlib.suppress(OSError):
        _append(Path(party) / NAME, text.encode("utf-8", "replace"))


def _append(path: Path, data: bytes) -> None:
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_size > _MOST:
            path.replace(path.with_name(f"{NAME}.1"))
    file = open_plain(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.fchmod(file, 0o600)
        os.write(file, data)
    finally:
        os.close(file)


def _plain(line: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in line)[:_LONGEST]


# --- One party's side of a run between organisations, found in the party's folder ---
#
# The folder of a party (`secure_fgl.charters.party`) holds a folder for each run that it joined,
# ``runs/RUN/``: what all parties agreed on, ``charter.json``, beside ``run/``, this party's side of
# the run folder. A run folder into which all sides were gathered holds the charter itself. No
# secret of the party's is read here.

_RUN, _CHARTER, _PLAN = "run", "charter.json", "plan.json"


def side_of(path: Path) -> tuple[Path, Path | None]:
    """Return the run folder that is meant, and the party's folder if it is one party's side.

    Args:
        path: a run folder, a party's folder, the folder of a run in it, or a party's side in that.

    Raises:
        UsageError: it is a party's folder with several runs, or with none.
        EvidenceError: at step ``files``: the party's folder of all runs is a link.
    """
    if (path / _PLAN).is_file():
        place = path.resolve()
        of_a_party = place.name == _RUN and is_run_name(place.parent.name)
        if of_a_party and (place.parent / _CHARTER).is_file() and not (path / _CHARTER).is_file():
            return path, place.parent
        return path, None
    if (path / _CHARTER).is_file():
        return path / _RUN, path
    if holds_runs(path):
        found = place_of(path)
        return found / _RUN, found
    return path, None


def holds_runs(path: Path) -> bool:
    """Tell whether a folder is a party's, with the folders of its runs, and no run's itself."""
    return (path / RUNS).is_dir() and not any((path / n).is_file() for n in (_PLAN, _CHARTER))


def check_name(found: str, wanted: str | None) -> None:
    """Raise UsageError unless a run has the name that it must have; None: any."""
    if wanted not in (None, found):
        raise UsageError(
            "The run in this folder is another one than --run names.",
            why=f"its name is {run_name(found)}",
            fix="give the folder of that run, or leave --run out",
        )


def charter_of(run: Folder, party: Path | None) -> bytes:
    """Return what the parties agreed on: it lies beside one party's side, and in a whole run.

    Raises:
        EvidenceError: at step ``files``: it is a link, or no file.
    """
    place = run if party is None else Folder(party)
    return place.read(_CHARTER, CHARTER_LIMIT)


def run_of(roster: bytes) -> str:
    """Return the run's name that a roster states; raises UsageError if it cannot be read."""
    try:
        return str(json.loads(roster)["run"])
    except (KeyError, RecursionError, TypeError, ValueError):
        raise UsageError(
            "The run's roster cannot be read.",
            why="roster.json is missing, or was cut or changed",
            fix="take the run folder as the run left it",
        ) from None


def locked_models(run: Folder) -> dict[str, dict[str, str]]:
    """Return by client the SHA-256 (hex) of each locked piece in ``models/``; nothing is opened.

    Raises:
        EvidenceError: at step ``files``: a piece is a link.
    """
    return {
        client: {
            name: run.summed(f"models/{client}/{name}", 1)[0]
            for name in run.names(f"models/{client}")
            if not is_temporary(name)
        }
        for client in run.folders("models")
    }


def weights_of(run: Folder, *, gathered: bool) -> dict[str, str]:
    """Return the digests of a run's models; of gathered sides, models stay at their parties.

    Of an aggregator that destroyed its models their digests are left.

    Raises:
        EvidenceError: at step ``files``: a model is a link, or the list of digests is none.
    """
    files = run.names("checkpoints", ".npz")
    if not files and (gathered or run.holds("forgotten/aggregator.jsonl")):
        return digests_of(run.read("checkpoints.json", DIGESTS_LIMIT))
    found = {name: run.read(f"checkpoints/{name}") for name in files}
    return {name.removesuffix(".npz"): npz_digest(data) for name, data in found.items()}
