"""Private training as the ledgers bear it out: what a run spends of one training record.

A second unit beside the client's. Curves of two units are never added up (O16). Unit: one training
graph; adjacency: that graph is there or not, the validation and test graphs of its client stay.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from audits.accounting import models as m
from audits.accounting.counted import budget_facts, unread
from audits.accounting.engines import opacus
from audits.evidence.steps import Case
from protocols.errors import EvidenceError, PolicyError
from protocols.plan.plan import Plan
from protocols.plan.steps import Step
from protocols.privacy.accounting import ORDERS, net_epsilon, rounded_up
from protocols.privacy.noising import TAIL_BITS
from protocols.privacy.record_noise import counted_curve, counted_in
from protocols.privacy.training import (
    TrainingPlan,
    plan_training,
    rdp_sampled_gaussian,
    training_divergence,
)

__all__ = ["TOLERANCE", "Recorded", "derived_from_records", "reasons", "records"]

TOLERANCE = 1e-9
_TAILS = math.ldexp(1.0, 48 - TAIL_BITS)  # of the 2^48 draws that no run makes
_CENTRAL = "continuous Gaussian, without a grid: a cross-check, not a claim"

Rated = tuple[str, str]
"""Rate and noise multiplier, as a ledger or a plan states them."""


@lru_cache(maxsize=256)  # every client's total is asked for several times
def _step(rate: float, noise: float) -> NDArray[np.float64]:
    return rdp_sampled_gaussian(ORDERS, rate=rate, noise=noise)


class Recorded:
    """What the ledgers say of private training in one run.

    Args:
        case: the run; its plan has private training.

    Raises:
        EvidenceError: the plan's numbers cannot be counted with.
    """

    def __init__(self, case: Case, plan: TrainingPlan) -> None:
        self.case, self.plan = case, plan
        try:
            self.delta, self.target = float(plan.delta), float(plan.epsilon)
            good = 0 < self.delta < 1 and 0 < self.target < math.inf
            planned = self.epsilon({(plan.rate, plan.noise): plan.releases})
        except ValueError:
            good, planned = False, math.inf
        if not good:
            raise EvidenceError("plan", "its private training cannot be counted with")
        self.planned = planned
        yardstick = case.yardstick
        self.unread = frozenset(unread(case.ledger_index, yardstick))
        self.clients = list(yardstick.clients)
        self.bare = {name: self._bare(name) for name in self.clients}
        self.steps = {name: self._steps(name) for name in self.clients}

    def epsilon(self, steps: Mapping[Rated, int]) -> float:
        """Return epsilon of so many steps; infinite if one of them cannot be counted with."""
        curve = np.zeros(len(ORDERS))
        for (rate, noise), count in steps.items():
            try:
                one = _step(float(rate), float(noise))
            except (PolicyError, ValueError):
                return math.inf
            curve = curve + count * one
        if not any(steps.values()):
            return 0.0
        return net_epsilon(curve, self.delta, tails=_TAILS)[0]

    def spent(self, client: str) -> float:
        """Return what a client's ledger shows; infinite if something left without noise."""
        if client in self.unread or self.bare[client]:
            return math.inf
        return self.epsilon(self.steps[client])

    @property
    def worst(self) -> str:
        """The client that spent most."""
        return max(self.clients, key=self.spent)

    def entries(self, client: str, kind: str) -> list[dict[str, Any]]:
        """Return a client's entries of a kind, oldest first."""
        return [e for e in self.case.ledger_index.entries.get(client, ()) if e["kind"] == kind]

    def budget(self, client: str) -> dict[str, Any] | None:
        """Return the entry with which a client reserved for its records before it trained."""
        found = [e for e in self.entries(client, "budget") if e.get("unit") == self.plan.unit]
        trained = self.entries(client, "training")
        early = [e for e in found if not trained or e["seq"] < trained[0]["seq"]]
        return early[-1] if early else None

    def refused(self) -> bool:
        """Tell whether a client refused: one code left that no noise covers."""
        return any(self.entries(client, "refusal") for client in self.clients)

    def strays(self) -> list[str]:
        """Return the clients that recorded another clip norm or unit than planned."""
        wanted = {"clip": self.plan.clip, "unit": self.plan.unit}
        return [
            client
            for client in self.clients
            if any(
                {name: entry[name] for name in wanted} != wanted
                for entry in self.entries(client, "training")
            )
        ]

    def _steps(self, client: str) -> Counter[Rated]:
        found: Counter[Rated] = Counter()
        for entry in self.entries(client, "training"):
            found[entry["rate"], entry["noise"]] += entry["steps"]
        return found

    def _bare(self, client: str) -> bool:
        """Tell whether an answer of a round left with no private training recorded before it."""
        trained: set[int] = set()
        for entry in self.case.ledger_index.entries.get(client, ()):
            if entry["kind"] == "training":
                trained.add(entry["round"])
            elif (
                entry["kind"] == "release"
                and entry["round"] not in trained
                and derived_from_records(self.case.plan, self.plan, entry["item"])
            ):
                return True
        return False


