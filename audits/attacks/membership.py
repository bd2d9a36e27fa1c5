"""A12, membership: was this record used to train the released model?

**Who attacks, and what he knows.** Whoever gets a model that a run hands out: the model that all
clients share, after the last round and at its best, or one client's own model, which its site may
give away. He asks it about a record of which he has everything: features, the records around it
and the true answer. He has data like the site's, and the run's public settings, with which he
trains models for comparison.

**How.** Two scores. Loss: the surer the model is of the true answer, the likelier it trained on the
record. LiRA: the model's confidence is held against that of shadow models, half of which trained on
the record and half did not. Shadow models are trained by the run's model and local training, from
its public start and for as many rounds, on random halves of the site's own records and nobody
else's.

**What the truth is.** The site's own: members are its training records, outsiders those that it
held out, for validation or test. What any client trained on is no outsider. The shared model is
given to all, and each client asks it about its own records.

**What the number means.** AUC: how often a member is ranked above an outsider; 0.5 is guessing.
TPR at 1 % FPR: the share of members found when one outsider in a hundred is taken for a member; one
threshold for all clients.

**Controls.** Prior: the best of who knows the record's degree, the share of its class, its distance
to the mean, or has a model that other clients trained without this site. Raw: the same attack on
the model that the site makes of its records alone, without anybody's records or noise beside them.
Null: models that up to three other sites make of theirs, asked about this site's records; records
that those sites trained on are left out. Only a null above chance is a sign of bias.

Where neighbours mix models, the mean that a client reads, less its own part, is asked about one of
those in it; raw is then the model that this one gave.

**What it cannot show.** No epsilon follows from these scores. In a node task members and outsiders
are not exchangeable: the neighbours of a training node took part in training, outsiders among
them. A PASS is about these two attacks, few shadow models and an attacker who asks once; one who
knows all other clients' records, or watched the rounds (A05), can do better. Algorithms that train
in another way than by steps along their records' loss are held against shadow models that do not.

Sources: Yeom et al., CSF 2018 (loss); Carlini et al., IEEE S&P 2022 (LiRA); Khosla,
arXiv:2601.17130, for exchangeability. The prior by a model without the site is this project's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from audits.attacks._methods.statistics import auc, best_known, shares_above
from audits.attacks._shared.material import UNTAKEN, Array, Material, Released
from audits.attacks._shared.payloads import sent
from audits.attacks._shared.records_asked import FEWEST, Asked, Late, Pair, Trial, enough
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.verdicts import Findings, NotApplicable, Samples

__all__ = ["ATTACK", "Membership"]

FPR = 0.01
NEGATIVES = 1000
"""Outsiders, all clients together, below which a rate of 1 % is not measured."""
AUC = Rule("AUC of members against outsiders", 0.05, 0.15, chance=0.5, null_side="above")
TPR = Rule("TPR at 1 % FPR", 0.02, 0.05, chance=FPR, null_side="above")
SHADOWS = {"quick": 4, "default": 16}
_CLIENTS = {"quick": 20, "default": 60}  # that are looked at, drawn at random
_MODEL = "P19"
_MEAN = "P21"
_OF_MEAN = "the mean of its neighbours' models"
_UNREAD = "no captured round holds the models of all neighbours of two clients"
_LATE = "the time budget was used up while models were trained for comparison"
_NOTES = {
    "node": "Nodes of one graph are not exchangeable, as their neighbours trained too; no epsilon "
    "follows from this score",
}
_NOTE = "No epsilon follows from this score"


@dataclass(frozen=True)
class Membership:
    """See the head of this file."""

    id: str = "A12"
    name: str = "mia-lira"
    question: str = "Was this record used to train the released model?"
    payloads: tuple[str, ...] = (_MODEL, _MEAN)
    metric: str = AUC.metric
    margin: float = AUC.margin
    gate: float = AUC.gate
    rules: tuple[Rule, ...] = (AUC, TPR)
    needs_capture: bool = False

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Train models for comparison, and ask; see `audits.attacks.Attack`."""
        given = material.released
        if given is None:
            out = _MODEL in sent(material.case.plan, material.case.policy)
            why = material.unreleased or "no model of this run could be looked at"
            return Findings((NotApplicable(why, arises=out),))
        try:
            return Findings(tuple(_rows(given, material, rng, profile)))
        except Late:
            return Findings((NotApplicable(_LATE, _MODEL, arises=True),))
        except ArithmeticError:
            why = "training models for comparison diverged"
            return Findings((NotApplicable(why, _MODEL, arises=True),))


