"""The budget store: what all runs together have spent of one site's data set (O20).

::

    BUDGETS/  <name>.jsonl  <name>.floor  <name>.lock     name = SHA-256 of (site, data set)

It lies outside every run folder and only grows. A chain that its owner rewrote as a whole holds
again, so what forbids a step back are floors: sizes and roots at which the store was seen, by
itself and, above all, in notes that other parties signed. Deleting the whole folder shows only in
such notes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import get_args

from crypto.errors import CryptoError
from crypto.signing.canonical import canonical, parse
from crypto.signing.checkpoint import Checkpoint
from crypto.signing.signatures import VerifyKey
from protocols.errors import BudgetExceeded, EvidenceError, LedgerError, NotInPlan
from protocols.policy.budget import Unit, budget_key, budget_origin
from protocols.policy.policy import Budget
from protocols.privacy.noising import TAIL_BITS
from protocols.wire.roster import Identity
from secure_fgl.errors import UsageError
from secure_fgl.store.anchors import Anchor, Reservation
from secure_fgl.store.append_only import append, content, sync_folder
from secure_fgl.store.budget_lines import (
    LINE_LIMIT,
    STEP,
    Entry,
    Floor,
    Log,
    check_reservation,
    compose,
    header,
    read_log,
    rounded_up,
)
from secure_fgl.store.files import Folder, open_plain

VARIABLE = "SECURE_FGL_BUDGETS"
_TAILS = 2.0 ** (48 - TAIL_BITS)  # of the 2^48 draws that no run makes
_LONGEST_ORIGIN = 256  # characters, as in any checkpoint


def default_folder() -> Path:
    """Return the folder of the stores.

    ``$SECURE_FGL_BUDGETS``, else ``secure-fgl/budgets`` in the state folder (XDG base directories).
    """
    if named := os.environ.get(VARIABLE):
        return Path(named)
    base = Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state")
    return base / "secure-fgl" / "budgets"


class BudgetStore:
    """Reservations per (site, data set), each in a file of its own.

    Args:
        path: the folder, :func:`default_folder` if None. It is made when first needed.
    """

    def __init__(self, path: str | Path | None = None) -> None:
        self.path = Path(path) if path is not None else default_folder()
        self._anchors: dict[str, list[Floor]] = {}

    @classmethod
    def open(
        cls, path: str | Path | None, site: str, dataset: str, anchors: Sequence[Anchor]
    ) -> BudgetStore:
        """Return the store after holding one of its files to the notes that others kept.

        Args:
            path: the folder, :func:`default_folder` if None.
            site: whose budget the notes are of.
            dataset: of which data set.
            anchors: they bind this object for as long as it lives.

        Raises:
            EvidenceError: at step ``budget``: a note is not validly signed or of another store, or
                the file is older than a note, or was edited.
            LedgerError: the store cannot be read.
        """
        made = cls(path)
        floors = [Floor(n.size, n.root) for n in (_note(a, site, dataset) for a in anchors)]
        made._anchors[budget_origin(site, dataset)] = floors
        made.checkpoint(site, dataset)
        return made

    def reserve(
        self, site: str, dataset: str, run: str, rdp: Sequence[str], tails: str, cap: Budget
    ) -> Reservation:
        """Reserve what a run may spend, durably, before any noise is drawn. Nothing is refunded.

        Args:
            site: whose data it is.
            dataset: which of its data sets.
            run: the run's name.
            rdp: the run's Rényi curve at `protocols.privacy.accounting.ORDERS`, decimal texts.
            tails: statistical distance of all draws of the run from exact noise, decimal text.
            cap: (epsilon, delta) for all runs together.

        Raises:
            BudgetExceeded: everything reserved so far and this exceed the cap. Nothing was written.
            EvidenceError: at step ``budget``: the store was cut, edited or put back.
            LedgerError: it cannot be written; the run must not start.
            UsageError: a name or number that cannot be used.
        """
        entry = {"rdp": list(rdp), "run": run, "tails": tails}
        check_reservation(entry)
        with self._locked(site, dataset, "reserved") as base:
            log = self._read(base, site, dataset)
            after = _covered(log, entry, dataset, cap)
            new = log.plus(header(site, dataset), entry)
            append(f"{base}.jsonl", b"".join(new.lines[len(log.lines) :]))
            _remember(base, new.floor(), _floor(base))
        return Reservation(len(new.reservations), new.head, rounded_up(after), repr(cap.delta))

    def door(self, site: str, own: str | None = None, notes: Path | None = None) -> Door:
        """Return what a client's session is given: its own site's budgets, and no more.

        Args:
            site: whose budget it is.
            own: the data set that this site knows it brings; a plan that names another is refused.
            notes: the run folder that keeps what the aggregator cosigned.
        """
        return Door(self, site, own, notes)

    def spent(self, site: str, dataset: str, delta: float) -> Reservation:
        """Return the store as it stands, unchanged; raises as :meth:`reserve` does."""
        with self._locked(site, dataset, "read") as base:
            log = self._read(base, site, dataset)
        total = rounded_up(compose(log.reservations, delta))
        return Reservation(len(log.reservations), log.head, total, repr(delta))

    def taken(self, site: str, dataset: str, run: str) -> int:
        """Return a budget's size once a run had taken from it, 0 if it did not; see `reserve`."""
        with self._locked(site, dataset, "read") as base:
            found = self._read(base, site, dataset).reservations
        return max((n for n, entry in enumerate(found, 2) if entry["run"] == run), default=0)

    def foresee(
        self, site: str, dataset: str, rdp: Sequence[float], cap: Budget
    ) -> tuple[Reservation, str]:
        """Return the store as it stands, and epsilon after one run more; nothing is written.

        Raises:
            BudgetExceeded: it would exceed the cap, as :meth:`reserve` says it.
            EvidenceError, LedgerError, UsageError: as :meth:`reserve`.
        """
        entry = {"rdp": [repr(float(v)) for v in rdp], "run": "0" * 32, "tails": repr(_TAILS)}
        with self._locked(site, dataset, "read") as base:
            log = self._read(base, site, dataset)
        after = _covered(log, entry, dataset, cap)
        total = rounded_up(compose(log.reservations, cap.delta))
        now = Reservation(len(log.reservations), log.head, total, repr(cap.delta))
        return now, rounded_up(after)

    def file(self, site: str, dataset: str) -> Path:
        """Return where the lines of a budget lie; raises UsageError for names that cannot be."""
        return self.path / f"{_file_name(site, dataset)}.jsonl"

    def checkpoint(self, site: str, dataset: str) -> Checkpoint:
        """Return the head that this site signs, and others cosign, after a run."""
        with self._locked(site, dataset, "read") as base:
            floor = self._read(base, site, dataset).floor()
        return Checkpoint(budget_origin(site, dataset), floor.size, floor.root)

    def witness(self, site: str, dataset: str, by: Identity) -> str:
        """Let another party sign how far a store has come; keep the note, and return it."""
        note = self.checkpoint(site, dataset).sign(by.signing, by.party.name)
        self.anchor(Anchor(note, by.party.name, by.party.verify), site, dataset)
        return note

    def anchor(self, anchor: Anchor, site: str, dataset: str) -> None:
        """Remember a cosigned note if it is the highest so far.

        Raises:
            EvidenceError: at step ``budget``: it is not validly signed, of another store, or this
                store does not extend it.
            LedgerError: it cannot be written.
        """
        note = _note(anchor, site, dataset)
        new = Floor(note.size, note.root, anchor.note)
        with self._locked(site, dataset, "anchored") as base:
            log, old = self._read(base, site, dataset), _floor(base)
            new.check(log.lines)
            if old is None or not old.note or _size_of(old.note) <= new.size:
                _remember(base, log.floor(), new)

    @contextmanager
    def _locked(self, site: str, dataset: str, what: str) -> Iterator[Path]:
        """Yield the path of a store without its ending, while nobody else may touch it."""
        base = self.path / _file_name(site, dataset)
        try:
            self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
            lock = open_plain(f"{base}.lock", os.O_CREAT | os.O_RDWR)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
                yield base
            finally:
                os.close(lock)
        except OSError as error:
            raise LedgerError(
                f"The privacy budget cannot be {what} ({error.strerror or 'unknown reason'}).",
                why="the disk is full, or the folder is not writable",
                fix=f"free some space, or name another folder in {VARIABLE}; nothing was sent",
            ) from error

    def _read(self, base: Path, site: str, dataset: str) -> Log:
        """Read and check a store: its chain, and every floor that it must extend."""
        log = read_log(content(f"{base}.jsonl", step=STEP), header(site, dataset))
        held = self._anchors.get(budget_origin(site, dataset), ())
        for floor in filter(None, (*held, _floor(base))):
            floor.check(log.lines)
        return log


