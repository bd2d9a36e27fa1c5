"""What all runs together spent of sites' data, held to what others signed (O20)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from audits.evidence.steps import Case
from crypto.errors import CryptoError
from crypto.signing import parse
from protocols.errors import EvidenceError
from protocols.policy.budget import Unit, budget_key
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.errors import UsageError
from secure_fgl.store.budgets import LINE_LIMIT, STEP, VARIABLE, Anchor, BudgetStore
from secure_fgl.store.files import appended_content

__all__ = ["BudgetTotal", "anchored", "totals"]

_ENDING = ".checkpoint"
_ENDINGS = ("*.jsonl", "*.floor")  # of a budget's lines, and of how far it was seen


@dataclass(frozen=True)
class BudgetTotal:
    """One budget as it stands.

    Attributes:
        site, dataset, unit: whose, of which data, and what it bounds.
        runs: that reserved from it.
        epsilon, delta: of all of them together; decimal texts, rounded up.
        held_to: lines that others signed for and that it extends; 0: none were given.
    """

    site: str
    dataset: str
    unit: str
    runs: int
    epsilon: str
    delta: str
    held_to: int = 0


def totals(store: BudgetStore, delta: float) -> tuple[BudgetTotal, ...]:
    """Return every budget of a store, by site and data set.

    Args:
        store: its folder is only read, apart from locks.
        delta: at which epsilon is told.

    Raises:
        UsageError: there is no such folder, or `delta` is no probability.
        EvidenceError: at step ``budget``: a budget was cut, edited or put back.
        LedgerError: one cannot be read.
    """
    _check(delta)
    if not store.path.is_dir():
        raise UsageError(
            f"There is no store of budgets in {store.path}.",
            why="no run with noise has reserved from a budget there",
            fix=f"give the folder that {VARIABLE} or budget.store names at the site",
        )
    named = sorted(_named(store))
    return tuple(_total(store, site, dataset, delta) for site, dataset in named)


def anchored(case: Case, notes: Path, delta: float | None) -> tuple[BudgetTotal, ...]:
    """Return the budgets that a run took from and others signed for, held to what they signed.

    Args:
        case: the run; its roster has the key of the aggregator, which signed.
        notes: a folder of ``<site>.checkpoint`` and ``<site>.<unit>.checkpoint`` files, as they
            lie in a run's ``budgets/``, kept elsewhere.
        delta: at which epsilon is told; None: each budget's own.

    Raises:
        UsageError: no note there is of a site of this run, one is older than what the run took, or
            the ledger that says what it took is not here.
        EvidenceError: at step ``budget``: a note is not the aggregator's or of another budget, or
            the store does not extend it: it was cut, edited or put back.
        LedgerError: the store cannot be read.
    """
    if delta is not None:
        _check(delta)
    key = case.roster.party(AGGREGATOR_NAME).verify
    found = []
    for site in case.plan.clients:
        for unit, cap in case.policy.budgets.items():
            name = site if unit == "client" else f"{site}.{unit}"
            text = appended_content(str(notes / f"{name}{_ENDING}"), step=STEP)
            if not text:
                continue
            anchor = Anchor(text.decode("utf-8", "replace"), AGGREGATOR_NAME, key)
            dataset = budget_key(case.plan.data.name, unit)
            store = BudgetStore.open(None, site, dataset, (anchor,))
            size = anchor.checkpoint().size
            if size <= _taken(case, site, unit):
                raise UsageError(
                    f"The note {name}{_ENDING} in {notes} is older than this run.",
                    why="it was signed before the run reserved, so a budget without what the run "
                    "took would extend it, too",
                    fix="ask for the note that the aggregator signed at the end of this run, or "
                    "for a later one",
                )
            found.append(_total(store, site, dataset, delta or cap.delta, size))
    if not found:
        raise UsageError(
            f"{notes} holds no note on a budget of this run.",
            why="notes are named by site, as in the run's budgets/, and end in .checkpoint",
            fix="ask the aggregator, or whoever kept them, for the notes on this run's sites",
        )
    return tuple(found)


def _taken(case: Case, site: str, unit: str) -> int:
    """Return how many reservations a budget held once the run had taken from it, by the ledger.

    A note counts lines: one more than these, as the first line is no reservation.

    Raises:
        UsageError: that ledger is not here, or says nothing of it.
    """
    for party, entry in case.ledger_index.of_kind("budget"):
        if party == site and entry.get("unit", "client") == unit:
            return int(entry["entries"])
    raise UsageError(
        f"The run does not say when {site} reserved its budget, so no note can be held to it.",
        why="its ledger is not here, or the run took nothing from that budget",
        fix="give a run folder with that site's ledger, or leave its note out",
    )


def _total(store: BudgetStore, site: str, dataset: str, delta: float, held: int = 0) -> BudgetTotal:
    spent = store.spent(site, dataset, delta)
    bare, _, unit = dataset.rpartition("#")
    whole = not bare or unit not in get_args(Unit)
    return BudgetTotal(
        site=site,
        dataset=dataset if whole else bare,
        unit="client" if whole else unit,
        runs=spent.entries,
        epsilon=spent.epsilon,
        delta=spent.delta,
        held_to=held,
    )


def _named(store: BudgetStore) -> Iterator[tuple[str, str]]:
    """Yield whose budgets a store holds; their lines are checked where they are read.

    A file under another budget's name would have that one counted twice, and itself not at all.
    """
    bases = {file.with_suffix("") for end in _ENDINGS for file in store.path.glob(end)}
    for base in sorted(bases):
        lines = appended_content(f"{base}.jsonl", step=STEP)
        try:
            if not lines and not _seen(base):
                continue  # a first line that could not be written
            first = parse(lines.split(b"\n", 1)[0], limit=LINE_LIMIT)
            found = str(first["site"]), str(first["dataset"])
        except (CryptoError, LookupError, TypeError, ValueError):
            raise EvidenceError(STEP, f"{base.name} is gone, or says not whose it is") from None
        if store.file(*found).name != f"{base.name}.jsonl":
            raise EvidenceError(STEP, f"{base.name} says that it is another budget than it is")
        yield found


def _seen(base: Path) -> bool:
    """Tell whether a budget was ever seen with lines."""
    floor = appended_content(f"{base}.floor", step=STEP)
    return bool(floor) and int(parse(floor, limit=LINE_LIMIT)["size"]) > 0


def _check(delta: float) -> None:
    if not 0 < delta < 1:
        raise UsageError(f"--delta {delta:g} is no probability.", fix="take 1e-5")
