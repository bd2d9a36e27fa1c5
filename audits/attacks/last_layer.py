"""A14, last-layer: do gradients that a client gets for its generator give others' records away?

**Who attacks, and what he knows.** Who reads the answers to a client's generator (FedSage+): the
client itself, or in clear the aggregator too. He knows the generator, the codes and so everything
that enters its last layer, and holds records of which he asks which are in a message.

**How.** The last layer's gradient is a linear system in the slopes at its outputs. He solves it,
and each slope points from the row that was drawn to the record that it was held against; the length
of it, which a clip changes, he does not use.

**What the number means.** The share of draws for which he names the record among all candidates;
one over their number is guessing.

**Controls.** Prior: who names the candidate nearest to each draw, which needs no message, or
guesses. Raw: the client's own gradient before protection. Null: another client's, against this
client's truth. FedSage+ as published (form `published`), in which each client's gradient leaves by
itself at encodings of nodes, is a run like others, and has to fall.

**What it cannot show.** Records that he has no candidate for: solved slopes are then a record up to
its clip, which nobody compares here. With more draws than the last layer has inputs the system has
many solutions, and he takes the shortest; where that is too weak on the raw message the verdict
says so. What follows from many steps together is not looked at.

Source: the last layer of FedSage+'s fGen (docs/results/fed_sage.md).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from audits.attacks._methods.span import guessed, named
from audits.attacks._shared.material import Answers, Array, Material
from audits.attacks._shared.payloads import sent
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.verdicts import Findings, NotApplicable, Samples

__all__ = ["ATTACK", "ROWS", "LastLayer"]

ROWS = Rule(
    "share right: which record a drawn row was held against",
    margin=0.05,
    gate=0.15,
    null_side="above",
)
_MOST = {"quick": 40, "default": 200}  # answers that are looked at, drawn at random


@dataclass(frozen=True)
class LastLayer:
    """See the head of this file."""

    id: str = "A14"
    name: str = "last-layer"
    question: str = "Do gradients for a client's generator give others' records away?"
    payloads: tuple[str, ...] = ("P12",)
    metric: str = ROWS.metric
    margin: float = ROWS.margin
    gate: float = ROWS.gate
    rules: tuple[Rule, ...] = (ROWS,)
    needs_capture: bool = False

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Attack; see `audits.attacks.Attack`."""
        given, case = material.answers, material.case
        if given is None:
            if not set(sent(case.plan, case.policy)) & set(self.payloads):
                return Findings((NotApplicable("no gradient of a generator leaves a client"),))
            why = material.missing or "no answer to a generator could be computed again"
            return Findings((NotApplicable(why, arises=True),))
        return Findings((_row(given, _MOST.get(profile, _MOST["quick"]), rng),))


def _row(given: Answers, most: int, rng: np.random.Generator) -> Samples:
    """Return the one question."""
    kept = np.sort(rng.permutation(len(given.answers))[:most])
    answers = [given.answers[number] for number in kept]
    chance = 1.0 / len(given.candidates)
    prior, raw, null, seen = (np.zeros(len(answers)) for _ in range(4))
    for place, answer in enumerate(answers):
        others = [one for one in given.answers if one.client != answer.client]
        other = others[int(rng.integers(len(others)))]
        prior[place] = max(guessed(answer, given.candidates), chance)
        raw[place] = named(answer, answer.raw, given.candidates)
        null[place] = named(answer, _as_if(answer.raw, other.raw), given.candidates)
        seen[place] = named(answer, answer.seen, given.candidates)
    return Samples(
        payload=given.payload,
        what=given.what,
        units=tuple(answer.client for answer in answers),
        prior=prior,
        raw=raw,
        null=null,
        protected=seen,
        positives=sum(int((answer.matched >= 0).sum()) for answer in answers),
        **{**ROWS.given(), "chance": chance},
    )


def _as_if(mine: Array, other: Array) -> Array:
    return other if other.shape == mine.shape else np.zeros_like(mine)


ATTACK = LastLayer()