def _file_name(site: str, dataset: str) -> str:
    """Return a name that holds nothing of what it stands for: no path, no data set's name."""
    plain = all(name and name.isprintable() for name in (site, dataset))
    if not plain or len(budget_origin(site, dataset)) > _LONGEST_ORIGIN:
        raise UsageError(
            "A site's or data set's name is empty, too long or not printable.",
            fix="give it another name; a budget is found again under the same name only",
        )
    return hashlib.sha256(b"secure-fgl/budget-of\0" + canonical([site, dataset])).hexdigest()


class Door:
    """A client's way to the budgets of its own site; see `BudgetStore.door`."""

    def __init__(self, store: BudgetStore, site: str, own: str | None, notes: Path | None) -> None:
        self._store, self._site, self._own, self._notes = store, site, own, notes

    def __call__(
        self, *, dataset: str, run: str, rdp: Sequence[float], cap: Budget
    ) -> dict[str, str | int]:
        """Reserve what a whole run spends; see `protocols.policy.budget.Reserve`."""
        curve = [repr(float(value)) for value in rdp]
        site, tails = self._site, repr(_TAILS)
        made = self._store.reserve(site, self._of_this_site(dataset), run, curve, tails, cap)
        return {"dataset": dataset, **asdict(made)}

    def head(self, dataset: str) -> Checkpoint:
        """Return how far a budget has come; see `protocols.policy.budget.Headed`."""
        return self._store.checkpoint(self._site, self._of_this_site(dataset))

    def keep(
        self, unit: str, dataset: str, run: str, note: str, signer: str, key: VerifyKey
    ) -> None:
        """Keep a note in the store, and in ``budgets/`` of the run if the run took any.

        A note that is older than what this run took is none of this run's: whoever carries
        envelopes could bring one of an earlier run, and a budget without what this run took would
        extend it. Of a budget that the run left alone the run folder keeps none.
        """
        anchor, site = Anchor(note, signer, key), self._site
        taken = self._store.taken(site, self._of_this_site(dataset), run)
        if anchor.checkpoint().size < taken:
            raise EvidenceError(STEP, "a note on a budget is older than what this run took")
        self._store.anchor(anchor, site, dataset)
        if taken and self._notes is not None:
            name = site if unit == "client" else f"{site}.{unit}"
            Folder(self._notes).write(f"budgets/{name}.checkpoint", note.encode())

    def _of_this_site(self, dataset: str) -> str:
        if self._own is not None and dataset not in {
            budget_key(self._own, unit) for unit in get_args(Unit)
        }:
            raise NotInPlan("The plan names another data set than this site brings (O20).")
        return dataset


