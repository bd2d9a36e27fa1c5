"""What a party destroys of its own side: keys first, then what they open, then a signed note.

`forget` leaves ledger, head, charter, plan and report: they are evidence, and hold nothing of
anybody's data. Only a policy whose days are over (`sweeping`) takes the ledger, too.
A piece that was copied elsewhere, into a backup, is locked for good once its key is gone, unless
the key was copied, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path

from audits.bundle.archive import digests_text
from audits.checks.parties import KINDS, Forgotten, note_of, read_notes
from audits.evidence.roster_file import read_roster
from protocols.errors import EvidenceError, SecureFglError
from protocols.evidence.ledger import read_lines
from protocols.wire.roster import Identity, Party
from secure_fgl.errors import UsageError
from secure_fgl.run.clock import clock
from secure_fgl.store.captures import Captures, today
from secure_fgl.store.files import Folder
from secure_fgl.store.finished_run import Run
from secure_fgl.store.sides.hand_overs import at_rest
from secure_fgl.store.sides.party_side import RUNS, place_of, places_of, weights_of
from secure_fgl.store.sides.release import own_policy


@dataclass(frozen=True)
class Destroyed:
    """What was destroyed, and where the note of it lies.

    Attributes:
        note: what, and when.
        pieces: how many files.
        file: the party's notes.
        before: whether all of it had been destroyed earlier; then no note was added.
    """

    note: Forgotten
    pieces: int
    file: Path
    before: bool = False


def forget(
    party: str | Path, me: Identity, *, run: str | None = None, everything: bool = False
) -> Destroyed:
    """Destroy a party's captured rounds, or with `everything` its models and kept state, too.

    Done again after it was interrupted, it goes on where it was.

    Args:
        party: the party's folder.
        me: its keys; the note is signed with them.
        run: the run's name; None: the one run that the party joined.
        everything: also models, and the state of a run that then goes on no more at this party.

    Raises:
        UsageError: the party never joined that run, or it is not of these keys; a process of the
            party is at work on it; the run is not over and only captures are meant; or something is
            still there afterwards.
        EvidenceError: an earlier note is not the party's, the roster cannot be read, or the folder
            is of another run.
    """
    place = place_of(party, run)
    found, home = Run(place), Path(party)
    check_own(found)
    name = me.party.name
    if not found.folder.holds(f"ledger/{name}.jsonl"):
        raise UsageError(f"{party} holds no ledger of {name}.", fix="give that party's own folder")
    if read_roster(found.folder.read("roster.json")).roster.party(name) != me.party:
        raise UsageError(
            f"The keys in {party} are not those that {name} had in this run; nothing was removed.",
            why="they were renewed or made anew since, and a note under them is none of the run's",
            fix="forget before keys are renewed; now only its keys and its folder can be taken "
            "away by hand, and the evidence of this run ends with them",
        )
    with at_rest(place):
        if not everything and not found.folder.holds(f"heads/{name}.checkpoint"):
            raise UsageError(
                "The run is not over at this party, and goes on with what it captured.",
                why="its ledger has no signed end",
                fix="wait for the end, or give the run up at this party with --all",
            )
        return _forgotten(found, home, me, KINDS[:3] if everything else KINDS[:1])


def check_own(run: Run) -> None:
    """See that a side lies in the folder of its own run: keys and locks go by the run's name.

    A copy below another name, or behind a link, would let its ledger say when those are over.

    Raises:
        EvidenceError: at step ``roster``: it does not.
    """
    here = run.party is not None and run.party.name == run.name
    if not here or run.path.is_symlink():
        raise EvidenceError("roster", f"{run.path} is not the folder of the run that it holds")


def destroy(run: Run, party: Path, me: Identity, what: tuple[str, ...]) -> Destroyed:
    """Destroy these kinds of what a party kept of a run, and sign it.

    Args:
        run: the party's side.
        party: the party's folder.
        me: its keys.
        what: of `KINDS`, in their order.

    Raises:
        UsageError: a process of the party is at work on the run, or something is still there
            afterwards.
        EvidenceError: an earlier note is not the party's.
    """
    with at_rest(party / RUNS / run.name):
        return _forgotten(run, party, me, what)


def _forgotten(run: Run, party: Path, me: Identity, what: tuple[str, ...]) -> Destroyed:
    name, file = me.party.name, f"forgotten/{me.party.name}.jsonl"
    earlier = run.folder.read(file)
    notes = read_notes(earlier, me.party.verify, run=run.name, party=name)
    places = [place for kind in what for place in _PLACES[kind]]
    pieces = sum(_count(run.path / place) for place in places)
    if "ledger" in what:  # all but the notes, and what says of which run they are
        pieces = _count(run.path) - sum(run.folder.holds(n) for n in (*_STAY, file))
    keys = Folder(party / "keys")
    keyed = any(keys.there(place) for kind in what for place in _keys(kind, run.name))
    keyed |= "state" in what and Folder(party / RUNS / run.name).there(_TAGS)
    same = [note for note in notes if set(what) <= set(note.what)]
    if same and not pieces and not keyed:
        return Destroyed(same[-1], 0, run.path / file, before=True)
    try:
        _destroy(run, party, me, what)
        # Of what is gone by now, and of nothing else.
        note, signed = _signed(run, me, tuple(kind for kind in what if kind != "ledger"))
        run.folder.write(file, earlier + signed)
        if "ledger" in what:
            note = _ended(run, party, me, what, earlier + signed)
    except OSError as error:
        raise UsageError(
            f"Not all of it could be destroyed, or noted ({error.strerror}).",
            why="a folder is not writable, or the disk is full",
            fix="make room, and run the same command again: it goes on where it was",
        ) from error
    return Destroyed(note, pieces, run.path / file)


def _signed(run: Run, me: Identity, what: tuple[str, ...]) -> tuple[Forgotten, bytes]:
    note = Forgotten(what, clock())
    return note, note_of(me.signing, note, run=run.name, party=me.party.name)


def _ended(run: Run, party: Path, me: Identity, what: tuple[str, ...], earlier: bytes) -> Forgotten:
    """Take the evidence away and sign that; until it is signed, a word for ourselves stays."""
    place = Folder(party / RUNS / run.name)
    place.write(_ENDING, _signed(run, me, what)[1])
    _end_evidence(run)
    note, signed = _signed(run, me, what)
    run.folder.write(f"forgotten/{me.party.name}.jsonl", earlier + signed)
    place.remove(_ENDING)
    return note


_PLACES = {
    "captures": ("captured",), "models": ("models", "checkpoints"), "state": ("private",),
    "ledger": (),
}  # fmt: skip
"""Folders of a run in which pieces lie, by kind; all of the run's for the ledger."""
_ENDING = "destroying"
"""In the folder of a run: the party's signed word, for itself alone, that it is taking the ledger
away. Whoever is interrupted between that and the note goes on by it, and nobody else can."""
_TAGS = "tags.key"
"""In the folder of a run whose item tags go by one key of all clients; it opens every tag."""
_STAY = ("config.yaml", "plan.json", "policy.json", "roster.json")


