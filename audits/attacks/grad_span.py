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
a feature that no member has does not move. Where several rounds were captured a second attacker
keeps them all, and ranks candidates by the mean of what the rounds say.

**What the number means.** AUC: how often a member is ranked above an outsider; 0.5 is guessing.
TPR@1%FPR: the share of members found when one outsider in a hundred is taken for a member; one
threshold for all clients. The prior is the best of several scores that need no message (length of
the vector, closeness to the mean of all candidates, its size in the model that was given out).

**Controls.** Raw: the unprotected message. Null: up to three other clients' messages, with the
victim's members; outsiders who had influence there are left out, as far as is known. Clients that
remember what they were handed (the trackers of FedGATE and APFL-GATE) say the mean of all clients'
gradients again, the victim's among them: of these the null takes what a client without memory says
to the same model. For a total, members of anybody in the round are no outsiders. Vectors that are
weighed (FED-PUB, FedEgo) are read as changes, less what their client began with; a row of them
(P21) is read by another client, less what that one began with. Under ``default`` few clients also
draw their training records anew and the total is formed again (audit replicas).

**What it cannot show.** That the graph hides anyone: nodes near a training node leave their vector
too, and are left out here. The attacker's list holds the true records and their exact features;
without such a list the attack does not apply. Where outsiders come from other clients' graphs,
part of the score is the client's subject and not the single node. With more hidden units than
features the span is everything, and only its strong half is used; the attack is weaker then.

Sources: GRAIN, ICLR 2025 (its span filter). The scaling to equal weight and the silent features are
this project's own: on Cora (10 METIS clients, SGD, totals over 5) they raise the AUC from 0.90 to
0.98.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from audits.attacks._methods.span import Pair
from audits.attacks._methods.statistics import auc, best_known, shares_above
from audits.attacks._shared.exposed import Redrawn, counted, drawn_again, noted
from audits.attacks._shared.material import Array, Exposure, Material
from audits.attacks._shared.payloads import ROUNDS, over_payloads, read_from, total
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.span_trials import Draw, Spans, Trial, kept, trials
from audits.attacks._shared.verdicts import Findings, NotApplicable, Samples, own_too

__all__ = ["ATTACK", "GradSpan"]

AFRESH = (
    "Null: clients without memory, as what they remember says the mean of all gradients again, "
    "the victim's among them"
)
FPR = 0.01
NEGATIVES = 1000
"""Outsiders, all clients together, below which a rate of 1 % is not measured."""
AUC = Rule("AUC of members against outsiders", margin=0.05, gate=0.15, chance=0.5)
TPR = Rule("TPR at 1 % FPR", margin=0.02, gate=0.15, chance=FPR)
_UNKNOWN = (
    "the model is from outside, and no matrix in the message has as many rows or columns as there "
    "are input features: which layer takes them is not known, so nobody looked"
)
_MOST = {"quick": 1000, "default": 4000}  # candidates on either side, per client and round


@dataclass(frozen=True)
class GradSpan:
    """See the head of this file."""

    id: str = "A05"
    name: str = "grad-span"
    question: str = "Was this node in a client's training data?"
    payloads: tuple[str, ...] = ("P01", "P02", "P05", "P06", "P21")
    metric: str = AUC.metric
    margin: float = AUC.margin
    gate: float = AUC.gate
    rules: tuple[Rule, ...] = (AUC, TPR)
    needs_capture: bool = True

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Attack; see `audits.attacks.Attack`."""
        layers = material.layers
        if layers is None or layers.first is None:
            if layers is not None and layers.foreign:
                return Findings((NotApplicable(_UNKNOWN, arises=True),))
            why = "no layer of the message takes the input features, so they are not in its span"
            return Findings((NotApplicable(why),))
        draw = Draw(rng, _MOST.get(profile, _MOST["quick"]))

        def rows(payload: str, there: Sequence[Exposure]) -> list[Samples | NotApplicable]:
            seen = read_from(payload, "its own message", "a total over the cohort")
            what = f"training nodes of a client, from {seen}"
            afresh = AFRESH if any(one.afresh is not None for one in there) else ""
            redrawn = material.redrawn if total(payload) else Redrawn()
            note = noted(afresh, redrawn)
            alone, together = list[list[Trial]](), list[list[Trial]]()
            for drawn in drawn_again(there, redrawn, rng):
                spans = Spans(layers)
                alone.append(trials(drawn, spans, draw))
                together.append(kept(drawn, spans, draw))
            found = own_too(alone, lambda those: _rows(payload, what, those, note))
            if together[0]:
                numbers = sorted({one.round for one in there})
                found += own_too(
                    together,
                    lambda those: _rows(payload, f"{what}, {ROUNDS}", those, note, numbers),
                )
            return found

        return over_payloads(material, rows)


def _rows(
    payload: str, what: str, drawn: Sequence[list[Trial]], note: str, rounds: Sequence[int] = ()
) -> list[Samples | NotApplicable]:
    """Return the rows of one kind of attacker.

    Args:
        payload: that he reads.
        what: which messages, in words.
        drawn: of all clients; the run's own draw first, then that of each replica.
        note: on their null control.
        rounds: that he kept; empty: each trial is of its own.
    """
    own = drawn[0]
    if not own:
        why = "members and outsiders of two clients in one round are needed"
        return [NotApplicable(why, payload, arises=True)]
    trials = counted(drawn)
    common = {
        "payload": payload,
        "units": tuple(t.client for t in trials),
        "rounds": tuple(rounds) or tuple(sorted({t.round for t in own})),
        "positives": sum(t.seen[0].size for t in own),
        "negatives": sum(t.seen[1].size for t in own),
        "note": note,
        "replicas": len(drawn) - 1,
    }
    rows: list[Samples | NotApplicable] = [_ranked(trials, what, common)]
    low = f"{what}, at one false alarm in a hundred"
    # Replicas draw from the same nodes once more, so they make no outsiders that were not there.
    fewest = min(sum(p[1].size for p in kind) for kind in _pairs(own))
    if fewest < NEGATIVES:
        why = f"too few outsiders; {NEGATIVES} are needed for a false positive rate of 1 %"
        return [*rows, NotApplicable(why, payload, low, arises=True)]
    return [*rows, _found(trials, low, common)]


def _pairs(trials: Iterable[Trial]) -> tuple[list[Pair], list[Pair], list[Pair]]:
    made = list(trials)
    return [t.raw for t in made], [t.null for t in made], [t.seen for t in made]


def _ranked(trials: Sequence[Trial], what: str, common: Mapping[str, Any]) -> Samples:
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


def _found(trials: Sequence[Trial], what: str, common: Mapping[str, Any]) -> Samples:
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
