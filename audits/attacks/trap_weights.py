"""A20, trap weights: does a crafted model bring single records out of a total?

**Who attacks, and what he knows.** An aggregator that does not follow the protocol: in place of the
model he hands out one of his own making. Where clients compute each model themselves, one client
that adds to totals what it likes, or who wrote the code that draws the first model. He knows three
words of each record that he is after, those that fewest records have (a diagnosis, a rare
employer), how popular each word is, and what is public: plan, policy, settings and the weights with
which the run begins. He does not know the graph, nor which client holds the record.

**How.** Every hidden unit is a trap for one record (`audits.attacks._methods.traps`). What comes
back of a unit is the sum of the rows that woke it, each row the record's own words and those of its
neighbours. A record's words have one value in that sum, and the known ones tell which
(`audits.attacks._methods.span`). A sum over clients hides nothing of it: for a client whose records
sleep, the gradient is exactly zero.

**Two ways of an aggregator.** In one round the crafted model stands there at once. Steered, it is
reached over the rounds of the plan, each model moved from the last by no more than the policy's
clip allows, as who checks only that would take it. The aggregator need not use what clients say, so
their training is not in his way; he adds up the totals of all rounds, each by the force that its
traps had.

**Two ways where models are recomputed.** Steered by one client: it knows each model and each total,
and adds to the next total what brings the model nearer to the crafted one. Nobody proves that what
it sends is within the clip (L1.6), so it sends what the range of totals leaves room for. It says
that it has no records, and reads the others' total. Crafted start: the first model is the crafted
one, as it is where a plug-in's `init`, or that of a changed program, draws it so. That is asked
where models are bounded, too: each is compared with the one before, and the first with none.

**What the number means.** Records: the share of those he is after that come back word for word.
Words: F1 of what he names beyond the words that he knew; 1 is all of them and nothing else. Prior:
the most popular words, of all records or of those that hold a known word; a guess of that kind is
all that he names where nothing could be read, too.

**Controls.** Raw: the client's own change in clear, before rounding. Null: another client's change,
read for the same record.

**What it cannot show.** Only graph convolution networks of two layers on bags of words are asked.
He takes records on which clients train. One usual degree and number of words sets all traps; who
knows more of a record, or tries again after each total, reads more. One client
alone gets little out of Adam's steps: what training does to the last layer is large beside traps
that must be faint. Noise is not fought: the clip
of a whole message leaves a trap little of its force, and readings below the noise are none.

Sources: Fowl et al., "Robbing the Fed", ICLR 2022; Boenisch et al., "When the Curious Abandon
Honesty", EuroS&P 2023 (trap weights); how rows of a graph are told apart is this project's own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import scipy.sparse as sp

from audits.attacks._methods.statistics import best_known
from audits.attacks._methods.traps import Known, Shot, led, one_round, steered
from audits.attacks._shared.material import Material, Replica
from audits.attacks._shared.payloads import updates
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.verdicts import Findings, NotApplicable, Samples
from protocols.disclosures.names import Disclosure
from protocols.plan.learns import AS_SENT, BOUNDED, RECOMPUTED
from protocols.plan.plan import Item, Plan
from protocols.plan.steps import Service, Step

__all__ = [
    "ATTACK",
    "BY_ONE",
    "ONE_ROUND",
    "START",
    "STEERED",
    "TrapWeights",
    "what_clients_take",
]

ONE_ROUND = "one round"
START = "crafted start"
BY_ONE = "steered by one client"
STEERED = "steered within the clip"
RECORDS = Rule("share of records read word for word", margin=0.02, gate=0.05, chance=0.0)
WORDS = Rule("F1 of unknown words", margin=0.05, gate=0.15, chance=0.0, null_side="above")
VOLLEYS = 3
"""Crafted models, each for other records."""
ROUNDS = {"quick": 10, "default": 100}
"""Rounds over which a model is steered at most."""
NOISED = {"quick": 0, "default": 10}
"""Likewise under noise, which takes long to draw."""

_TOO_FAR = (
    "clients refuse a model that moved further than the clip allows, so none that the aggregator "
    "makes is there at once"
)
_FEW = (
    "two clients, beside one that attacks, with training records of more words than the attacker "
    "knows are needed"
)
_LONG = "with noise, a model is steered in the profile default only, as noise takes long to draw"
_EQUAL = 1e-4  # of a weight: words that differ by less have one
_ONE = "the plan has one round, in which the model is the public one to start from"


def what_clients_take(plan: Plan) -> str:
    """Return how clients see to models (`protocols.plan.learns`).

    Args:
        plan: of the run; of several Asks that hand a model out, the weakest counts.
    """
    said = [item.model for item in _handed(plan)]
    return next((weakest for weakest in (AS_SENT, BOUNDED) if weakest in said), RECOMPUTED)


def _handed(plan: Plan) -> list[Item]:
    """Return the items that hand a model out, or a total in its place, to be trained on."""
    asked = {item.exchange for item in plan.all_of(Disclosure.SUM, Step.UP) if _real(item)}
    downs = plan.all_of(Service.ASK, Step.DOWN)
    return [item for item in downs if item.exchange in asked and item.model]


def _real(item: Item) -> bool:
    return any(f.dtype in ("f4", "f8") and f.shape for m in item.messages for f in m.fields)


def _objection(replica: Replica) -> str:
    """Say why no trap is written for a model or its records; empty if one is."""
    if replica.model != "gcn" or replica.depth != 2:
        return "traps are written for graph convolution networks (gcn) of two layers only"
    tables = [bags.table for bags in replica.bags.values()]
    values = [table.data for table in tables]
    if any((v < 0).any() for v in values) or not all(map(_even, tables)):
        return "records are read back from bags of words only, whose words have one weight each"
    return ""


def _even(rows: sp.csr_array) -> bool:
    """Tell whether all that a record has, it has equally, and is less than half of all columns."""
    count = np.diff(rows.indptr)
    means = np.asarray(rows.sum(axis=1)).ravel() / np.maximum(count, 1)
    near = np.abs(rows.data - np.repeat(means, count)) <= _EQUAL * np.repeat(means, count)
    return bool(near.all() and count.mean() < rows.shape[1] / 2)


@dataclass(frozen=True)
class TrapWeights:
    """Attack A20; see the head of this file."""

    id: str = "A20"
    name: str = "trap-weights"
    question: str = "Does a crafted model bring single records out of a total?"
    payloads: tuple[str, ...] = ("P01", "P02", "P05", "P06")
    metric: str = RECORDS.metric
    margin: float = RECORDS.margin
    gate: float = RECORDS.gate
    rules: tuple[Rule, ...] = (RECORDS, WORDS)
    needs_capture: bool = False

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Craft a model, let all clients answer it, and read; see `audits.attacks.Attack`."""
        plan = material.case.plan
        if not _handed(plan):
            why = "no model is handed out to be trained on and summed"
            return Findings((NotApplicable(why),))
        taken, replica = what_clients_take(plan), material.replica
        if replica is None:
            why = material.unasked.rstrip(".") or "the clients of this run cannot be asked again"
            return Findings((NotApplicable(why, arises=True),))
        if why := _objection(replica):
            return Findings((NotApplicable(why, arises=True),))
        known = Known.of(replica, rng, VOLLEYS)
        if known is None:
            return Findings((NotApplicable(_FEW, arises=True),))
        payload = updates(plan, material.case.policy)
        at_once = ONE_ROUND if taken == AS_SENT else START
        rows: list[Samples | NotApplicable] = []
        if taken == BOUNDED:
            rows.append(NotApplicable(_TOO_FAR, payload, ONE_ROUND))
        rows += _rows(payload, at_once, known, one_round(replica, known, rng))
        rounds = min(plan.rounds, (NOISED if replica.noise else ROUNDS)[profile])
        if taken == RECOMPUTED:
            known, play = _by_one(replica, rng)
            return Findings((*rows, *_over_rounds(plan, payload, BY_ONE, rounds, known, play)))
        play = partial(steered, replica, known, rng)
        return Findings((*rows, *_over_rounds(plan, payload, STEERED, rounds, known, play)))