def is_ending(run: Run, party: Path, me: Party) -> bool:
    """Tell whether the party was interrupted as it took the ledger away, by its own signed word.

    Raises:
        EvidenceError: the word is not this party's, of this run.
    """
    said = Folder(party / RUNS / run.name).read(_ENDING)
    notes = read_notes(said, me.verify, run=run.name, party=me.name)
    return any("ledger" in note.what for note in notes)


def _end_evidence(run: Run) -> None:
    """Remove all but the notes, and what says of which run they are; the ledger goes last."""
    for name in run.folder.names():
        if name not in _STAY:
            run.folder.remove(name)
    for folder in sorted(run.folder.folders(), key="ledger".__eq__):
        if folder != "forgotten":
            run.folder.remove_tree(folder)
    if run.folder.there("ledger"):
        raise UsageError(f"{run.path / 'ledger'} could not be removed.", fix="look at its folder")


def _keys(kind: str, run: str) -> tuple[str, ...]:
    """Return where a kind's keys lie below ``keys/``."""
    return {"state": (run,), "ledger": ()}.get(kind, (f"{kind}/{run}",))


def _destroy(run: Run, party: Path, me: Identity, what: tuple[str, ...]) -> None:
    """Destroy keys, then pieces; raises UsageError if something is still there."""
    name, keys = run.name, Folder(party / "keys")
    if "captures" in what:
        Captures(name, run.path).forget(me.party.name)  # of a folder that an older program kept
    for kind in what:
        for place in _keys(kind, name):
            folder, _, leaf = place.rpartition("/")
            Folder(keys.path / folder).remove_tree(leaf)
    left = [place for kind in what for place in _keys(kind, name) if keys.there(place)]
    if "state" in what:  # without it the run goes on no more here, and needs no tags
        Folder(party / RUNS / name).remove(_TAGS)
    if not left:
        weights = weights_of(run.folder, gathered=False) if "models" in what else {}
        if weights and not run.folder.holds("checkpoints.json"):  # whole: nothing is removed yet
            run.folder.write("checkpoints.json", digests_text(weights))
        for kind in what:
            for place in _PLACES[kind]:
                run.folder.remove_tree(place)
                left += [place] if run.folder.there(place) else []
    if left:
        raise UsageError(
            f"Something could not be removed: {', '.join(left)}.",
            why="a folder is a link, or is not writable",
            fix=f"look at {party / 'keys'} and {run.path}, then run the same command again",
        )


def _count(place: Path) -> int:
    return sum(path.is_file() for path in place.rglob("*")) if place.is_dir() else 0


# --- What a party is to have destroyed by now: captures whose days are over, the rest by its
# policy ---
#
# The policy is part of what all signed, and the days count from the last entry of the party's own
# ledger. The keys of captured rounds are gone whenever somebody looks at a run after their day;
# this takes the pieces, too, and signs it.


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