def derived_from_records(plan: Plan, training: TrainingPlan, item: str) -> bool:
    """Tell whether what leaves as this item is computed from training records."""
    known = next((found for found in plan.items if found.id == item), None)
    if known is None:
        return True  # left and was not planned: nothing is known of it
    held_out = {message.name for message in known.messages} <= set(training.held_out)
    return known.step is Step.UP and not held_out


def reasons(recorded: Recorded) -> Iterator[str]:
    """Yield why the record does not bear the target for single records out."""
    plan, most = recorded.plan, recorded.target * (1.0 + TOLERANCE)
    goal = f"the target of {recorded.target:g} for one training {plan.unit}"
    spent = recorded.spent(recorded.worst)
    for value, what in (
        (recorded.planned, "the planned steps give"),
        (spent, "the ledgers show"),
    ):
        if not value <= most:
            yield f"{what} epsilon {rounded_up(value)}, above {goal}"
    wanted = recorded.case.policy.training
    if wanted is None or plan != plan_training(wanted, recorded.case.plan.rounds, plan.held_out):
        yield "the planned private training is not what the policy's comes to"
    if bare := sorted(name for name in recorded.clients if recorded.bare[name]):
        yield f"an update of {_who(bare)} left in a round without private training"
    if strays := recorded.strays():
        yield f"training of {_who(strays)} was clipped in another way than planned"
    late = [
        n
        for n in recorded.clients
        if recorded.entries(n, "training") and recorded.budget(n) is None
    ]
    if late:
        yield f"{_who(late)} trained before a budget for its {plan.unit}s was reserved (O20)"
    facts = {c.name: c.budget for c in _clients(recorded) if c.budget is not None}
    over = [n for n, found in facts.items() if found.epsilon.as_float() > found.cap.as_float()]
    if over:
        yield f"the budget of {_who(over)} for single {plan.unit}s is exceeded (O20)"
    least = _reserved(recorded) * (1.0 - TOLERANCE)
    if few := [n for n, found in facts.items() if found.epsilon.as_float() < least]:
        yield f"{_who(few)} reserved less for its {plan.unit}s than the run comes to (O20)"


def _reserved(recorded: Recorded) -> float:
    """Return what the run reserves of single records at the budget's delta; see `Spending`."""
    training = recorded.case.policy.training
    if not math.isfinite(recorded.planned):  # its numbers cannot be counted with, as is said
        return 0.0
    curve = np.asarray(training_divergence(recorded.plan))
    if counted := counted_in(recorded.case.plan.items):
        curve = np.maximum(curve, counted.releases * counted_curve(counted))
    delta = training.budget.delta if training is not None else recorded.delta
    return net_epsilon(curve, delta, tails=_TAILS)[0]


