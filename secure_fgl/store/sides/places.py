"""Where a party's runs lie: ``PARTY/runs/RUN/``, one folder for each run that it joined.

A run is reached by its name alone. The name is checked before it becomes part of a path, and no
link is followed: what is not a plain folder below ``PARTY/runs`` is no run of this party.
"""

from __future__ import annotations

from pathlib import Path

from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder, is_run_name

__all__ = ["RUNS", "party_of", "place_of", "places_of"]

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
