"""A04, label counts: which classes does a client hold, and how many records of each?

**Who attacks, and what he knows.** The receiver of the updates, who follows the protocol and looks
closely at what he is sent anyway. He knows the model he gave out, the step size and the number of
steps, and how classes are shared out among all *other* clients together. He knows no record.

**How.** While a model learns, its last layer moves towards the classes that are in the data and
away from those that are not. For plain gradient steps the sum over the layer gives the class counts
almost exactly: with p the model's mean prediction, h the client's class shares and g the gradient
of the last bias, g = p - h. What the client's mean activation is, and so p, follows from the ratio
of the weights' to the bias's gradient. For AdamW, whose steps are nearly signs, only the direction
for each class is left; it tilts the class shares of everyone else. How much the message is trusted
follows from the message: plain gradients of this layer sum to zero over the classes, so whatever
they sum to is noise.

**What the number means.** Overlap: how much of the client's class mix the attacker has right, 1 for
all of it. The prior is the best guess without the message (the class shares of all others, pooled
or client by client, or equal shares). A second question is asked where clients lack classes: are
the classes that a client holds ranked above those it lacks?

**Controls.** Raw: the same on the unprotected message. Null: the same on other clients' messages.
An estimate from another client's message may be worse than a guess, since clients differ; that is
no sign of bias. Overlap is concave, so on average over the other clients it cannot be better than
guessing from their mean: a null above the prior is what shows a bias.

**What it cannot show.** Several local steps with large step sizes wash the counts out; the attack
is then called weak and proves nothing. Where all clients but one collude, they can subtract their
own data from a total; that is question A09, not this one. An attacker who learns from many such
messages with known counts may do better than a formula.

Sources: LLG, Wainakh et al., PoPETs 2022 (arXiv 2105.09369); iLRG, Ma et al., ICLR 2023
(instance-wise batch label restoration); AUDITS.md A.3. The tilt for AdamW is this project's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax

from audits.attacks._methods.statistics import auc, best_known
from audits.attacks._shared.material import Array, Exposure, Layers, Material, change
from audits.attacks._shared.payloads import by_round, over_payloads, single
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.samples import Findings, NotApplicable, Samples

MIX = Rule("overlap with the client's class mix", margin=0.05, gate=0.15, null_side="above")
HELD = Rule(
    "AUC of classes held against classes lacked",
    margin=0.05,
    gate=0.15,
    chance=0.5,
    null_side="above",
)

__all__ = ["ATTACK", "LabelCount", "Last", "estimate", "overlap"]

_TILT = 3.0
"""How much a class whose every weight rose for the whole round gains in log-odds over one that
stood still. On Cora (10 METIS clients, AdamW, rounds 1 and 4) 3 and 5 overlap alike within 0.03."""
_FLOOR = 1e-3  # share of a class that no other client holds; it may still exist here
_SPREAD = 0.02  # variance of a class share among clients, against which noise is weighed
_OTHERS = {"quick": 4, "default": 16}  # clients whose messages the null control averages over
_PLAIN = 0.3  # of what independent entries would sum to; plain gradients are below, signs above


def overlap(one: Array, other: Array) -> float:
    """Return 1 minus the total variation distance of two class mixes (shares that sum to 1)."""
    return float(1.0 - np.abs(one - other).sum() / 2.0)


@dataclass(frozen=True, repr=False)
class Last:
    """The last layer and its change in one round.

    Attributes:
        weight, moved_weight: (hidden, classes).
        bias, moved_bias: (classes,).
    """

    weight: Array
    bias: Array
    moved_weight: Array
    moved_bias: Array

    @classmethod
    def of(cls, layers: Layers, known: Array, moved: Array) -> Last | None:
        """Return the last layer of flat vectors (d,); None if the message holds none.

        Raises:
            ValueError: the layout is another model's.
        """
        if layers.last_weight is None or layers.last_bias is None:
            return None
        places = (layers.last_weight, layers.last_bias)
        weight, bias = (layers.part(known, place) for place in places)
        moved_weight, moved_bias = (layers.part(moved, place) for place in places)
        if weight.shape[1:] != bias.shape:
            raise ValueError("the last layer's weight is not (hidden, classes)")
        return cls(weight, bias, moved_weight, moved_bias)


def estimate(last: Last, prior: Array, *, lr: float, steps: int, optimiser: str) -> Array:
    """Return the attacker's estimate of a client's class shares, (C,).

    Args:
        last: the last layer's change.
        prior: class shares of everyone else, (C,).
        lr: step size.
        steps: gradient steps in the round.
        optimiser: ``sgd``, ``adamw``, ``adam``, or empty: told from the message.
    """
    reach = lr * max(steps, 1)
    if not (optimiser == "sgd" or (not optimiser and _plain(last.moved_weight))):
        return _tilted(last, prior, reach)
    gradient = last.moved_bias / reach  # h - p, averaged over the steps
    square = float(gradient @ gradient)
    if square == 0.0:
        return prior
    activation = np.maximum(last.moved_weight @ last.moved_bias / (reach**2 * square), 0.0)
    halfway = last.weight + last.moved_weight / 2, last.bias + last.moved_bias / 2
    predicted = softmax(activation @ halfway[0] + halfway[1])
    found = _shares(predicted + gradient)
    noise = float(np.mean(last.moved_weight.sum(axis=1) ** 2)) / gradient.size / reach**2
    trust = _SPREAD / (_SPREAD + noise)
    return trust * found + (1.0 - trust) * prior


def _tilted(last: Last, prior: Array, reach: float) -> Array:
    """Return the prior, tilted towards the classes whose weights rose in most hidden units."""
    direction = last.moved_weight / reach  # an AdamW step moves an entry by about lr
    excess = max(float(np.mean(direction**2)) - 1.0, 0.0)  # so more than that is noise
    trust = _SPREAD / (_SPREAD + excess / direction.shape[0])
    tilted: Array = softmax(np.log(prior + _FLOOR) + trust * _TILT * direction.mean(axis=0))
    return tilted


def _plain(moved: Array) -> bool:
    """Tell whether changes sum to zero over the classes, as plain gradients of a softmax do."""
    size = float(np.mean(moved**2)) * moved.shape[1]
    return bool(float(np.mean(moved.sum(axis=1) ** 2)) < _PLAIN**2 * size)


def _shares(found: Array) -> Array:
    """Return the nearest class mix (Duchi et al., ICML 2008, figure 1)."""
    falling = np.sort(found)[::-1]
    over = (np.cumsum(falling) - 1.0) / np.arange(1, found.size + 1)
    cut = over[np.flatnonzero(falling > over)[-1]]
    projected: Array = np.maximum(found - cut, 0.0)
    return projected


class _Round:
    """The clients of one round, as the attacker of each of them sees the others.

    Raises:
        ValueError: a vector is another model's.
    """

    def __init__(self, victims: Sequence[Exposure], layers: Layers) -> None:
        self.victims, self._layers = victims, layers
        self.truth = np.array([_mix(v) for v in victims])
        self._counts = np.array([v.truth.labels for v in victims], dtype=np.float64)

    def pooled(self, place: int) -> Array:
        """Return the class shares of all other clients together."""
        others = np.delete(self._counts, place, axis=0).sum(axis=0)
        return np.asarray(others / others.sum(), dtype=np.float64)

    def guesses(self, place: int) -> list[Array]:
        """Return the class mixes that are guessed without a message."""
        mean = np.delete(self.truth, place, axis=0).mean(axis=0)
        classes = self.truth.shape[1]
        return [self.pooled(place), mean, np.full(classes, 1.0 / classes)]

    def read(self, place: int, moved: Array | None) -> Array:
        """Return what the attacker of one client makes of a change of the model."""
        victim, prior = self.victims[place], self.pooled(place)
        last = None if moved is None else Last.of(self._layers, victim.known["weights"], moved)
        if last is None:
            return prior
        return estimate(last, prior, lr=victim.lr, steps=victim.steps, optimiser=victim.optimiser)


def _mix(victim: Exposure) -> Array:
    labels = np.asarray(victim.truth.labels, dtype=np.float64)
    return np.asarray(labels / labels.sum(), dtype=np.float64)


Score = Callable[[Array, Array], float]


@dataclass(frozen=True)
class LabelCount:
    """See the head of this file."""

    id: str = "A04"
    name: str = "label-count"
    question: str = "Which classes, and how many of each, does a client hold?"
    payloads: tuple[str, ...] = ("P01", "P02", "P05", "P06")
    metric: str = MIX.metric
    margin: float = MIX.margin
    gate: float = MIX.gate
    rules: tuple[Rule, ...] = (MIX, HELD)
    needs_capture: bool = True

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Attack; see `audits.attacks.Attack`."""
        layers = material.layers
        if layers is None or layers.last_weight is None or layers.last_bias is None:
            why = "no last layer with one output a class is in the message, so it says no counts"
            return Findings((NotApplicable(why),))
        others = _OTHERS.get(profile, _OTHERS["quick"])
        return over_payloads(
            material, lambda payload, there: self._rows(payload, there, layers, rng, others)
        )

    def _rows(
        self,
        payload: str,
        exposures: Sequence[Exposure],
        layers: Layers,
        rng: np.random.Generator,
        others: int,
    ) -> list[Samples | NotApplicable]:
        rounds = [_Round(victims, layers) for victims in by_round(exposures, _counted)]
        if not rounds:
            why = "class counts of two clients in one round are needed, the victim's and another's"
            return [NotApplicable(why, payload, arises=True)]
        seen = "their own message" if single(payload) else "a total over the cohort"
        counted = [_Trial(r, place, rng, others) for r in rounds for place in range(len(r.victims))]
        rows: list[Samples | NotApplicable] = [
            _samples(counted, overlap, payload, f"class mix of single clients, from {seen}", MIX)
        ]
        lacking = [t for t in counted if 0 < np.count_nonzero(t.truth) < t.truth.size]
        what = f"which classes single clients hold, from {seen}"
        if len({t.client for t in lacking}) < 2:
            why = "fewer than two clients lack any class, so there is nothing to tell apart"
            return [*rows, NotApplicable(why, payload, what, arises=True)]
        return [*rows, _samples(lacking, _ranked, payload, what, HELD)]