def _by_one(
    replica: Replica, rng: np.random.Generator
) -> tuple[Known | None, Callable[[int], list[Shot]]]:
    """Return what one client knows of the others' records, and its way to steer."""
    others = {name: bags for name, bags in replica.bags.items() if name != replica.leader}
    known = Known.of(replace(replica, bags=others), rng, VOLLEYS)
    return known, lambda rounds: [] if known is None else led(replica, known, rng, rounds)


def _over_rounds(
    plan: Plan,
    payload: str,
    what: str,
    rounds: int,
    known: Known | None,
    play: Callable[[int], list[Shot]],
) -> list[Samples | NotApplicable]:
    """Return what came back while a model was steered, or why none was."""
    if rounds < 2:
        why = _LONG if plan.rounds > 1 else _ONE
        return [NotApplicable(why, payload, what, arises=plan.rounds > 1)]
    if known is None:
        return [NotApplicable(_FEW, payload, what, arises=True)]
    return [*_rows(payload, f"{what}, {rounds} rounds", known, play(rounds))]


def _rows(payload: str, what: str, known: Known, shots: Sequence[Shot]) -> list[Samples]:
    """Return how many records came back, and how many words."""
    last = shots[-1]
    read = last.seen.read
    note = (
        f"something was read of {read.mean():.2f} of the records; of their words {_of(last, 0)} "
        f"came back, and {_of(last, 1)} of what was named is true"
    )
    if len(shots) > 1:
        told = ", ".join(f"{shot.rounds}: {shot.seen.whole.mean():.3f}" for shot in shots)
        note += f"; by rounds: {told}"
    common = {
        "payload": payload,
        "units": tuple(target.client for target in known.targets),
        "positives": len(known.targets),
        "note": note,
    }
    found = []
    for rule, name in ((RECORDS, "whole"), (WORDS, "f1")):
        scores = {
            "raw": getattr(last.raw, name),
            "null": getattr(last.null, name),
            "protected": getattr(last.seen, name),
        }
        prior = np.array([getattr(guess, name) for guess in known.guesses])
        found.append(
            Samples(
                what=f"{what}: {'records' if rule is RECORDS else 'words'}",
                prior=best_known(prior, common["units"], guess=0),  # type: ignore[arg-type]
                **scores,
                **rule.given(),
                **common,  # type: ignore[arg-type]
            )
        )
    return found


def _of(shot: Shot, which: int) -> str:
    """Return mean recall (0) or precision (1) over the records of which something was read."""
    values = (shot.seen.recall, shot.seen.precision)[which][shot.seen.read]
    return f"{values.mean():.2f}" if values.size else "none"


ATTACK = TrapWeights()