def _covered(log: Log, entry: Entry, dataset: str, cap: Budget) -> float:
    """Return epsilon after one reservation more; raises BudgetExceeded beyond the cap."""
    after = compose([*log.reservations, entry], cap.delta)
    if not after <= cap.epsilon:
        raise _exceeded(dataset, len(log.reservations), after, cap)
    return after


def _exceeded(dataset: str, before: int, after: float, cap: Budget) -> BudgetExceeded:
    return BudgetExceeded(
        f"The privacy budget of data set {dataset!r} does not cover this run: all runs together "
        f"would reach epsilon {rounded_up(after)}; the cap is {cap.epsilon:g} at delta "
        f"{cap.delta:g}.",
        why=f"runs that reserved from it before: {before}; what was reserved is never given back",
        fix="in a simulation, take a store of its own, and a new run folder: --set "
        "budget.store=FOLDER --out RUN; with real data, plan fewer rounds or more noise, or agree "
        "on another budget with the data's owner",
    )


def _note(anchor: Anchor, site: str, dataset: str) -> Checkpoint:
    note = anchor.checkpoint()
    if note.origin != budget_origin(site, dataset):
        raise EvidenceError(STEP, "an anchor is of another budget than this one")
    return note


def _size_of(note: str) -> int:
    return int(note.split("\n")[1])


def _floor(base: Path) -> Floor | None:
    data = content(f"{base}.floor", step=STEP)
    if not data:
        return None
    try:
        found = parse(data, limit=LINE_LIMIT)
        note = str(found["note"])
        _size_of(note or "\n0")
        return Floor(int(found["size"]), bytes.fromhex(found["root"]), note)
    except (CryptoError, LookupError, TypeError, ValueError):
        raise EvidenceError(STEP, "the remembered head of a budget was edited") from None


def _remember(base: Path, floor: Floor, noted: Floor | None) -> None:
    """Remember where the store stands, and the highest note that others signed."""
    document = {"note": noted.note if noted else "", "root": floor.root.hex(), "size": floor.size}
    made = Path(f"{base}.floor.new")
    made.unlink(missing_ok=True)  # of a process that was killed
    append(str(made), canonical(document))
    made.replace(f"{base}.floor")
    sync_folder(base.parent)
