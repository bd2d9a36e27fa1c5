"""Records under the models of a run, for attacks A11 and A12: which ones trained them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from audits.attacks._methods.statistics import CONFIDENCE, Bound
from audits.attacks._shared.material import (
    Canaries,
    Candidates,
    Exposure,
    Material,
    Released,
    change,
)
from audits.attacks._shared.span_trials import Spans
from audits.evidence.steps import Case
from protocols.privacy.noising import noises

# --- The likelihood-ratio attack (LiRA): a record's confidence held against models trained alike
# ---
#
# Carlini et al., "Membership Inference Attacks From First Principles", IEEE S&P 2022, Algorithm 1
# with one variance for all records, which they advise for fewer than 64 shadow models. That records
# are drawn together in how far training moves them is this project's own: with four shadow models
# it raises the AUC of models trained at one site from 0.75 to 0.79 (synthetic banks).

Array = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_LEAST = 1e-6  # variance; below it models do not differ at all


def halves(count: int, shadows: int, rng: np.random.Generator) -> Bools:
    """Return which of `count` records each shadow model trains on, (shadows, count).

    Models come in pairs that train on the two halves of a random split, so each record is in half
    of all models. `shadows` is even and 4 or more, or no spread could be told.
    """
    found = np.zeros((shadows, count), dtype=bool)
    for pair in range(0, shadows, 2):
        found[pair, rng.permutation(count)[: count // 2]] = True
        found[pair + 1] = ~found[pair]
    return found


def likelihood(target: Array, shadows: Array, inside: Bools) -> Array:
    """Return log p(target | trained on) - log p(target | not trained on) for each record, (N,).

    Both are normal with one variance, about a middle of the record's own. How far training on a
    record moves its confidence is estimated from few models: the estimate of each record is drawn
    to that of all by as much as chance alone explains how they differ (James and Stein, 1961).

    The confidences of each model are brought to mean 0 and spread 1 over the records first: a
    model that is surer, or less sure, of everything than the shadow models is comparable then.

    Args:
        target: (N,), the model's confidence in each record.
        shadows: (S, N), the shadow models'.
        inside: (S, N), which records each of these trained on.
    """
    asked, known = _standard(target), np.stack([_standard(one) for one in shadows])
    means, off, spare, share = [], 0.0, 0, np.zeros(len(target))
    for there in (inside, ~inside):
        often = there.sum(axis=0)
        mean = np.where(there, known, 0.0).sum(axis=0) / often
        off += float((np.where(there, known - mean, 0.0) ** 2).sum())
        spare += int((often - 1).sum())
        share += 1.0 / often
        means.append(mean)
    variance = max(off / spare, _LEAST)
    moved, middle = means[0] - means[1], (means[0] + means[1]) / 2.0
    chance, whole = variance * float(share.mean()), float(moved.var())
    own = max(0.0, 1.0 - chance / whole) if whole > 0 else 0.0
    moved = moved.mean() + own * (moved - moved.mean())
    found: Array = moved * (asked - middle) / variance
    return found


def _standard(values: Array) -> Array:
    """Return values with mean 0 and spread 1; all 0 where they do not differ."""
    spread = float(values.std())
    found: Array = (values - values.mean()) / spread if spread > 0 else np.zeros_like(values)
    return found


# --- Scores of one site's records under models, and the models that they are held against ---

FEWEST = 4  # records on either side of a client that is asked about
_OTHERS = 3  # sites whose models are the null control

Pair = tuple[Array, Array]
"""Scores of members and of outsiders."""


class Late(Exception):
    """The time budget is used up."""


def enough(members: Bools) -> bool:
    return min(int(members.sum()), int((~members).sum())) >= FEWEST


@dataclass(frozen=True, repr=False)
class Trial:
    """One client's scores by one attack: member and outsider of each."""

    client: str
    seen: Pair
    raw: Pair
    null: Pair
    known: tuple[Pair, ...]


