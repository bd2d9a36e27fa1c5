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

**What it cannot show.** No epsilon follows from these scores. In a node task members and outsiders
are not exchangeable: the neighbours of a training node took part in training, outsiders among
them. A PASS is about these two attacks, few shadow models and an attacker who asks once; one who
knows all other clients' records, or watched the rounds (A05), can do better. Algorithms that train
in another way than by steps along their records' loss are held against shadow models that do not.

Sources: Yeom et al., CSF 2018 (loss); Carlini et al., IEEE S&P 2022 (LiRA); AUDITS.md A.3; Khosla,
arXiv:2601.17130, for exchangeability. The prior by a model without the site is this project's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from audits.attacks._methods.statistics import auc, best_known, shares_above
from audits.attacks._models.released import Bools, Candidates, Released
from audits.attacks._models.shadows import halves, likelihood
from audits.attacks._shared.material import Array, Material
from audits.attacks._shared.payloads import sent
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.samples import Findings, NotApplicable, Samples

__all__ = ["ATTACK", "Membership"]

FPR = 0.01
NEGATIVES = 1000
"""Outsiders, all clients together, below which a rate of 1 % is not measured."""
AUC = Rule("AUC of members against outsiders", 0.05, 0.15, chance=0.5, null_side="above")
TPR = Rule("TPR at 1 % FPR", 0.02, 0.05, chance=FPR, null_side="above")
SHADOWS = {"quick": 4, "default": 16}
_CLIENTS = {"quick": 20, "default": 60}  # that are looked at, drawn at random
_FEWEST = 4  # records on either side of a client that is asked about
_OTHERS = 3  # sites whose models are the null control
_MODEL = "P19"
_LATE = "the time budget was used up while models were trained for comparison"
_NOTES = {
    "node": "Nodes of one graph are not exchangeable, as their neighbours trained too; no epsilon "
    "follows from this score",
}
_NOTE = "No epsilon follows from this score"

Pair = tuple[Array, Array]
"""Scores of members and of outsiders."""


class _Late(Exception):
    """The time budget is used up."""


@dataclass(frozen=True)
class Membership:
    """See the head of this file."""

    id: str = "A12"
    name: str = "mia-lira"
    question: str = "Was this record used to train the released model?"
    payloads: tuple[str, ...] = (_MODEL,)
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
        except _Late:
            return Findings((NotApplicable(_LATE, _MODEL, arises=True),))
        except ArithmeticError:
            why = "training models for comparison diverged"
            return Findings((NotApplicable(why, _MODEL, arises=True),))


def _rows(
    given: Released, material: Material, rng: np.random.Generator, profile: str
) -> Iterator[Samples | NotApplicable]:
    """Yield the rows on every model that was handed out, and why there is none of some kind."""
    out = _MODEL in sent(material.case.plan, material.case.policy)
    if given.unshared:
        yield NotApplicable(
            given.unshared, _MODEL, "the shared model", arises=out and not given.own
        )
    if given.unkept:
        yield NotApplicable(given.unkept, _MODEL, "clients' own models", arises=True)
    if not given.shared and not given.own:
        return
    there = [name for name, one in given.candidates.items() if _enough(one.members)]
    if len(there) < 2:
        why = f"two clients with {_FEWEST} records on either side are needed, as controls"
        yield NotApplicable(why, _MODEL, arises=True)
        return
    most = _CLIENTS.get(profile, _CLIENTS["quick"])
    chosen = sorted(there[n] for n in rng.permutation(len(there))[:most])
    shadows = SHADOWS.get(profile, SHADOWS["quick"])
    asked = _Asked(given, chosen, shadows, rng, material)
    for name, model in given.shared.items():
        trials = asked.trials(dict.fromkeys(chosen, model))
        yield from _judged(f"{name} model", trials, shadows, given.task)
    own = {client: given.own[client] for client in chosen if client in given.own}
    if own:
        yield from _judged("a client's own model", asked.trials(own), shadows, given.task)


def _enough(members: Bools) -> bool:
    return min(int(members.sum()), int((~members).sum())) >= _FEWEST


@dataclass(frozen=True, repr=False)
class _Trial:
    """One client's scores by one attack: member and outsider of each."""

    client: str
    seen: Pair
    raw: Pair
    null: Pair
    known: tuple[Pair, ...]


class _Asked:
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
            raise _Late
        return self._given.train(parts, int(self._rng.integers(2**62)))

    def trials(self, models: Mapping[str, object]) -> dict[str, list[_Trial]]:
        """Return the trials of all clients by attack, ``loss`` and ``LiRA``.

        Args:
            models: client -> the model that is asked about its records.
        """
        found: dict[str, list[_Trial]] = {"loss": [], "LiRA": []}
        for client, model in models.items():
            nulls = self._nulls(client)
            if not nulls:
                continue
            own, sure = self._given.candidates[client], self._given.confidence
            for how, made in found.items():
                seen, raw = (
                    self._pair(how, client, sure(m, client)) for m in (model, self.alone[client])
                )
                pairs = [self._pair(how, client, sure(m, client), kept) for m, kept in nulls]
                null = tuple(np.concatenate([p[n] for p in pairs]) for n in (0, 1))
                known = self._known(client, own)
                made.append(_Trial(client, seen, raw, (null[0], null[1]), known))
        return found

    def _pair(self, how: str, client: str, sure: Array, kept: Bools | None = None) -> Pair:
        if how == "LiRA":
            sure = likelihood(sure, self._shadows[client], self._inside[client])
        return _split(sure, self._given.candidates[client].members, kept)

    def _nulls(self, client: str) -> list[tuple[object, Bools]]:
        """Return other sites' models and which records those did not train on; often none."""
        own, found = self._given.candidates[client], list[tuple[object, Bools]]()
        names = [name for name in self.alone if name != client]
        for place in self._rng.permutation(len(names)):
            theirs = self._given.candidates[names[place]]
            kept = ~np.isin(own.marks, theirs.marks[theirs.members])
            if _enough(own.members[kept]):
                found.append((self.alone[names[place]], kept))
        return found[:_OTHERS]

    def _known(self, client: str, own: Candidates) -> tuple[Pair, ...]:
        """Return what attackers without the model know, in both directions; a guess comes first."""
        scores, without = [np.zeros(len(own.members))], self._without[client]
        if without is not None:
            scores.append(self._given.confidence(without, client))
        scores += [sign * one for one in own.known for sign in (1.0, -1.0)]
        return tuple(_split(one, own.members) for one in scores)


def _split(scores: Array, members: Bools, kept: Bools | None = None) -> Pair:
    there = np.ones(len(members), dtype=bool) if kept is None else kept
    return scores[members & there], scores[~members & there]


def _judged(
    what: str, found: Mapping[str, Sequence[_Trial]], shadows: int, task: str
) -> Iterator[Samples | NotApplicable]:
    """Yield the rows on one model."""
    for how, trials in found.items():
        by = f"{what}, by {how}" + (f" with {shadows} shadow models" if how == "LiRA" else "")
        if len(trials) < 2:
            why = "two clients whose records are not all each other's are needed, as controls"
            yield NotApplicable(why, _MODEL, by, arises=True)
            continue
        outsiders = sum(t.seen[1].size for t in trials)
        common = {
            "payload": _MODEL,
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
    what: str, rule: Rule, trials: Sequence[_Trial], score: Any, common: Mapping[str, Any]
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
