"""How A11 scores canaries by messages, and which claims a canary's coin is covered by."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from audits.attacks._models.canaries import Canaries
from audits.attacks._shared.material import Array, Exposure, change
from audits.attacks._shared.span_trials import Spans
from audits.evidence.steps import Case
from protocols.privacy.noising import noises

__all__ = ["Loss", "Score", "Span", "Target", "Trial", "targets"]


@dataclass(frozen=True, repr=False)
class Trial:
    """One client's canaries as they are scored by its message, unprotected, and by others'."""

    client: str
    seen: Array
    raw: Array
    nulls: tuple[Array, ...]


@dataclass(frozen=True)
class Target:
    """What is claimed of a coin: epsilon and delta, of whom, and in words."""

    epsilon: float
    delta: float
    unit: str
    text: str


def targets(case: Case) -> list[Target]:
    """Return the claims of a run that one canary's coin is covered by; see the head."""
    found = []
    if (plan := case.plan.training) is not None:
        epsilon, delta = float(plan.epsilon), float(plan.delta)
        text = f"private training: epsilon {epsilon:g} at delta {delta:g} for one {plan.unit}"
        found.append(Target(epsilon, delta, plan.unit, text))
    for noise in noises(case.plan.items).values():
        epsilon, delta = float(noise.epsilon), float(noise.delta)
        text = f"noise of the run: epsilon {epsilon:g} at delta {delta:g} for one client"
        if not noise.local:
            delta = min(1.0, delta * (1.0 + math.exp(min(epsilon, 700.0))))
            epsilon *= 2.0
            text += f", so {epsilon:g} at {delta:.2g} where its vector is exchanged"
        found.append(Target(epsilon, delta, "client", text))
    return list(dict.fromkeys(found))


class Score:
    """Scores a client's canaries by what messages say."""

    def __init__(self, given: Canaries) -> None:
        self._given = given

    def summed(
        self, client: str, told: Sequence[tuple[Exposure, Mapping[str, Array]]]
    ) -> Array | None:
        """Return the scores of all rounds together, (m,); None: a round gives none.

        Args:
            client: whose canaries.
            told: of each round what was given out, and the message that is read.
        """
        found = [self.one(client, *round) for round in told]
        known = [scores for scores in found if scores is not None]
        return np.sum(known, axis=0) if known and len(known) == len(found) else None

    def one(self, client: str, given: Exposure, values: Mapping[str, Array]) -> Array | None:
        """Return the scores by one message."""
        raise NotImplementedError


class Loss(Score):
    """How much surer of a canary a model becomes by a change that was read."""

    def one(self, client: str, given: Exposure, values: Mapping[str, Array]) -> Array | None:
        """Return the gain; no change, or one of a part of a model, tells nothing."""
        before, moved = given.known.get("weights"), change(values)
        if before is None or moved is None or moved.shape != before.shape:
            return None
        models = self._given.model(before), self._given.model(before + moved)
        if models[0] is None or models[1] is None:
            return None
        sure = self._given.confidence
        found: Array = sure(models[1], client) - sure(models[0], client)
        return found


class Span(Score):
    """A05's score: how much of a canary's features lies in the span of the first layer's change."""

    def __init__(self, given: Canaries, spans: Spans) -> None:
        super().__init__(given)
        self._spans = spans

    def one(self, client: str, given: Exposure, values: Mapping[str, Array]) -> Array | None:
        """Return A05's scores of the canaries."""
        return self._spans.of(given, values).scores(self._given.features[client])