class Asked:
    """The models for comparison, trained once for all rows.

    Attributes:
        alone: client -> the model that its site makes of its own records.
    """

    def __init__(
        self,
        given: Released,
        clients: Sequence[str],
        shadows: int,
        rng: np.random.Generator,
        material: Material,
    ) -> None:
        self._given, self._rng, self._material = given, rng, material
        self._clients = clients
        members = {name: given.candidates[name].members for name in clients}
        self.alone = {name: self._train({name: own}) for name, own in members.items()}
        order = [clients[n] for n in rng.permutation(len(clients))]
        sides = order[: len(order) // 2], order[len(order) // 2 :]
        models = [self._elsewhere(*pair) for pair in (sides, sides[::-1])]
        self._without = {
            name: model
            for side, model in zip(sides, reversed(models), strict=True)
            for name in side
        }
        self._inside = {name: halves(len(own), shadows, rng) for name, own in members.items()}
        self._shadows = {
            name: np.stack([given.confidence(self._train({name: part}), name) for part in parts])
            for name, parts in self._inside.items()
        }

    def _elsewhere(self, side: Sequence[str], others: Sequence[str]) -> object | None:
        """Return what one half of all sites makes without records of the other; None: of none."""
        given = self._given.candidates
        known = np.concatenate([given[name].marks[given[name].members] for name in others])
        parts = {n: given[n].members & ~np.isin(given[n].marks, known) for n in side}
        return self._train(parts) if any(part.any() for part in parts.values()) else None

    def _train(self, parts: Mapping[str, Bools]) -> object:
        if self._material.late():
            raise Late
        return self._given.train(parts, int(self._rng.integers(2**62)))

    def trials(
        self, models: Mapping[str, object], hidden: Mapping[str, object] | None = None
    ) -> dict[str, list[Trial]]:
        """Return the trials of all clients by attack, ``loss`` and ``LiRA``.

        Args:
            models: client -> the model that is asked about its records.
            hidden: client -> the model that protection hides; None: what its site makes alone.
        """
        bare = self.alone if hidden is None else hidden
        found: dict[str, list[Trial]] = {"loss": [], "LiRA": []}
        for client, model in models.items():
            nulls = self._nulls(client)
            if not nulls:
                continue
            own, sure = self._given.candidates[client], self._given.confidence
            for how, made in found.items():
                seen, raw = (
                    self._pair(how, client, sure(m, client)) for m in (model, bare[client])
                )
                pairs = [self._pair(how, client, sure(m, client), kept) for m, kept in nulls]
                null = tuple(np.concatenate([p[n] for p in pairs]) for n in (0, 1))
                known = self._known(client, own)
                made.append(Trial(client, seen, raw, (null[0], null[1]), known))
        return found

    def _pair(self, how: str, client: str, sure: Array, kept: Bools | None = None) -> Pair:
        if how == "LiRA":
            sure = likelihood(sure, self._shadows[client], self._inside[client])
        return split(sure, self._given.candidates[client].members, kept)

    def _nulls(self, client: str) -> list[tuple[object, Bools]]:
        """Return other sites' models and which records those did not train on; often none."""
        own, found = self._given.candidates[client], list[tuple[object, Bools]]()
        names = [name for name in self.alone if name != client]
        for place in self._rng.permutation(len(names)):
            theirs = self._given.candidates[names[place]]
            kept = ~np.isin(own.marks, theirs.marks[theirs.members])
            if enough(own.members[kept]):
                found.append((self.alone[names[place]], kept))
        return found[:_OTHERS]

    def _known(self, client: str, own: Candidates) -> tuple[Pair, ...]:
        """Return what attackers without the model know, in both directions; a guess comes first."""
        scores, without = [np.zeros(len(own.members))], self._without[client]
        if without is not None:
            scores.append(self._given.confidence(without, client))
        scores += [sign * one for one in own.known for sign in (1.0, -1.0)]
        return tuple(split(one, own.members) for one in scores)


def split(scores: Array, members: Bools, kept: Bools | None = None) -> Pair:
    there = np.ones(len(members), dtype=bool) if kept is None else kept
    return scores[members & there], scores[~members & there]


# --- How much privacy loss one training run proves: records in and out by coin flip, and guesses
# ---
#
# Steinke, Nasr and Jagielski, "Privacy Auditing with One (1) Training Run", NeurIPS 2023
# (arXiv:2305.08846), Theorem 5.2 and Appendix D: m records are each in the data by a fair coin of
# its own; an auditor who sees the output of an (ε, δ) algorithm guesses r of the coins and v of
# them rightly. With q = e^ε / (1 + e^ε),
#
#     P[v or more] <= β + 2 m δ α,  β = P[Bin(r, q) >= v],
#     α = max over i in 1..v of P[v > Bin(r, q) >= v - i] / i.
#
# The ε at which this reaches 1 - confidence is a lower bound. Neither the algorithm nor the records
# matter; that records say little only makes the bound small. Only coins and guesses are pinned: how
# many guesses are made must not follow from the coins. Three numbers of guesses are tried, with a
# third of the error each.

SHARES = (1.0, 0.5, 0.2)
"""Of the canaries, how many are guessed: the surest on either side."""
_MOST = 60.0  # beyond it e^-ε is no probability that a run could show


def p_value(records: int, guesses: int, right: int, epsilon: float, delta: float) -> float:
    """Return the largest probability of so many right guesses under an (ε, δ) algorithm.

    Args:
        records: m, each in by a fair coin.
        guesses: r, of m.
        right: v, of r.
        epsilon: of the algorithm.
        delta: of the algorithm.

    Raises:
        ValueError: numbers that are no counts of guesses.
    """
    if not (0 <= right <= guesses <= records and epsilon >= 0 and 0 <= delta <= 1):
        raise ValueError("right guesses are among guesses, and guesses among canaries")
    chance = float(special.expit(epsilon))

    def at_least(count: npt.ArrayLike) -> Array:
        """Return P[Bin(r, q) >= count]."""
        inside = np.maximum(count, 1)
        tails = special.betainc(inside, guesses - np.minimum(inside, guesses) + 1, chance)
        return np.where(np.asarray(count) > 0, tails, 1.0)

    beta = float(at_least(right))
    steps = np.arange(1, right + 1)
    between = (at_least(right - steps) - beta) / steps
    alpha = float(between.max(initial=0.0))
    return min(beta + 2.0 * records * delta * alpha, 1.0)


def one_run_bound(
    records: int, guesses: int, right: int, delta: float, *, error: float = 1.0 - CONFIDENCE
) -> float:
    """Return the lower bound of epsilon; 0 if the guesses prove nothing.

    Args:
        records: m.
        guesses: r.
        right: v.
        delta: of the claim.
        error: with which the bound may be too high.
    """
    low, high = 0.0, _MOST
    if p_value(records, guesses, right, low, delta) >= error:
        return 0.0
    while high - low > 1e-7:
        middle = (low + high) / 2.0
        if p_value(records, guesses, right, middle, delta) < error:
            low = middle
        else:
            high = middle
    return low


def bound_of(
    scores: Sequence[Array],
    coins: Sequence[Bools],
    delta: float,
    *,
    confidence: float = CONFIDENCE,
) -> Bound:
    """Return what scores of all clients' canaries prove, and what perfect ones would have.

    Each client's surest are guessed: the highest as in, the lowest as out, equally many.

    Args:
        scores: of each client, (m,); large speaks for it having trained.
        coins: of each client, (m,), whether it did.
        delta: of the claim.
        confidence: of the bound, all numbers of guesses together.
    """
    records = sum(len(one) for one in coins)
    error = (1.0 - confidence) / len(SHARES)
    found, best = [0.0], [0.0]
    for share in SHARES:
        guessed = [_right(*one, share) for one in zip(scores, coins, strict=True)]
        guesses, right = (sum(side) for side in zip(*guessed, strict=True))
        found.append(one_run_bound(records, guesses, right, delta, error=error))
        best.append(one_run_bound(records, guesses, guesses, delta, error=error))
    return Bound(max(found), max(best), records)


def _right(scores: Array, coins: Bools, share: float) -> tuple[int, int]:
    """Return how many of a client's coins are guessed, and how many rightly."""
    side = max(math.floor(len(coins) * share / 2.0), 1)
    order = np.argsort(scores, kind="stable")
    right = int(coins[order[-side:]].sum()) + int((~coins[order[:side]]).sum())
    return 2 * side, right


# --- How A11 scores canaries by messages, and which claims a canary's coin is covered by ---


@dataclass(frozen=True, repr=False)
class CanaryTrial:
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
