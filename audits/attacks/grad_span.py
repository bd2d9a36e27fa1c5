"""A05, gradient span: was this node in the training data?

**Who attacks, and what he knows.** The receiver of the updates, who follows the protocol. He knows
the model he gave out and holds the feature vectors of candidates, and asks of each whether it was
trained on: a bank that knows a customer's attributes and wants to know whose customer it is.

**How.** The first layer's gradient is a sum over the nodes that took part, each adding its feature
vector times something. So the columns of the change lie in the span of these vectors, and the
share of a candidate's own vector that lies inside the span tells members from outsiders. Weight
decay, which every weight shows alike, is taken out first. Three scores are multiplied: the share
inside the span; the same after every feature was scaled to equal weight, which finds members whose
features are common, above all in totals; and how much the candidate's features moved at all, since
a feature that no member has does not move.

**What the number means.** AUC: how often a member is ranked above an outsider; 0.5 is guessing.
TPR@1%FPR: the share of members found when one outsider in a hundred is taken for a member; one
threshold for all clients. The prior is the best of several scores that need no message (length of
the vector, closeness to the mean of all candidates, its size in the model that was given out).

**Controls.** Raw: the unprotected message. Null: up to three other clients' messages, with the
victim's members; outsiders who had influence there are left out, as far as is known. For a total,
members of anybody in the round are no outsiders.

**What it cannot show.** That the graph hides anyone: nodes near a training node leave their vector
too, and are left out here. The attacker's list holds the true records and their exact features;
without such a list the attack does not apply. Where outsiders come from other clients' graphs,
part of the score is the client's subject and not the single node. With more hidden units than
features the span is everything, and only its strong half is used; the attack is weaker then.

Sources: GRAIN, ICLR 2025 (its span filter); AUDITS.md A.3, where a sum over five clients still
gave 0.999. The scaling to equal weight and the silent features are this project's own: on Cora (10
METIS clients, SGD, totals over 5) they raise the AUC from 0.90 to 0.98.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from audits.attacks._methods.span import Pair, Rows, Span, rows_of, standard
from audits.attacks._methods.statistics import auc, best_known, shares_above
from audits.attacks._shared.material import Array, Exposure, Layers, Material, change
from audits.attacks._shared.payloads import by_round, over_payloads, single
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.samples import Findings, NotApplicable, Samples

__all__ = ["ATTACK", "GradSpan"]

FPR = 0.01
NEGATIVES = 1000
"""Outsiders, all clients together, below which a rate of 1 % is not measured."""
AUC = Rule("AUC of members against outsiders", margin=0.05, gate=0.15, chance=0.5)
TPR = Rule("TPR at 1 % FPR", margin=0.02, gate=0.15, chance=FPR)
_OTHERS = 3
_ENOUGH = 30
_MOST = {"quick": 1000, "default": 4000}  # candidates on either side, per client and round


Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class GradSpan:
    """See the head of this file."""

    id: str = "A05"
    name: str = "grad-span"
    question: str = "Was this node in a client's training data?"
    payloads: tuple[str, ...] = ("P01", "P02", "P05", "P06")
    metric: str = AUC.metric
    margin: float = AUC.margin
    gate: float = AUC.gate
    rules: tuple[Rule, ...] = (AUC, TPR)
    needs_capture: bool = True

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Attack; see `audits.attacks.Attack`."""
        layers = material.layers
        if layers is None or layers.first is None:
            why = "no layer of the message takes the input features, so they are not in its span"
            return Findings((NotApplicable(why),))
        draw = _Draw(rng, _MOST.get(profile, _MOST["quick"]))
        return over_payloads(
            material, lambda payload, there: self._rows(payload, _trials(there, layers, draw))
        )

    def _rows(self, payload: str, trials: Sequence[_Trial]) -> list[Samples | NotApplicable]:
        if not trials:
            why = "members and outsiders of two clients in one round are needed"
            return [NotApplicable(why, payload, arises=True)]
        seen = "its own message" if single(payload) else "a total over the cohort"
        what = f"training nodes of a client, from {seen}"
        common = {
            "payload": payload,
            "units": tuple(t.client for t in trials),
            "rounds": tuple(sorted({t.round for t in trials})),
            "positives": sum(t.seen[0].size for t in trials),
            "negatives": sum(t.seen[1].size for t in trials),
        }
        rows: list[Samples | NotApplicable] = [_ranked(trials, what, common)]
        low = f"{what}, at one false alarm in a hundred"
        fewest = min(sum(p[1].size for p in kind) for kind in _pairs(trials))
        if fewest < NEGATIVES:
            why = f"too few outsiders; {NEGATIVES} are needed for a false positive rate of 1 %"
            return [*rows, NotApplicable(why, payload, low, arises=True)]
        return [*rows, _found(trials, low, common)]


