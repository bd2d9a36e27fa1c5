"""Noise as the ledgers record it: of clients' vectors, and of single records."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from audits.accounting import models as m
from audits.accounting.models import BudgetFacts, Epsilon, Uncovered
from audits.evidence.drift import Yardstick
from audits.evidence.ledger_index import LedgerIndex, Sent
from audits.evidence.steps import Case
from protocols.disclosures.names import Disclosure
from protocols.errors import EvidenceError, PolicyError
from protocols.plan.plan import CountPlan, Item, Plan
from protocols.plan.steps import Service, Step, item_id
from protocols.policy.budget import Budget, Unit
from protocols.privacy.accounting import INFINITE, rounded_up
from protocols.privacy.record_noise import counted_epsilon, counted_in
from protocols.wire.control import CONTROL, REFUSALS
from protocols.wire.roles import Role

# --- Which messages the noise covers (O16), and which say something of a client's data without it
# ---

_OWN = frozenset(kind.__name__ for kind in CONTROL)
_ALONE = "own_noise("
_NOISES = ("noise(", _ALONE)


def is_own(item: Item) -> bool:
    """Tell whether an item holds nothing but the layer's own messages.

    What an algorithm's answer holds is uploaded; nothing of the layer's own is.
    """
    own = {message.name for message in item.messages} <= _OWN
    return own and item.step is not Step.UP


def derived(plan: Plan) -> tuple[Item, ...]:
    """Return the items that a client makes from its data: all that it sends but the layer's own."""
    sent = (i for i in plan.items if i.sender == Role.CLIENT and not i.follows)
    return tuple(item for item in sent if not is_own(item))


def objection(item: Item) -> str | None:
    """Return why an item is not covered, or None if its noise covers all of it."""
    if item.noise is None:
        return "no noise"
    if not noised(item.guards):
        return "noise is planned, and its guards do not add it"
    if any(guard.startswith(_ALONE) for guard in item.guards) != item.noise.local:
        return "noise of one's own and noise that is shared are planned in each other's place"
    shapes = (field.shape for message in item.messages for field in message.fields)
    entries = sum(abs(prod(shape)) for shape in shapes)  # a plan is a file: sizes may be anything
    if entries > item.noise.coordinates:
        return f"noise on {item.noise.coordinates} of {entries} entries"
    return None


def noised(guards: tuple[str, ...] | list[str]) -> bool:
    """Tell whether a chain of guards, as plans and ledgers print it, adds noise."""
    return any(guard.startswith(_NOISES) for guard in guards)


def coverage(
    ledger_index: LedgerIndex, yardstick: Yardstick
) -> tuple[tuple[str, ...], tuple[Uncovered, ...]]:
    """Return the plan items that are covered, and those that are not with the first reason.

    Args:
        ledger_index: what was recorded; an item that was not planned, left without its noise, or
            was refused is not covered whatever the plan says, and nothing is if a ledger is
            unreadable.
        yardstick: the plan and the roster.
    """
    found: dict[str, str] = {}
    items = derived(yardstick.plan)
    for item in items:
        if why := objection(item):
            found[item.id] = why
    for id, why in _recorded(ledger_index, yardstick):
        found.setdefault(id, why)
    if silent := unread(ledger_index, yardstick):
        for item in items:
            found.setdefault(item.id, f"the ledger of {silent[0]} cannot be read")
    covered = tuple(item.id for item in items if item.id not in found)
    return covered, tuple(Uncovered(item=id, why=why) for id, why in found.items())


def left_bare(ledger_index: LedgerIndex, yardstick: Yardstick) -> tuple[str, ...]:
    """Return what left clients without noise, by the ledgers; refusals are no such things."""
    refusals = {i.id for i in yardstick.plan.items if i.part is Service.REFUSAL}
    refusals.add(item_id("", Service.REFUSAL, Step.REFUSE, Role.CLIENT))
    found = dict(_recorded(ledger_index, yardstick))
    own = {item.id for item in derived(yardstick.plan) if objection(item)}
    sent = {s.item for s in ledger_index.releases() if s.item in own}
    return tuple(sorted({*found, *sent} - refusals))


