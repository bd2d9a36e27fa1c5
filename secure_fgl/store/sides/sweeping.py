"""What a party is to have destroyed by now: captures whose days are over, the rest by its policy.

The policy is part of what all signed, and the days count from the last entry of the party's own
ledger. The keys of captured rounds are gone whenever somebody looks at a run after their day; this
takes the pieces, too, and signs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import date
from functools import cache
from pathlib import Path

from audits.checks.parties.forgotten import KINDS, Forgotten, read_notes
from audits.evidence.roster_file import read_roster
from protocols.errors import EvidenceError, SecureFglError
from protocols.evidence.ledger import read_lines
from protocols.wire.roster import Identity, Party
from secure_fgl.errors import UsageError
from secure_fgl.store.captures import today
from secure_fgl.store.files import Folder
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.forgetting import Destroyed, check_own, destroy, is_ending
from secure_fgl.store.sides.places import place_of, places_of
from secure_fgl.store.sides.release import own_policy

__all__ = ["sweep_runs"]


def sweep_runs(
    party: str | Path,
    identity: Callable[[], Identity],
    *,
    name: str,
    run: str | None = None,
    day: Callable[[], date] = today,
) -> Iterator[tuple[str, Destroyed | SecureFglError]]:
    """Destroy what is over of a party's runs: keys first, then pieces; each time a note is signed.

    Done again after it was interrupted, it goes on where it was. One run that cannot be swept
    keeps no other one from it.

    Args:
        party: the party's folder.
        identity: opens its keys; asked only where something is to be destroyed.
        name: the party's.
        run: the run's name; None: all runs of this party.
        day: tells the day (UTC).

    Yields:
        The name of a run, and what was destroyed of it, or why that failed.

    Raises:
        UsageError: the party never joined that run.
    """
    home, opened = Path(party), cache(identity)
    places = places_of(home) if run is None else {run: place_of(home, run)}
    for joined, place in places.items():
        if not Folder(place).there("run"):
            continue  # it has not begun
        try:
            found = Run(place)
            if what := _over(found, home, name, day()):
                yield joined, destroy(found, home, opened(), what)
        except SecureFglError as error:
            yield joined, error
        except OSError as error:
            yield joined, UsageError(f"{place} cannot be read ({error.strerror}).")


def _over(run: Run, home: Path, name: str, now: date) -> tuple[str, ...]:
    """Return the kinds (see `KINDS`) that are over and still there.

    Raises:
        EvidenceError: folder, policy or ledger is not the run's, or the ledger is gone and nobody
            signed that it was, or is being, destroyed.
    """
    check_own(run)
    party = read_roster(run.folder.read("roster.json")).roster.party(name)
    gone = {kind for note in _notes(run, party) for kind in note.what}
    data = run.folder.read(f"ledger/{name}.jsonl")
    if not data and "ledger" in gone:
        return ()
    if is_ending(run, home, party):
        return KINDS  # it goes on where it was interrupted
    last, kept = _last_day(data), own_policy(run).retention.get(party.role)

    def over(days: int | None) -> bool:
        return days is not None and (now - last).days > days

    if kept is not None and over(kept.ledgers):
        return KINDS
    captured = run.folder.there("captured") and not Folder(home / "keys").there(
        f"captures/{run.name}"
    )
    models = any(run.folder.there(place) for place in ("models", "checkpoints"))
    found = {"captures": captured, "models": kept is not None and over(kept.models) and models}
    return tuple(kind for kind in KINDS if found.get(kind))


def _notes(run: Run, party: Party) -> tuple[Forgotten, ...]:
    data = run.folder.read(f"forgotten/{party.name}.jsonl")
    return read_notes(data, party.verify, run=run.name, party=party.name)


def _last_day(ledger: bytes) -> date:
    try:
        *_, (entry, _) = read_lines(ledger)
        return date.fromisoformat(str(entry["time"])[:10])
    except (KeyError, TypeError, ValueError):
        raise EvidenceError("chain", "the ledger has no last entry that tells its day") from None