class _Trial:
    """The scores of one client's candidates in one round, by the attack and its controls.

    Attributes:
        raw, seen, null: scores of members and outsiders.
        known: the same for attackers without the message.
    """

    def __init__(self, victim: Exposure, spans: Mapping[str, Span], seen: Span, own: _Pool) -> None:
        self.client, self.round = victim.client, victim.round
        self.raw = own.pair(spans[victim.client])
        self.seen = own.pair(seen, keep=own.nobody() if victim.cohort > 1 else None)
        nulls = [own.pair(spans[name], keep=own.strangers(name)) for name in own.others]
        self.null = (np.concatenate([n[0] for n in nulls]), np.concatenate([n[1] for n in nulls]))
        self.known = own.known()

    @property
    def whole(self) -> bool:
        """Tell whether there are members and outsiders on every side."""
        return all(side.size for pair in (self.raw, self.seen, self.null) for side in pair)


class _Pool:
    """The candidates of one client in one round: its members, and outsiders.

    Attributes:
        others: clients whose messages the null control takes.
    """

    def __init__(
        self, victim: Exposure, round: Mapping[str, Exposure], given: Array, draw: _Draw
    ) -> None:
        self.members = draw.some(victim.truth.members)
        self._outsiders = draw.some(victim.truth.outsiders)
        self._given, self._round = given, round
        self.others = draw.names([name for name in round if name != victim.client])
        self._keys = [row.tobytes() for row in self._outsiders]

    def strangers(self, name: str) -> Bools:
        """Tell which outsiders had no influence on another client's message either.

        Where both clients' lists share rows, as with one pool for all, these are known; otherwise
        all that are no members there.
        """
        other = self._round[name].truth
        shared = self._among(other.outsiders)
        return shared if shared.sum() >= _ENOUGH else ~self._among(other.members)

    def nobody(self) -> Bools:
        """Tell which outsiders are no members of anybody in the round."""
        members = [self._among(v.truth.members) for v in self._round.values()]
        free: Bools = ~np.any(np.array(members), axis=0)
        return free

    def _among(self, rows: Rows | None) -> Bools:
        there = rows_of(rows)
        return np.array([key in there for key in self._keys], dtype=bool)

    def pair(self, span: Span, keep: Bools | None = None) -> Pair:
        """Return scores of members and outsiders, standardised over both.

        Args:
            span: of a message.
            keep: which outsiders to take; None: all.
        """
        outsiders = self._outsiders if keep is None else self._outsiders[keep]
        return standard(span.scores(self.members), span.scores(outsiders))

    def known(self) -> list[Pair]:
        """Return the scores of attackers without the message, each the other way round too."""
        pool = np.concatenate([self.members, self._outsiders])
        length = np.linalg.norm(pool, axis=1)
        safe, centre = np.where(length > 0, length, 1.0), pool.mean(axis=0)
        told = (length, pool @ centre / safe, np.linalg.norm(pool @ self._given, axis=1) / safe)
        cut = len(self.members)
        pairs = [standard(sign * s[:cut], sign * s[cut:]) for s in told for sign in (1.0, -1.0)]
        return [(np.zeros(cut), np.zeros(len(pool) - cut)), *pairs]


