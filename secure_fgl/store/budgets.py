"""What a budget file holds: one reservation per line, its chain, and what all of them compose to.

Composition: Rényi curves add up order by order (Mironov, CSF 2017, proposition 1), and so do the
distances of the samplers from the exact noise; wrap is taken out of delta once per run (O19).
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from decimal import ROUND_CEILING, ROUND_UP, Context, Decimal, DecimalException
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np

from crypto.errors import CryptoError
from crypto.merkle import Checkpoint, Tree, read
from crypto.signing import VerifyKey, canonical, parse
from protocols.errors import BudgetExceeded, EvidenceError, LedgerError, NotInPlan, OtherEvidence
from protocols.policy.budget import Unit, budget_key, budget_origin
from protocols.policy.policy import Budget
from protocols.privacy.accounting import ORDERS, WRAP, net_epsilon
from protocols.privacy.noising import TAIL_BITS
from protocols.versions import BUDGET
from protocols.wire.envelope import NONE
from protocols.wire.roster import Identity
from secure_fgl.errors import UsageError
from secure_fgl.store.files import Folder, append, appended_content, open_plain, sync_folder

STEP = "budget"
LINE_LIMIT = 1 << 16  # bytes; one of ours is about 4 kB
_LONGEST_NUMBER = 64  # characters
_FACTS = ("rdp", "run", "tails")
_UP = Context(prec=6, rounding=ROUND_UP)
_SUM = Context(prec=60, rounding=ROUND_CEILING)

Entry = Mapping[str, Any]


@dataclass(frozen=True)
class Floor:
    """A size (lines) and root that a store must extend; `note`: what others signed, or empty."""

    size: int
    root: bytes
    note: str = ""

    def check(self, lines: Sequence[bytes]) -> None:
        """Raise EvidenceError unless these lines extend it."""
        if len(lines) < self.size:
            raise EvidenceError(
                STEP,
                f"a budget has {len(lines)} lines and was seen with {self.size}: it was put back",
            )
        if not hmac.compare_digest(_root(lines[: self.size]), self.root):
            raise EvidenceError(STEP, "a budget is not the one that was anchored: it was rewritten")


@dataclass(frozen=True)
class Log:
    """A budget file as read: its complete lines, and what they reserve."""

    lines: tuple[bytes, ...]
    reservations: tuple[Entry, ...]

    @property
    def head(self) -> str:
        """SHA-256 (hex) over the last line, which holds the head before."""
        return _head(self.lines)

    def floor(self) -> Floor:
        """Return where the file stands."""
        return Floor(len(self.lines), _root(self.lines))

    def plus(self, header: Entry, entry: Entry) -> Log:
        """Return the file after a reservation; the first brings the header along."""
        lines = list(self.lines)
        for content in (entry,) if lines else (header, entry):
            facts = {**content, "prev": _head(lines), "seq": len(lines)}
            lines.append(canonical(facts) + b"\n")
        if any(len(line) > LINE_LIMIT for line in lines[len(self.lines) :]):
            raise UsageError("A reservation is larger than readers of budgets accept.")
        return Log(tuple(lines), (*self.reservations, entry))


def header(site: str, dataset: str) -> dict[str, Any]:
    """Return the first line of a budget file; curves at other orders cannot be added to its own."""
    return {
        "dataset": dataset,
        "orders": list(map(_spell, ORDERS)),
        "site": site,
        "version": BUDGET.version,
    }


def read_log(data: bytes, first: Entry) -> Log:
    """Read every line strictly; an empty file holds no reservations.

    Args:
        data: the file.
        first: the header that it must have.

    Raises:
        EvidenceError: at step ``budget``: a line is not ours, out of sequence, or does not follow
            from the one before it.
    """
    lines, found = data.splitlines(keepends=True), []
    for number, line in enumerate(lines):
        try:
            entry = parse(line.removesuffix(b"\n"), limit=LINE_LIMIT)
        except CryptoError:
            raise EvidenceError(STEP, f"line {number} of a budget is not canonical") from None
        if not number:
            _check_version(entry)
        wanted = {*_FACTS, "prev", "seq"} if number else {*first, "prev", "seq"}
        if not isinstance(entry, dict) or set(entry) != wanted or not line.endswith(b"\n"):
            raise EvidenceError(STEP, f"line {number} of a budget is not complete")
        if entry["seq"] != number or entry["prev"] != _head(
            lines[number - 1 : number] if number else []
        ):
            raise EvidenceError(STEP, f"line {number} of a budget does not follow from those above")
        if number:
            found.append(_reservation(number, entry))
        elif any(entry[name] != first[name] for name in first):
            raise EvidenceError(STEP, "a budget is of another site, data set or list of orders")
    return Log(tuple(lines), tuple(found))


def _check_version(first: object) -> None:
    found = first.get("version") if isinstance(first, dict) else None
    if not BUDGET.check(found, partial(OtherEvidence, STEP)):
        raise EvidenceError(STEP, "a budget states no format version")


def _reservation(number: int, entry: Entry) -> Entry:
    made = {name: entry[name] for name in _FACTS}
    try:
        check_reservation(made)
    except UsageError as error:
        raise EvidenceError(STEP, f"line {number} of a budget: {error.what}") from None
    return made


def check_reservation(entry: Entry) -> None:
    """Raise UsageError unless an entry holds a run's name, a whole curve and a distance."""
    rdp = entry["rdp"]
    if not isinstance(entry["run"], str) or not isinstance(rdp, list) or len(rdp) != len(ORDERS):
        raise UsageError(f"A reservation names a run and a divergence at {len(ORDERS)} orders.")
    for text in (*rdp, entry["tails"]):
        _number(text)