def unread(ledger_index: LedgerIndex, yardstick: Yardstick) -> tuple[str, ...]:
    """Return the clients that are looked at and whose ledgers are missing or broken."""
    return tuple(name for name in yardstick.clients if name not in ledger_index.entries)


def _recorded(ledger_index: LedgerIndex, yardstick: Yardstick) -> Iterator[tuple[str, str]]:
    for sent in ledger_index.releases():
        if yardstick.roles.get(sent.party) != Role.CLIENT:
            continue
        item = yardstick.items.get(sent.item)
        if item is None:
            yield sent.item[:60], "left and was not planned"
        elif item.part is Service.REFUSAL:
            yield item.id, f"a refusal left: one of {len(REFUSALS)} codes"
        elif item.noise is not None and not noised(sent.facts["protection"]):
            yield item.id, "left without its noise"
    for party, _ in ledger_index.of_kind("refusal"):
        if yardstick.roles.get(party) == Role.CLIENT:
            id = item_id("", Service.REFUSAL, Step.REFUSE, Role.CLIENT)
            yield id, f"a refusal was recorded: one of {len(REFUSALS)} codes"


# --- What the ledgers show of every client's noised vectors: how often, and among how many others
# ---

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


# --- Noise that hides single records as the ledgers bear it out: what one of them spends ---
#
# Of counts the unit is that of private training, another part of the split: one validation or test
# graph of a client, there or not. Its training graphs have an account of their own. Of rows it is
# one node's features: there, or zeros in their place.

_TOLERANCE = 1e-9


@dataclass(frozen=True)
class _Said:
    """What is said of one unit.

    Attributes:
        record: what one is, in words.
        adjacency: how two data sets differ, in words.
        covered: what of the items is.
        guard: by whose trace in a ledger's entry noise was added.
        assumes: beside what holds of all units.
    """

    record: str
    adjacency: str
    covered: str
    guard: str
    assumes: tuple[str, ...]


_SAID = {
    "graph": _Said(
        "validation or test graph",
        "add or remove",
        "the counts in",
        "record_noise(",
        (
            "the split is given: no graph of it trains and is scored too",
            "one graph moves each field by what its message declares at most",
        ),
    ),
    "node": _Said(
        "node's features",
        "there, or zeros in their place",
        "the rows that follow from",
        "row_noise(",
        (
            "edges are given, and with them which rows are told, who adds to them and how many "
            "terms they have",
            "a node enters no more rows than planned, to which its client held the matcher",
            "a term is made of one node's features alone, as the algorithm's file says",
        ),
    ),
}


class Scored:
    """What the ledgers say of noise that hides single records of one unit in one run.

    Args:
        case: the run.
        plan: the noise.

    Raises:
        EvidenceError: the plan's numbers cannot be counted with.
    """

    def __init__(self, case: Case, plan: CountPlan) -> None:
        self.case, self.plan, self.said = case, plan, _SAID[plan.unit]
        self.items = tuple(
            item.id
            for item in case.plan.items
            if item.counted is not None and item.counted.unit == plan.unit
        )
        try:
            self.target = float(plan.epsilon)
            good = 0 < float(plan.delta) < 1 and 0 < self.target < math.inf
            self.planned = self.epsilon(plan.releases)
        except (ValueError, OverflowError, PolicyError):
            good = False
        if not good:
            raise EvidenceError("plan", "its noise on counts cannot be counted with")
        yardstick = case.yardstick
        silent = unread(case.ledger_index, yardstick)
        clients = yardstick.clients
        sent, self.bare = Counter[str](), set[str](silent)
        for release in case.ledger_index.releases():
            if release.item in self.items and release.party in clients:
                sent[release.party] += 1
                if not any(
                    text.startswith(self.said.guard) for text in release.facts["protection"]
                ):
                    self.bare.add(release.party)
        self.spent = {
            name: math.inf if name in self.bare else self.epsilon(sent[name]) for name in clients
        }

    def epsilon(self, messages: int) -> float:
        """Return epsilon of so many messages of one client, for one record."""
        return counted_epsilon(self.plan, len(self.case.plan.clients), messages)

    @property
    def worst(self) -> float:
        """What the client that spent most spent."""
        return max(self.spent.values(), default=0.0)

    @property
    def scope(self) -> m.Scope:
        """The whole run, unless a refusal left: one code that no noise covers."""
        refused = {party for party, _ in self.case.ledger_index.of_kind("refusal")}
        return "covered messages" if refused & set(self.spent) else "run"

    def labelled(self, value: float) -> m.Epsilon:
        """Return a number with its labels."""
        return m.Epsilon(
            value=rounded_up(value),
            unit=self.plan.unit,
            adjacency="add-remove" if self.plan.unit == "graph" else "zero-out",
            model="local",
            scope=self.scope,
            delta=repr(float(self.plan.delta)),
            assumptions=(
                *self.said.assumes,
                "every client's own noise is drawn as planned, and nobody else's is counted on",
                "no credit for the choice of clients (O21)",
            ),
        )


