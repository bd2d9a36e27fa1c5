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
they sum to is noise. Where several rounds were captured a second attacker keeps them all, and lets
each round count by how little noise it shows.

**What the number means.** Overlap: how much of the client's class mix the attacker has right, 1 for
all of it. The prior is the best guess without the message (the class shares of all others, pooled
or client by client, or equal shares). A second question is asked where clients lack classes: are
the classes that a client holds ranked above those it lacks? Where the prior is above 0.8 the
overlap has little room, and the share of the prior's error that is removed is asked besides.

**Controls.** Raw: the same on the unprotected message. Null: the same on other clients' messages.
An estimate from another client's message may be worse than a guess, since clients differ; that is
no sign of bias. Overlap is concave, so on average over the other clients it cannot be better than
guessing from their mean: a null above the prior is what shows a bias. Vectors that are weighed are
read as A05 reads them, in clear or in another client's row.

Under ``default`` few clients also draw their training records anew, and the total is formed again
(audit replicas).

**What it cannot show.** Several local steps with large step sizes wash the counts out; the attack
is then called weak and proves nothing. Where all clients but one collude, they can subtract their
own data from a total; that is question A09, not this one. An attacker who learns from many such
messages with known counts may do better than a formula.

Sources: LLG, Wainakh et al., PoPETs 2022 (arXiv 2105.09369); iLRG, Ma et al., ICLR 2023
(instance-wise batch label restoration). The tilt for AdamW is this project's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np

from audits.attacks._methods.statistics import auc, best_known
from audits.attacks._shared.exposed import Redrawn, counted, drawn_again, noted
from audits.attacks._shared.label_mix import Estimate, Last, estimate, together
from audits.attacks._shared.material import Array, Exposure, Layers, Material, change
from audits.attacks._shared.payloads import ROUNDS, by_round, over_payloads, read_from, total
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.together import fits, skill
from audits.attacks._shared.verdicts import Findings, NotApplicable, Samples, own_too

_UNKNOWN = (
    "the model is from outside, and no matrix and bias in the message have one output a class: "
    "which layer is the last is not known, so nobody looked"
)
MIX = Rule("overlap with the client's class mix", margin=0.05, gate=0.15, null_side="above")
HELD = Rule(
    "AUC of classes held against classes lacked",
    margin=0.05,
    gate=0.15,
    chance=0.5,
    null_side="above",
)
SKILL = Rule("share of the prior's error that is removed", margin=0.1, gate=0.3, null_side="above")
_FULL = 0.8  # of the prior, above which the overlap has too little room to tell

__all__ = ["ATTACK", "LabelCount", "Last", "estimate", "overlap"]

_OTHERS = {"quick": 4, "default": 16}  # clients whose messages the null control averages over