@dataclass(frozen=True)
class _Draw:
    """Draws candidates and other clients."""

    rng: np.random.Generator
    most: int

    def some(self, rows: Rows | None) -> Rows:
        """Return at most so many rows, float32, in their order."""
        found = np.ascontiguousarray(rows, dtype=np.float32)
        if len(found) <= self.most:
            return found
        return found[np.sort(self.rng.permutation(len(found))[: self.most])]

    def names(self, names: Sequence[str]) -> list[str]:
        """Return a few of some names."""
        return [names[n] for n in self.rng.permutation(len(names))[:_OTHERS]]


def _trials(exposures: Sequence[Exposure], layers: Layers, draw: _Draw) -> list[_Trial]:
    """Return the trials of all clients of which members and outsiders are known, by round."""
    made = list[_Trial]()
    for victims in by_round(exposures, _listed):
        made += _round({one.client: one for one in victims}, layers, draw)
    return [trial for trial in made if trial.whole]


def _listed(victim: Exposure) -> bool:
    return bool(rows_of(victim.truth.members) and rows_of(victim.truth.outsiders))


def _round(victims: Mapping[str, Exposure], layers: Layers, draw: _Draw) -> list[_Trial]:
    spans = {name: _span(v, v.raw, layers) for name, v in victims.items()}
    totals: dict[int, Span] = {}  # clients that share a total share the work on it
    made = []
    for victim in victims.values():
        pool = _Pool(victim, victims, _first(layers, victim.known["weights"]), draw)
        seen = id(victim.seen)
        if seen not in totals:
            totals[seen] = _span(victim, victim.seen or {}, layers)
        made.append(_Trial(victim, spans, totals[seen], pool))
    return made


def _first(layers: Layers, vector: Array) -> Array:
    if layers.first is None:  # asked for before; said once more for the type checker
        raise ValueError("the message holds no layer that takes the input features")
    return layers.part(vector, layers.first)


def _span(victim: Exposure, values: Mapping[str, Array], layers: Layers) -> Span:
    """Return the span of a message; of one that says no change, one that tells nothing."""
    given = _first(layers, victim.known["weights"])
    moved = change(values)
    now = np.zeros_like(given) if moved is None else _first(layers, moved)
    return Span(now, given, optimiser=victim.optimiser)


def _pairs(trials: Iterable[_Trial]) -> tuple[list[Pair], list[Pair], list[Pair]]:
    made = list(trials)
    return [t.raw for t in made], [t.null for t in made], [t.seen for t in made]


def _ranked(trials: Sequence[_Trial], what: str, common: Mapping[str, Any]) -> Samples:
    raw, null, seen = ([auc(*pair) for pair in kind] for kind in _pairs(trials))
    known = np.array([[auc(*pair) for pair in t.known] for t in trials]).T
    return Samples(
        what=what,
        prior=best_known(known, common["units"], guess=0),
        raw=np.array(raw),
        null=np.array(null),
        protected=np.array(seen),
        **AUC.given(),
        **common,
    )


def _found(trials: Sequence[_Trial], what: str, common: Mapping[str, Any]) -> Samples:
    raw, null, seen = (_shares(kind) for kind in _pairs(trials))
    known = np.array([_shares(kind) for kind in zip(*(t.known for t in trials), strict=True)])
    return Samples(
        what=what,
        prior=best_known(known, common["units"], guess=0),
        raw=raw,
        null=null,
        protected=seen,
        **TPR.given(),
        **common,
    )


def _shares(pairs: Sequence[Pair]) -> Array:
    outsiders = np.concatenate([pair[1] for pair in pairs])
    return shares_above([pair[0] for pair in pairs], outsiders, FPR)


ATTACK = GradSpan()
