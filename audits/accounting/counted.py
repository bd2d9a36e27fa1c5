"""Noise that hides single records as the ledgers bear it out: what one of them spends.

Of counts the unit is that of private training, another part of the split: one validation or test
graph of a client, there or not. Its training graphs have an account of their own. Of rows it is one
node's features: there, or zeros in their place.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from audits.accounting import models as m
from audits.accounting.coverage import unread
from audits.accounting.spending import budget_facts
from audits.evidence.steps import Case
from protocols.errors import EvidenceError, PolicyError
from protocols.plan.noise import CountPlan
from protocols.plan.plan import Plan
from protocols.privacy.accounting import rounded_up
from protocols.privacy.record_noise import counted_epsilon, counted_in

__all__ = ["Scored", "counted", "counted_reasons", "scored_of"]

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
