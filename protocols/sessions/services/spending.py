"""A client's privacy budget and its private training: reserved, allowed and checked (O20)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from protocols.errors import LocalProtocolError
from protocols.forms import Exchange
from protocols.plan.plan import Plan
from protocols.policy.budget import Unit, budget_key
from protocols.privacy.noising import run_divergence
from protocols.privacy.own_words import check_covered
from protocols.privacy.private_steps import check_training
from protocols.privacy.record_noise import counted_curve, counted_in
from protocols.privacy.training import training_divergence
from protocols.sessions.part import Engine, SessionPart
from protocols.wire.where import Where


def planned_spending(plan: Plan) -> Iterator[tuple[Unit, tuple[float, ...]]]:
    """Yield what a whole run spends of a client's budgets: the unit, and the Rényi curve."""
    if any(item.noise is not None for item in plan.items):
        yield "client", run_divergence(plan)
    if (rows := counted_in(plan.items, "node")) is not None:
        spent = tuple(float(value) for value in rows.releases * counted_curve(rows))
        yield "node", spent
    if plan.training is not None:
        curve = training_divergence(plan.training)
        if counted := counted_in(plan.items):
            # A graph trains or is scored, as the split has it: one of the two is spent on it.
            both = np.maximum(curve, counted.releases * counted_curve(counted))
            curve = tuple(float(value) for value in both)
        yield plan.training.unit, curve


class Spending(SessionPart):
    """Takes a run's spending from the site's budget, and opens its gradients round by round."""

    lasting = frozenset({"_trained"})

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._trained = (0, 0)  # rounds whose training was private, and the last of them

    def begin(self) -> None:
        """Reserve the whole run's spending before any noise is drawn (O20)."""
        context = self._context
        check_covered(context.plan.items, context.policy)
        check_training(context.plan, context.policy)
        planned = context.plan.training
        if planned is not None and (context.training is None or context.training.plan != planned):
            raise LocalProtocolError("This client has nothing to draw private batches with.")
        for unit, curve in planned_spending(context.plan):
            self._reserve(unit, curve)

    def _reserve(self, unit: Unit, rdp: Sequence[float]) -> None:
        """Take the whole run's spending from the site's budget before any noise is drawn (O20)."""
        context = self._context
        cap = context.policy.budgets.get(unit)
        if context.reserve is None or cap is None:
            raise LocalProtocolError("This client has no privacy budget to draw noise from.")
        key = budget_key(context.plan.data.name, unit)
        facts = context.reserve(dataset=key, run=context.run, rdp=rdp, cap=cap)
        self._engine.record("budget", facts if unit == "client" else {**facts, "unit": unit})

    def open_training(self, exchange: Exchange, where: Where) -> None:
        """Allow a round's noised gradients, once, and put that into the ledger.

        The entry is durable before anything computed from these gradients leaves, like any other.
        """
        training, (rounds, latest) = self._context.training, self._trained
        if training is None or not exchange.per_round or where.round == latest:
            return
        training.open(where.round, rounds)
        self._trained = (rounds + 1, where.round)
        self._engine.record("training", training.facts(where.round))

    def check_trained(self, exchange: Exchange) -> None:
        """Refuse an answer that should come from noised gradients if none was taken."""
        training = self._context.training
        learnt = exchange.per_round and not set(exchange.back) <= set(exchange.held_out)
        if training is not None and learnt and not training.taken:
            raise LocalProtocolError(
                f"Training in {exchange.name!r} took no noised gradient; nothing was sent."
            )