def overlap(one: Array, other: Array) -> float:
    """Return 1 minus the total variation distance of two class mixes (shares that sum to 1)."""
    return float(1.0 - np.abs(one - other).sum() / 2.0)


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

    def read(self, place: int, moved: Array | None) -> Estimate:
        """Return what the attacker of one client makes of a change of the model."""
        victim, prior = self.victims[place], self.pooled(place)
        last = None if moved is None else Last.of(self._layers, victim.known["weights"], moved)
        if last is None:
            return Estimate(prior, prior, 0.0)
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
    payloads: tuple[str, ...] = ("P01", "P02", "P05", "P06", "P21")
    metric: str = MIX.metric
    margin: float = MIX.margin
    gate: float = MIX.gate
    rules: tuple[Rule, ...] = (MIX, HELD, SKILL)
    needs_capture: bool = True

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Attack; see `audits.attacks.Attack`."""
        layers = material.layers
        if layers is None or layers.last_weight is None or layers.last_bias is None:
            if layers is not None and layers.foreign:
                return Findings((NotApplicable(_UNKNOWN, arises=True),))
            why = "no last layer with one output a class is in the message, so it says no counts"
            return Findings((NotApplicable(why),))
        others = _OTHERS.get(profile, _OTHERS["quick"])
        drawn = _Drawn(rng, others)
        return over_payloads(
            material,
            lambda payload, there: _asked(
                payload, there, layers, drawn, material.redrawn if total(payload) else Redrawn()
            ),
        )


def _asked(
    payload: str,
    exposures: Sequence[Exposure],
    layers: Layers,
    others: _Drawn,
    redrawn: Redrawn,
) -> list[Samples | NotApplicable]:
    """Return the rows of one payload, of who keeps one round and of who keeps all."""
    alone, together = list[list[_Trial]](), list[list[_Trial]]()
    for there in drawn_again(exposures, redrawn, others.rng):
        rounds = [_Round(victims, layers) for victims in by_round(there, _counted)]
        alone.append([_Trial(r, place, others) for r in rounds for place in range(len(r.victims))])
        together.append(_kept(alone[-1]))
    if not alone[0]:
        why = "class counts of two clients in one round are needed, the victim's and another's"
        return [NotApplicable(why, payload, arises=True)]
    seen = read_from(payload, "their own message", "a total over the cohort")
    note = noted("", redrawn)
    rows = own_too(alone, lambda d: _rows(d, payload, seen, note))
    if together[0]:
        rows += own_too(together, lambda d: _rows(d, payload, f"{seen}, {ROUNDS}", note))
    return rows


def _rows(
    drawn: Sequence[list[_Trial]], payload: str, seen: str, note: str
) -> list[Samples | NotApplicable]:
    """Return both questions about one kind of attacker.

    Args:
        drawn: trials of all clients; the run's own draw first, then that of each replica.
        payload: that he reads.
        seen: what of it, in words.
        note: on replicas.
    """
    rows = _mixes(
        _samples(drawn, overlap, payload, f"class mix of single clients, from {seen}", MIX, note)
    )
    lacking = [[t for t in those if _lacks(t.truth)] for those in drawn]
    what = f"which classes single clients hold, from {seen}"
    if len({t.client for t in lacking[0]}) < 2:
        why = "fewer than two clients lack any class, so there is nothing to tell apart"
        return [*rows, NotApplicable(why, payload, what, arises=True)]
    return [*rows, _samples(lacking, _ranked, payload, what, HELD, note)]


def _lacks(truth: Array) -> bool:
    return bool(0 < np.count_nonzero(truth) < truth.size)


def _mixes(found: Samples) -> list[Samples | NotApplicable]:
    """Return the overlap, and beside a prior that leaves it little room its skill score."""
    room = 1.0 - float(found.prior.mean())
    if room >= 1.0 - _FULL:
        return [found]
    return [fits(found, room, MIX), skill(found, room, SKILL)]


def _counted(victim: Exposure) -> bool:
    return victim.truth.labels is not None and bool(np.sum(victim.truth.labels) > 0)


class _Drawn:
    """Draws for each client whose messages are its null control: the same in every round."""

    def __init__(self, rng: np.random.Generator, others: int) -> None:
        self.rng, self._others = rng, others
        self._order: dict[str, list[str]] = {}

    def places(self, there: _Round, place: int) -> list[int]:
        """Return the places of a few other clients of a round."""
        names = [victim.client for victim in there.victims]
        if names[place] not in self._order:
            rest = np.delete(np.arange(len(names)), place)
            self._order[names[place]] = [names[j] for j in self.rng.permutation(rest)]
        order = self._order[names[place]]
        others = [name for name in order if name in names]
        others += [n for n in names if n != names[place] and n not in order]
        return [names.index(name) for name in others[: self._others]]


class _Trial:
    """All estimates about one client, of one round or several."""

    def __init__(self, there: _Round, place: int, drawn: _Drawn) -> None:
        victim = there.victims[place]
        self.client = victim.client
        self.rounds: tuple[int, ...] = (victim.round,)
        self.truth, self.guesses = there.truth[place], there.guesses(place)
        self.raw = [there.read(place, change(victim.raw))]
        self.seen = [there.read(place, change(victim.seen or {}))]
        others = {there.victims[j].client: there.victims[j] for j in drawn.places(there, place)}
        self.null = {name: [there.read(place, change(o.raw))] for name, o in others.items()}
        self.records = int(np.sum(victim.truth.labels)) if victim.truth.labels is not None else 0


def _kept(trials: Sequence[_Trial]) -> list[_Trial]:
    """Return a trial a client, of who keeps its messages of all rounds.

    Clients with one round alone are left out: of them he knows no more than from that round.
    """
    found: dict[str, list[_Trial]] = {}
    for trial in trials:
        found.setdefault(trial.client, []).append(trial)
    made = []
    for those in found.values():
        names = [n for n in those[0].null if all(n in trial.null for trial in those)]
        if len(those) < 2 or not names:
            continue
        one = copy(those[0])
        one.rounds = tuple(sorted({n for trial in those for n in trial.rounds}))
        one.raw, one.seen = [t.raw[0] for t in those], [t.seen[0] for t in those]
        one.guesses = list(np.mean([t.guesses for t in those], axis=0))
        one.null = {name: [trial.null[name][0] for trial in those] for name in names}
        made.append(one)
    return made if len(made) > 1 else []


def _ranked(found: Array, truth: Array) -> float:
    return auc(found[truth > 0], found[truth == 0])


def _samples(
    drawn: Sequence[list[_Trial]],
    score: Score,
    payload: str,
    what: str,
    rule: Rule,
    note: str,
) -> Samples:
    trials, own = counted(drawn), drawn[0]
    units = tuple(t.client for t in trials)
    guesses = np.array([[score(g, t.truth) for g in t.guesses] for t in trials]).T
    equal = float(guesses[-1].mean())
    null = [np.mean([score(together(f), t.truth) for f in t.null.values()]) for t in trials]
    return Samples(
        payload=payload,
        what=what,
        units=units,
        **{"chance": equal, **rule.given()},
        prior=best_known(guesses, units, guess=-1),
        raw=np.array([score(together(t.raw), t.truth) for t in trials]),
        null=np.array(null),
        protected=np.array([score(together(t.seen), t.truth) for t in trials]),
        rounds=tuple(sorted({n for t in own for n in t.rounds})),
        positives=sum(t.records for t in own),
        replicas=len(drawn) - 1,
        note=note,
    )


ATTACK = LabelCount()