def _who(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} clients, {names[0]} among them,"


def records(recorded: Recorded) -> m.Records:
    """Return the account of single records."""
    plan, spent = recorded.plan, recorded.spent(recorded.worst)
    scope: m.Scope = "covered messages" if recorded.refused() else "run"
    held = ", ".join(plan.held_out)
    noised = counted_in(recorded.case.plan.items) is not None  # they have an account of their own
    beside = "these have an epsilon of their own" if noised else "for those ε = ∞"
    left_out = f"; {held} counts validation and test {plan.unit}s: {beside}" if held else ""
    return m.Records(
        statement=f"For one training {plan.unit}: ε = {rounded_up(spent)} at "
        f"δ = {recorded.delta:g}, "
        f"against everybody outside its client; adjacency: add or remove; scope: {scope}"
        f"{left_out}",
        target=_labelled(recorded, recorded.target, scope),
        recorded=_labelled(recorded, spent, scope),
        clip=plan.clip,
        rate=plan.rate,
        noise=plan.noise,
        steps=plan.releases,
        engines=tuple(_engines(recorded, scope)),
        clients=tuple(_clients(recorded)),
    )


def _labelled(recorded: Recorded, value: float, scope: m.Scope, *more: str) -> m.Epsilon:
    plan = recorded.plan
    return m.Epsilon(
        value=rounded_up(value),
        unit=plan.unit,
        adjacency="add-remove",
        model="local",
        scope=scope,
        delta=repr(recorded.delta),
        assumptions=(
            f"the client itself is trusted with its own {plan.unit}s, nobody outside it is",
            f"Poisson batches: each training {plan.unit} with probability {plan.rate}, on its own",
            "all that a client sends of its training comes from noised gradients",
            "no credit for the choice of clients (O21)",
            *more,
        ),
    )


def _engines(recorded: Recorded, scope: m.Scope) -> Iterator[m.Engine]:
    """Yield our own arithmetic and Opacus' two, for the client that spent most."""
    own, steps = recorded.spent(recorded.worst), recorded.steps[recorded.worst]
    if not any(steps.values()):
        own, steps = (
            recorded.planned,
            Counter({(recorded.plan.rate, recorded.plan.noise): recorded.plan.releases}),
        )
    first = _labelled(recorded, own, scope, "discrete noise and the sampler's tails are counted")
    yield m.Engine(
        engine="own RDP", epsilon=first, ratio="1", differs=False, note="what is claimed"
    )
    if not 0 < own < math.inf:
        return
    history = [(float(z), float(q), count) for (q, z), count in sorted(steps.items()) if count]
    for name, value in opacus(history, recorded.delta):
        if isinstance(value, str) or not math.isfinite(value):
            why = value if isinstance(value, str) else "no number"
            yield m.Engine(engine=name, epsilon=None, ratio="", differs=False, note=why)
            continue
        apart = value > own * (1.0 + TOLERANCE)
        yield m.Engine(
            engine=name,
            epsilon=_labelled(recorded, value, scope, _CENTRAL),
            ratio=f"{value / own:.4g}",
            differs=apart,
            note="DIFFERS: ours should be the larger" if apart else "ours is no smaller",
        )


def _clients(recorded: Recorded) -> Iterator[m.RecordsOfClient]:
    scope: m.Scope = "covered messages" if recorded.refused() else "run"
    cap = recorded.case.policy.training.budget if recorded.case.policy.training else None
    for name in sorted(recorded.clients):
        entry = recorded.budget(name)
        found = budget_facts(entry, cap, recorded.plan.unit) if entry is not None and cap else None
        yield m.RecordsOfClient(
            name=name,
            rounds=len(recorded.entries(name, "training")),
            steps=sum(recorded.steps[name].values()),
            epsilon=_labelled(recorded, recorded.spent(name), scope),
            budget=found,
        )
