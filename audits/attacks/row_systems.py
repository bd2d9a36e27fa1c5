"""A15, row-systems: does what a receiver is told of rows give single neighbours' features away?

**Who attacks, and what he knows.** A client that is told rows of neighbours' features (`fed_gcn`),
or two that pool theirs. They know the public numbers of rows, which other clients' nodes enter
them (the worst case: they know the graph), and their own nodes, which are taken off. Features are
sparse.

**How.** All rows together are one linear system in the terms of others' nodes. *Elimination* finds
every node that a combination of rows fixes: rows of one neighbour, rows that differ by one, and
longer combinations. *Equal values* goes row by row: every non-zero entry of a bag of words' term is
one number, so a row's entries fall into groups, one a node (`_methods.row_systems`). Of a noised
solution the *largest entries* are taken in their place, as many as the node has words.

**What the number means.** The share of the nodes in a receiver's rows that are read. First
question: by elimination alone, the term itself, to within the grid. Second: by either; equal values
name the non-zero columns, but for one in twenty. The prior, who names the mean, is next to 0.

**Controls.** Raw: the same of rows as published, every row told and nodes in any number of them.
Null: the attack's answers held against the same terms with their columns moved by one.

Noise on rows is drawn anew by the audit, as the plan says it.

**What it cannot show.** Features that are dense: elimination holds for them, equal values does not.
Knowledge from elsewhere, of some words of a node, which would part a sum better; what noised rows
tell of single words, short of naming nearly all: epsilon bounds that. The rows are those that the
policy's rule gives for the clients' data on the auditor's machine: where two rows are equally good,
the run's tags decided otherwise.

Source: docs/adr/0051-row-sums.md; what a sum of few bags of words tells is this project's own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from audits.attacks._methods.openings import read
from audits.attacks._shared.material import Array, Material, RowsTold, RowSystem
from audits.attacks._shared.payloads import sent
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.verdicts import Findings, NotApplicable, Samples

__all__ = ["ATTACK", "ELIMINATED", "READ", "RowSystems"]

ELIMINATED = Rule(
    "share of others' nodes read by elimination", margin=0.005, gate=0.02, chance=0.0,
    null_side="above",
)  # fmt: skip
READ = Rule(
    "share of others' nodes read", margin=0.005, gate=0.02, chance=0.0,
    null_side="above",
)  # fmt: skip


@dataclass(frozen=True)
class RowSystems:
    """See the head of this file."""

    id: str = "A15"
    name: str = "row-systems"
    question: str = "Does what a receiver is told of rows give a neighbour's features away?"
    payloads: tuple[str, ...] = ("P13",)
    metric: str = ELIMINATED.metric
    margin: float = ELIMINATED.margin
    gate: float = ELIMINATED.gate
    rules: tuple[Rule, ...] = (ELIMINATED, READ)
    needs_capture: bool = False

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Attack; see `audits.attacks.Attack`."""
        told = material.rows
        if told is None:
            if not set(sent(material.case.plan, material.case.policy)) & set(self.payloads):
                return Findings((NotApplicable("no rows of neighbours are told in this run"),))
            why = material.unasked or "the rows could not be computed again"
            return Findings((NotApplicable(why, arises=True),))
        if len(told.raw) < 2:
            return Findings((NotApplicable("fewer than two receivers", arises=True),))
        variants = (("one receiver", told.seen), ("two that pool", told.pooled))
        return Findings(
            tuple(
                _row(told, seen, who, rule) for who, seen in variants for rule in self.rules if seen
            )
        )


def _row(told: RowsTold, seen: tuple[RowSystem, ...], who: str, rule: Rule) -> Samples:
    """Return one question about one kind of receiver; its units are first receivers."""
    by = {one.who.partition("+")[0]: one for one in seen}
    raw = {one.who: one for one in told.raw}
    units = tuple(sorted(set(by) & set(raw)))

    def each(systems: dict[str, RowSystem], *, moved: bool = False) -> Array:
        terms = {n: np.roll(systems[n].terms, int(moved), axis=1) for n in units}
        return np.array([_share(systems[n], told.tolerance, rule, terms[n]) for n in units])

    return Samples(
        payload="P13",
        what=f"{who}: {'elimination' if rule is ELIMINATED else 'elimination or equal values'}",
        units=units,
        prior=np.array([_mean(by[n], told.tolerance) for n in units]),
        raw=each(raw),
        null=each(by, moved=True),
        protected=each(by),
        positives=sum(len(by[n].terms) for n in units),
        **rule.given(),
    )


def _share(one: RowSystem, tolerance: float, rule: Rule, truth: Array) -> float:
    """Return the share of a system's nodes that are read, held against these terms."""
    if not len(one.terms):
        return 0.0
    hits = read(one.system, one.sums, truth, tolerance, groups=rule is READ)
    return float(hits.mean())


def _mean(one: RowSystem, tolerance: float) -> float:
    """Return the share of nodes whose term is the mean of all: a guess without the rows."""
    if not len(one.terms):
        return 0.0
    off = np.abs(one.terms - one.terms.mean(axis=0)).max(axis=1, initial=0.0)
    return float((off <= 4.0 * tolerance).mean())


ATTACK = RowSystems()
