"""What the ledgers show of every client's noised vectors: how often, and among how many others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from audits.accounting.models import BudgetFacts, Epsilon
from audits.evidence.drift import Yardstick
from audits.evidence.ledger_index import LedgerIndex, Sent
from protocols.disclosures.names import Disclosure
from protocols.plan.plan import Item
from protocols.plan.steps import Step
from protocols.policy.budget import Budget, Unit
from protocols.privacy.accounting import INFINITE

_Sum = tuple[int, str]  # exchange, cohort digest


@dataclass(frozen=True)
class Spend:
    """One noised vector of one client.

    Attributes:
        item: the plan item.
        round: of the run.
        survivors: clients in the opened total; 0 if it was never opened.
        honest: shares of noise that are counted on against the aggregator.
        alone: the vector left in clear, so only its own noise hides it.
        bare: clients in the total that add no noise: who reads it.
    """

    item: str
    round: int
    survivors: int
    honest: int
    alone: bool
    bare: int = 0

    @property
    def participant(self) -> int:
        """Shares that another client does not know: its own it does; its reader may tell it all."""
        others = self.survivors - 1 - self.bare
        return max(1, min(self.honest, others)) if self.survivors else self.honest


class Openings:
    """Opened totals by exchange and cohort: how often, and how many clients are in each."""

    def __init__(self, ledger_index: LedgerIndex) -> None:
        times: dict[_Sum, Counter[str]] = defaultdict(Counter)
        fewest: dict[_Sum, int] = {}
        for party, entry in ledger_index.totals():
            key = (entry["exchange"], entry["cohort"])
            times[key][party] += 1  # authority and aggregator may both record one opening
            told: int = entry["survivors"]
            fewest[key] = min(told, fewest.get(key, told))
        self.times = {key: max(told.values()) for key, told in times.items()}
        self._fewest = fewest
        self._senders: dict[_Sum, set[str]] = defaultdict(set)
        for sent in ledger_index.releases():
            if sent.step is Step.UP:
                self._senders[_sum_of(sent)].add(sent.party)

    def survivors(self, key: _Sum) -> int:
        """Return how many clients are in a total: no more than sent something for it."""
        return min(self._fewest.get(key, 0), len(self._senders[key]))


def _sum_of(sent: Sent) -> _Sum:
    return sent.exchange, str(sent.facts["cohort"])


def spends(
    ledger_index: LedgerIndex, yardstick: Yardstick, noised: Sequence[Item], colluders: int
) -> dict[str, list[Spend]]:
    """Return per client that is looked at every noised vector that its ledger shows.

    An attempt that is repeated carries the same vector (O5) and counts once, unless more than one
    of its totals was opened; a message that is read by itself draws anew, so each counts. A vector
    that was never opened counts all the same: the budget for it was taken.

    Args:
        ledger_index: the ledgers.
        yardstick: for roles.
        noised: the plan items with noise.
        colluders: how many others of one total are assumed to collude.
    """
    items, openings = {item.id: item for item in noised}, Openings(ledger_index)
    found: dict[str, list[Spend]] = {name: [] for name in yardstick.clients}
    asked: dict[tuple[str, str, int], list[Sent]] = defaultdict(list)
    for sent in ledger_index.releases():
        if sent.item in items and sent.party in found:
            asked[sent.party, sent.item, sent.exchange].append(sent)
    for (party, item, _), sents in asked.items():
        found[party] += _of_one_ask(items[item], sents, openings, colluders)
    return found


def _of_one_ask(
    item: Item, sents: Sequence[Sent], openings: Openings, colluders: int
) -> Iterator[Spend]:
    attempts = Counter((sent.facts["attempt"], *_sum_of(sent)) for sent in sents)
    sums = dict.fromkeys(_sum_of(sent) for sent in sents)
    opened = [key for key in sums for _ in range(openings.times.get(key, 0))]
    planned = item.noise.honest if item.noise is not None else 1
    bare = 1 if item.reader else 0  # who reads the total adds a blind and no noise
    own = item.noise is not None and item.noise.local
    vectors: list[tuple[int, int]] = []
    for key in opened:
        survivors = openings.survivors(key)
        vectors.append((survivors, 1 if own else max(1, survivors - colluders - bare)))
    drawn = len(sents) if item.disclosure is Disclosure.NOISED else max(attempts.values())
    while len(vectors) < drawn:
        vectors.append((0, planned))
    for survivors, honest in vectors:
        yield Spend(
            item=item.id,
            round=sents[0].facts["round"],
            survivors=survivors,
            honest=1 if item.unsafe else honest,
            alone=item.unsafe,
            bare=bare,
        )


def budget_of(
    ledger_index: LedgerIndex, party: str, noised: Sequence[Item]
) -> dict[str, Any] | None:
    """Return the last budget entry of a client that stands before its first noised vector."""
    names, found = {item.id for item in noised}, None
    for entry in ledger_index.entries.get(party, ()):
        if entry["kind"] == "release" and entry["item"] in names:
            break
        if entry["kind"] == "budget" and "unit" not in entry:
            found = entry
    return found


def budget_facts(entry: dict[str, Any], cap: Budget, unit: Unit = "client") -> BudgetFacts:
    """Return a budget entry with its labels; what cannot be read as a number is infinite."""
    value, delta = _decimal(entry["epsilon"]), _decimal(entry["delta"])
    usable = value is not None and delta is not None and float(delta) <= cap.delta
    return BudgetFacts(
        dataset=entry["dataset"][:80],
        entries=entry["entries"],
        epsilon=_all_runs(value if usable and value else INFINITE, cap, unit),
        cap=_all_runs(repr(cap.epsilon), cap, unit),
    )


def _all_runs(value: str, cap: Budget, unit: Unit) -> Epsilon:
    whole = unit == "client"
    return Epsilon(
        value=value,
        unit=unit,
        adjacency="zero-out" if whole else "add-remove",
        model="distributed-sum" if whole else "local",
        scope="all runs",
        delta=repr(cap.delta),
        assumptions=("every run of this site on this data set reserved from the same store",),
    )


def _decimal(text: object) -> str | None:
    """Return a decimal text of at least 0 as it is, or None."""
    try:
        good = isinstance(text, str) and 0 <= float(text) < float("inf") and len(text) < 40
    except ValueError:
        good = False
    return repr(float(str(text))) if good else None