def scored_of(case: Case) -> tuple[Scored, ...]:
    """Return what the ledgers say of noise that hides single records, unit by unit.

    Raises:
        EvidenceError: the plan's numbers cannot be counted with.
    """
    plan: Plan = case.plan
    counts, rows = (counted_in(plan.items, unit) for unit in ("graph", "node"))
    if counts is not None and plan.training is None:
        raise EvidenceError("plan", "it has noise on counts of records that nothing else hides")
    return tuple(Scored(case, noise) for noise in (counts, rows) if noise is not None)


def counted(scored: Scored) -> m.Counted:
    """Return the account of single records of one unit."""
    recorded, said = scored.labelled(scored.worst), scored.said
    return m.Counted(
        statement=f"For one {said.record}: ε = {recorded.value} at δ = {recorded.delta}, against "
        f"everybody outside its client; adjacency: {said.adjacency}; scope: {scored.scope}; "
        f"covered: {said.covered} {', '.join(scored.items)}",
        items=scored.items,
        target=scored.labelled(scored.target),
        recorded=recorded,
        mechanism=scored.plan.mechanism,
        scale=scored.plan.scale,
        fields=scored.plan.fields,
        releases=scored.plan.releases,
    )


def counted_reasons(scored: Scored) -> Iterator[str]:
    """Yield why the record does not bear the target for single records out."""
    goal = f"the target of {scored.target:g} for one {scored.said.record}"
    for value, what in ((scored.planned, "the plan gives"), (scored.worst, "ledgers show")):
        if not value <= scored.target * (1.0 + _TOLERANCE):
            yield f"{what} epsilon {rounded_up(value)}, above {goal}"
    if scored.bare:
        yield f"{sorted(scored.bare)[0]} sent them without noise, or its ledger is unread"
    if scored.plan.unit == "node":  # that of graphs is training's too, and looked at there
        yield from _budgets(scored)


def _budgets(scored: Scored) -> Iterator[str]:
    """Yield which clients' budgets do not hold what the run comes to (O20)."""
    unit, cap = scored.plan.unit, scored.case.policy.budgets.get(scored.plan.unit)
    if cap is None:  # no such noise is asked for, as is said of the plan
        return
    at_cap = scored.plan.model_copy(update={"delta": repr(cap.delta)})
    least = counted_epsilon(at_cap, len(scored.case.plan.clients)) * (1.0 - _TOLERANCE)
    for client in sorted(name for name, spent in scored.spent.items() if spent):
        found = None
        for entry in scored.case.ledger_index.entries.get(client, ()):
            if entry["kind"] == "release" and entry["item"] in scored.items:
                break
            if entry["kind"] == "budget" and entry.get("unit") == unit:
                found = budget_facts(entry, cap, unit).epsilon.as_float()
        if found is None:
            yield f"{client} noised before a budget for its {unit}s was reserved (O20)"
        elif found > float(rounded_up(cap.epsilon)):
            yield f"the budget of {client} for single {unit}s is exceeded (O20)"
        elif found < least:
            yield f"{client} reserved less for its {unit}s than the run comes to (O20)"
