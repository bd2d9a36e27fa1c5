"""Noise on counts of single records as the ledgers bear it out: what one scored graph spends.

The unit is that of private training, another part of the split: one validation or test graph of a
client, there or not. Its training graphs have an account of their own.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from audits.accounting import models as m
from audits.accounting.coverage import unread
from audits.evidence.steps import Case
from protocols.errors import EvidenceError, PolicyError
from protocols.plan.noise import CountPlan
from protocols.plan.plan import Plan
from protocols.privacy.record_noise import counted_epsilon, counted_in
from protocols.privacy.training import TrainingPlan

__all__ = ["Scored", "counted", "counted_reasons", "scored_of"]

_TOLERANCE = 1e-9
_GUARD = "record_noise("


class Scored:
    """What the ledgers say of noised counts in one run.

    Args:
        case: the run.
        plan: the noise.
        training: whose unit it shares.

    Raises:
        EvidenceError: the plan's numbers cannot be counted with.
    """

    def __init__(self, case: Case, plan: CountPlan, training: TrainingPlan) -> None:
        self.case, self.plan, self.training = case, plan, training
        self.items = tuple(item.id for item in case.plan.items if item.counted is not None)
        try:
            self.target = float(plan.epsilon)
            good = 0 < float(plan.delta) < 1 and 0 < self.target < math.inf
            self.planned = self.epsilon(plan.releases)
        except (ValueError, PolicyError):
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
                if not any(text.startswith(_GUARD) for text in release.facts["protection"]):
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
        unit = self.training.unit
        return m.Epsilon(
            value=m.rounded_up(value),
            unit=unit,
            adjacency="add-remove",
            model="local",
            scope=self.scope,
            delta=repr(float(self.plan.delta)),
            assumptions=(
                f"the split is given: no {unit} of it trains and is scored too",
                "every client's own noise is drawn as planned, and nobody else's is counted on",
                f"one {unit} moves each field by what its message declares at most",
                "no credit for the choice of clients (O21)",
            ),
        )


def scored_of(case: Case) -> Scored | None:
    """Return what the ledgers say of noised counts; None where the plan has none.

    Raises:
        EvidenceError: the plan's numbers cannot be counted with.
    """
    plan: Plan = case.plan
    noise = counted_in(plan.items)
    if noise is None:
        return None
    if plan.training is None:
        raise EvidenceError("plan", "it has noise on counts of records that nothing else hides")
    return Scored(case, noise, plan.training)


def counted(scored: Scored) -> m.Counted:
    """Return the account of single validation and test records."""
    recorded, unit = scored.labelled(scored.worst), scored.training.unit
    return m.Counted(
        statement=f"For one validation or test {unit}: ε = {recorded.value} at "
        f"δ = {recorded.delta}, against everybody outside its client; adjacency: add or remove; "
        f"scope: {scored.scope}; covered: the counts in {', '.join(scored.items)}",
        items=scored.items,
        target=scored.labelled(scored.target),
        recorded=recorded,
        mechanism=scored.plan.mechanism,
        scale=scored.plan.scale,
        fields=scored.plan.fields,
        releases=scored.plan.releases,
    )


def counted_reasons(scored: Scored) -> Iterator[str]:
    """Yield why the record does not bear the target for single scored records out."""
    goal = f"the target of {scored.target:g} for one scored {scored.training.unit}"
    for value, what in ((scored.planned, "the planned counts give"), (scored.worst, "counts show")):
        if not value <= scored.target * (1.0 + _TOLERANCE):
            yield f"{what} epsilon {m.rounded_up(value)}, above {goal}"
    if scored.bare:
        yield f"counts of {sorted(scored.bare)[0]} left without noise, or its ledger is unread"
