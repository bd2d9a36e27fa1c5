"""One party's side of a run between organisations, found in the party's folder.

The folder of a party (`secure_fgl.charters.party`) holds a folder for each run that it
joined, ``runs/RUN/``: what all parties agreed on, ``charter.json``, beside ``run/``, this party's
side of the run folder. A run folder into which all sides were gathered holds the charter itself. No
secret of the party's is read here.
"""

from __future__ import annotations

import json
from pathlib import Path

from audits.bundle.reading import DIGESTS_LIMIT, digests_of
from audits.evidence.charter_file import CHARTER_LIMIT
from secure_fgl.errors import UsageError
from secure_fgl.run.model_digest import npz_digest
from secure_fgl.store.files import Folder, is_run_name, is_temporary, run_name
from secure_fgl.store.sides.places import RUNS, place_of

__all__ = [
    "charter_of",
    "check_name",
    "holds_runs",
    "locked_models",
    "run_of",
    "side_of",
    "weights_of",
]

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
