"""What all runs together spent of sites' data, held to what others signed (O20)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from audits.evidence.steps import Case
from crypto.errors import CryptoError
from crypto.signing.canonical import parse
from protocols.errors import EvidenceError
from protocols.policy.budget import Unit, budget_key
from protocols.wire.roster import AGGREGATOR_NAME
from secure_fgl.errors import UsageError
from secure_fgl.store.anchors import Anchor
from secure_fgl.store.append_only import content
from secure_fgl.store.budget_lines import LINE_LIMIT, STEP
from secure_fgl.store.budgets import VARIABLE, BudgetStore

__all__ = ["BudgetTotal", "anchored", "totals"]

_ENDING = ".checkpoint"


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
    named = sorted(_named(file) for file in store.path.glob("*.jsonl"))
    return tuple(_total(store, site, dataset, delta) for site, dataset in named)


def anchored(case: Case, notes: Path, delta: float | None) -> tuple[BudgetTotal, ...]:
    """Return the budgets that a run took from and others signed for, held to what they signed.

    Args:
        case: the run; its roster has the key of the aggregator, which signed.
        notes: a folder of ``<site>.checkpoint`` and ``<site>.<unit>.checkpoint`` files, as they
            lie in a run's ``budgets/``, kept elsewhere.
        delta: at which epsilon is told; None: each budget's own.

    Raises:
        UsageError: no note there is of a site of this run.
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
            text = content(str(notes / f"{name}{_ENDING}"), step=STEP)
            if not text:
                continue
            anchor = Anchor(text.decode("utf-8", "replace"), AGGREGATOR_NAME, key)
            dataset = budget_key(case.plan.data.name, unit)
            store = BudgetStore.open(None, site, dataset, (anchor,))
            size = anchor.checkpoint().size
            found.append(_total(store, site, dataset, delta or cap.delta, size))
    if not found:
        raise UsageError(
            f"{notes} holds no note on a budget of this run.",
            why="notes are named by site, as in the run's budgets/, and end in .checkpoint",
            fix="ask the aggregator, or whoever kept them, for the notes on this run's sites",
        )
    return tuple(found)


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


def _named(file: Path) -> tuple[str, str]:
    """Return whose budget a file says it is; that it is so is checked where it is read."""
    try:
        first = parse(content(str(file), step=STEP).split(b"\n", 1)[0], limit=LINE_LIMIT)
        return str(first["site"]), str(first["dataset"])
    except (CryptoError, LookupError, TypeError):
        raise EvidenceError(STEP, f"{file.name} does not say whose budget it is") from None


def _check(delta: float) -> None:
    if not 0 < delta < 1:
        raise UsageError(f"--delta {delta:g} is no probability.", fix="take 1e-5")