def _counted(victim: Exposure) -> bool:
    return victim.truth.labels is not None and bool(np.sum(victim.truth.labels) > 0)


class _Trial:
    """All estimates about one client in one round."""

    def __init__(self, there: _Round, place: int, rng: np.random.Generator, others: int) -> None:
        victim = there.victims[place]
        self.client, self.round = victim.client, victim.round
        self.truth, self.guesses = there.truth[place], there.guesses(place)
        self.raw = there.read(place, change(victim.raw))
        self.seen = there.read(place, change(victim.seen or {}))
        rest = np.delete(np.arange(len(there.victims)), place)
        drawn = rng.permutation(rest)[:others]
        self.null = [there.read(place, change(there.victims[j].raw)) for j in drawn]
        self.records = int(np.sum(victim.truth.labels)) if victim.truth.labels is not None else 0


def _ranked(found: Array, truth: Array) -> float:
    return auc(found[truth > 0], found[truth == 0])


def _samples(
    trials: Sequence[_Trial],
    score: Score,
    payload: str,
    what: str,
    rule: Rule,
) -> Samples:
    units = tuple(t.client for t in trials)
    guesses = np.array([[score(g, t.truth) for g in t.guesses] for t in trials]).T
    equal = float(guesses[-1].mean())
    return Samples(
        payload=payload,
        what=what,
        units=units,
        **{"chance": equal, **rule.given()},
        prior=best_known(guesses, units, guess=-1),
        raw=np.array([score(t.raw, t.truth) for t in trials]),
        null=np.array([np.mean([score(found, t.truth) for found in t.null]) for t in trials]),
        protected=np.array([score(t.seen, t.truth) for t in trials]),
        rounds=tuple(sorted({t.round for t in trials})),
        positives=sum(t.records for t in trials),
    )


ATTACK = LabelCount()