def compose(reservations: Sequence[Entry], delta: float) -> float:
    """Return epsilon of all reservations together at `delta`; infinite if `delta` is used up."""
    if not reservations:
        return 0.0
    curve, tails = [Decimal(0)] * len(ORDERS), Decimal(0)
    for entry in reservations:
        tails = _SUM.add(tails, _number(entry["tails"]))
        curve = [_SUM.add(a, _number(b)) for a, b in zip(curve, entry["rdp"], strict=True)]
    left = delta - (len(reservations) - 1) * WRAP  # net_epsilon takes out one
    rdp = np.array([_above(value) for value in curve])
    return net_epsilon(rdp, left, tails=_above(tails))[0]


def rounded_up(value: float) -> str:
    """Return a number with six figures, never smaller than it is, or ``infinity``."""
    return f"{_UP.create_decimal_from_float(value):g}" if math.isfinite(value) else "infinity"


def _number(text: object) -> Decimal:
    try:
        if isinstance(text, str) and len(text) <= _LONGEST_NUMBER:
            found = Decimal(text)
            if found.is_finite() and found >= 0:
                return found
    except DecimalException:
        pass
    raise UsageError("A reservation holds something else than a decimal number of at least 0.")


def _above(value: Decimal) -> float:
    return math.nextafter(float(value), math.inf) if value else 0.0


def _spell(order: float) -> str:
    return repr(float(order))


def _head(lines: Sequence[bytes]) -> str:
    """Return the head after these lines: a hash of the last, which holds the head before it."""
    return hashlib.sha256(b"secure-fgl/budget\0" + lines[-1]).hexdigest() if lines else NONE


def _root(lines: Sequence[bytes]) -> bytes:
    tree = Tree()
    for line in lines:
        tree.append(line)
    return tree.root()


# --- What a budget store says of itself: a reservation, and a checkpoint that others cosigned ---


@dataclass(frozen=True)
class Reservation:
    """A store after a reservation.

    Attributes:
        entries: how many reservations it holds, this one included.
        head: SHA-256 (hex) over its last line.
        epsilon: of all of them together, at `delta`; decimal text, rounded up, or ``infinity``.
        delta: of the cap; decimal text.
    """

    entries: int
    head: str
    epsilon: str
    delta: str


@dataclass(frozen=True)
class Anchor:
    """A store's checkpoint as another party cosigned it.

    Attributes:
        note: the signed note, with one signature.
        signer, key: who cosigned it.
    """

    note: str
    signer: str
    key: VerifyKey

    def checkpoint(self) -> Checkpoint:
        """Return what was signed; raises EvidenceError at step ``budget``."""
        try:
            return read(self.note, name=self.signer, key=self.key)
        except CryptoError:
            what = "an anchor of a budget is not signed by who it names"
            raise EvidenceError(STEP, what) from None


# --- The budget store: what all runs together have spent of one site's data set (O20) ---
#
# ::
#
#     BUDGETS/  <name>.jsonl  <name>.floor  <name>.lock     name = SHA-256 of (site, data set)
#
# It lies outside every run folder and only grows. A chain that its owner rewrote as a whole holds
# again, so what forbids a step back are floors: sizes and roots at which the store was seen, by
# itself and, above all, in notes that other parties signed. Deleting the whole folder shows only in
# such notes.

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
        log = read_log(appended_content(f"{base}.jsonl", step=STEP), header(site, dataset))
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
    data = appended_content(f"{base}.floor", step=STEP)
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