def _rows(
    given: Released, material: Material, rng: np.random.Generator, profile: str
) -> Iterator[Samples | NotApplicable]:
    """Yield the rows on every model that was handed out, and why there is none of some kind."""
    plan = material.case.plan
    there_are = sent(plan, material.case.policy)
    out, means = _MODEL in there_are, _MEAN in there_are and plan.topology is not None
    if means and not given.read:
        why = given.unread or material.missing or _UNREAD
        yield NotApplicable(why, _MEAN, _OF_MEAN, arises=True)
    if given.unshared:
        yield NotApplicable(
            given.unshared, _MODEL, "the shared model", arises=out and not given.own
        )
    if given.unkept:
        yield NotApplicable(given.unkept, _MODEL, "clients' own models", arises=True)
    if not given.shared and not given.own and not given.read:
        return
    there = [name for name, one in given.candidates.items() if enough(one.members)]
    if len(there) < 2:
        why = f"two clients with {FEWEST} records on either side are needed, as controls"
        yield from (NotApplicable(why, p, arises=True) for p in (_MODEL, _MEAN)[: 1 + means])
        return
    most = _CLIENTS.get(profile, _CLIENTS["quick"])
    chosen = sorted(there[n] for n in rng.permutation(len(there))[:most])
    shadows = SHADOWS.get(profile, SHADOWS["quick"])
    asked = Asked(given, chosen, shadows, rng, material)
    for name, model in given.shared.items():
        trials = asked.trials(dict.fromkeys(chosen, model))
        doubt = UNTAKEN if name in given.untaken else ""
        for row in _judged(f"{name} model", trials, shadows, given.task):
            yield replace(row, doubt=doubt) if isinstance(row, Samples) else row
    own = {client: given.own[client] for client in chosen if client in given.own}
    if own:
        yield from _judged("a client's own model", asked.trials(own), shadows, given.task)
    read = {client: given.read[client] for client in chosen if client in given.read}
    if means and read:
        seen, bare = ({client: pair[n] for client, pair in read.items()} for n in (0, 1))
        yield from _judged(_OF_MEAN, asked.trials(seen, bare), shadows, given.task, _MEAN)


def _judged(
    what: str,
    found: Mapping[str, Sequence[Trial]],
    shadows: int,
    task: str,
    payload: str = _MODEL,
) -> Iterator[Samples | NotApplicable]:
    """Yield the rows on one model."""
    for how, trials in found.items():
        by = f"{what}, by {how}" + (f" with {shadows} shadow models" if how == "LiRA" else "")
        if len(trials) < 2:
            why = "two clients whose records are not all each other's are needed, as controls"
            yield NotApplicable(why, payload, by, arises=True)
            continue
        outsiders = sum(t.seen[1].size for t in trials)
        common = {
            "payload": payload,
            "units": tuple(t.client for t in trials),
            "positives": sum(t.seen[0].size for t in trials),
            "negatives": outsiders,
            "note": _NOTES.get(task, _NOTE),
        }
        yield _samples(by, AUC, trials, _areas, common)
        low = f"{by}, at one false alarm in a hundred"
        if how == "LiRA" and outsiders >= NEGATIVES:
            yield _samples(low, TPR, trials, _shares, common)


def _samples(
    what: str, rule: Rule, trials: Sequence[Trial], score: Any, common: Mapping[str, Any]
) -> Samples:
    ways = zip(*(t.known for t in trials), strict=True)
    known = np.array([score(pairs) for pairs in ways])
    raw, null, seen = (
        score([getattr(t, name) for t in trials]) for name in ("raw", "null", "seen")
    )
    prior = best_known(known, common["units"], guess=0)
    return Samples(
        what=what, prior=prior, raw=raw, null=null, protected=seen, **rule.given(), **common
    )


def _areas(pairs: Sequence[Pair]) -> Array:
    return np.array([auc(*pair) for pair in pairs])


def _shares(pairs: Sequence[Pair]) -> Array:
    return shares_above([p[0] for p in pairs], np.concatenate([p[1] for p in pairs]), FPR)


ATTACK = Membership()
