"""A16, counts: what do totals of counts and scores, and sizes of messages, say of one client?

**Who attacks, and what he knows.** The aggregator, which holds every total that was opened, with as
many clients as the policy assumes to collude, who pool their own numbers. Ledgers suffice, and
captures are not needed: who is in which total, and how large every message was.

**How.** Three questions, each of single clients:

* *Numbers that stay.* A client's number of records is the same in every round, so totals of
  different rounds may be combined: two cohorts that differ by one client give its number to the
  record. So it is for counts, numbers of holders, and bins of a histogram that hardly changed.
* *Scores.* A score that is said as a sum over records and as a mean of clients is one value under
  two weights. Who knows how many test records each client has solves for a client whose number is
  unlike the others'.
* *Sizes.* Does a client send a message of a size that fewer clients of its Ask share than the
  policy's smallest cohort? The length of its own name is taken off.

**What the number means.** 1 if nine tenths of what sets a client's number apart (of its variance)
are told, or if its sizes stand out; 0 if not. These are facts about the record and no estimates:
one client at 1 is a FAIL. A guess without totals tells nothing, so the prior is 0. A total by
itself tells one over the number of its clients.

**Controls.** Raw: what tells is planted, for some clients one by one: a second total without it,
the same number of test records for all others, a message one byte longer. Each must be found. Null:
every client has more doubles than may collude, so that nobody can be told apart.

**What it cannot show.** Whether a number does stay; one that changes is told by as much less. What
a total tells together with knowledge of one's own. Whose record is in a bin that holds a single
one. Times: a ledger's are its writer's word. That a client took part, and when, is seen by all, and
no question. It trusts the ledgers: run ``audit verify`` first.

Sources: LIMITATIONS.md, "Two means of one score" and "Differences between rounds are exact"; the
share that is told is the leverage of a client in the matrix of weights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from audits.attacks._methods.openings import (
    Opened,
    Sizes,
    Told,
    opened_sums,
    rare_sizes,
    sent_sizes,
    told_shares,
)
from audits.attacks._shared.material import Array, Material
from audits.attacks._shared.payloads import payload_of
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.verdicts import Findings, NotApplicable, Samples
from audits.evidence.steps import Case
from protocols.disclosures.names import Disclosure
from protocols.plan.plan import MessagePlan
from protocols.wire.roles import Role

__all__ = ["ATTACK", "SCORES", "SIZES", "STAYING", "TIMES"]

STAYING = "numbers that stay"
SCORES = "scores under two weights"
SIZES = "sizes of messages"
TIMES = "times of messages"

RULE = Rule(
    "1 if a client's number is told",
    margin=0.0,
    gate=1.0,  # everything that was planted has to be found
    chance=0.0,
    exact=True,
)
_PAYLOAD = "P17"
_ENOUGH = 0.9  # of the variance: what is left of a guess's error is less than a third
_TWICE = {"test_share": ("test_correct", "test_absolute")}
"""The mean of clients -> sums over records of the same value; see `algorithms.tasks.scores`."""
_ROUNDED = 1e-8 / 12 / 0.01
"""Variance of a share's rounding to 1/10000 beside that of accuracies 0.1 apart."""
_PLANTED = 16
Flags = npt.NDArray[np.bool_]
_NOISED = "its totals carry noise: what they tell of one client is what the account bounds"
_UNKNOWN = "no attack is written for what this disclosure tells; the inventory lists every field"
_UNTIMED = "times stand in ledgers as their writers say them, to the second"


@dataclass(frozen=True)
class Counts:
    """See the head of this file."""

    id: str = "A16"
    name: str = "counts"
    question: str = "Do counts, scores or sizes of messages say something of one client?"
    payloads: tuple[str, ...] = (_PAYLOAD,)
    metric: str = RULE.metric
    margin: float = RULE.margin
    gate: float = RULE.gate
    rules: tuple[Rule, ...] = (RULE,)
    needs_capture: bool = False

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Ask the three questions.

        Raises:
            EvidenceError: see :func:`opened_sums`.
        """
        case, kinds = material.case, dict[MessagePlan, list[Opened]]()
        for one in opened_sums(case):
            if _numbers(one.message):
                kinds.setdefault(one.message, []).append(one)
        noised = _noised(case)
        rows: list[Samples | NotApplicable] = []
        for message, sums in kinds.items():
            if message in noised:
                what = f"{STAYING}: {message.name}"
                rows.append(NotApplicable(_NOISED, payload=_PAYLOAD, what=what))
                continue
            asked = _Asked(sums, case.policy.colluders, rng)
            rows.append(asked.staying())
            if _twice(message):
                rows.append(asked.scores(material.tested, material.unasked))
        for name in _others(case):
            rows.append(NotApplicable(_UNKNOWN, _PAYLOAD, f"values: {name}", arises=True))
        rows += [_sizes(case, rng), NotApplicable(_UNTIMED, _PAYLOAD, TIMES, arises=True)]
        return Findings(tuple(rows))


def _numbers(message: MessagePlan) -> list[str]:
    """Return the names of a message's whole numbers."""
    return [field.name for field in message.fields if field.dtype == "u8"]


def _others(case: Case) -> list[str]:
    """Return the clients' messages that tell numbers, and not by a sum."""
    plan, policy = case.plan, case.policy
    items = (i for i in plan.items if i.sender == Role.CLIENT and i.times)
    alone = (item for item in items if item.disclosure is not Disclosure.SUM)
    told = (item for item in alone if payload_of(item, plan, policy) == _PAYLOAD)
    return sorted({message.name for item in told for message in item.messages})


def _noised(case: Case) -> frozenset[MessagePlan]:
    """Return the messages whose totals carry noise that hides clients."""
    items = (item for item in case.plan.items if item.noise is not None)
    return frozenset(message for item in items for message in item.messages)


def _twice(message: MessagePlan) -> bool:
    """Tell whether a message says one value of its client under two weights."""
    names = set(_numbers(message))
    return any(mean in names and names & set(sums) for mean, sums in _TWICE.items())


class _Asked:
    """Who is told of by the totals of one kind of message.

    Args:
        sums: of that message.
        colluders: as the policy assumes.
        rng: draws for whom something is planted.
    """

    def __init__(self, sums: Sequence[Opened], colluders: int, rng: np.random.Generator) -> None:
        self.message, self.colluders, self.rng = sums[0].message, colluders, rng
        self.cohorts = list(dict.fromkeys(one.clients for one in sums))
        self.clients = sorted(frozenset().union(*self.cohorts))

    def staying(self) -> Samples:
        """Ask of numbers that are the same in every round."""
        rows = np.array([[name in cohort for name in self.clients] for cohort in self.cohorts])
        weights = rows.astype(np.float64)
        found = told_shares(weights, self.colluders)
        doubled = np.tile(weights, _copies(self.colluders))
        null = told_shares(doubled, self.colluders).shares[: len(self.clients)]
        note = f"{', '.join(_numbers(self.message))}: {_most(found.shares, self.clients)}"
        planted = [self._missed(weights, place) for place in self._drawn(self.clients)]
        return self._samples(STAYING, self.clients, found, null, all(planted), note)

    def scores(self, tested: Mapping[str, int], why: str) -> Samples | NotApplicable:
        """Ask of a value that is said under two weights, in every total by itself.

        Args:
            tested: client -> its number of test records, which the attacker knows.
            why: there are none.
        """
        what = f"{SCORES}: {self.message.name}"
        names = [name for name in self.clients if tested.get(name, 0) > 0]
        cohorts = [sorted(cohort & set(names)) for cohort in self.cohorts]
        cohorts = [cohort for cohort in cohorts if cohort]
        if not cohorts:
            why = why or "how many test records clients have cannot be counted"
            return NotApplicable(why, _PAYLOAD, what, arises=True)
        shares, null, complete = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0), True
        for cohort in cohorts:
            counts = np.array([tested[name] for name in cohort], dtype=np.float64)
            found, double = _solved(counts, self.colluders)
            complete &= found.complete
            for place, name in enumerate(cohort):
                shares[name] = max(shares[name], float(found.shares[place]))
                null[name] = max(null[name], float(double.shares[place]))
        largest = max(cohorts, key=len)
        planted = [self._odd(len(largest), place) for place in self._drawn(largest)]
        told = Told(np.array([shares[name] for name in names]), complete)
        nulls, raw = np.array([null[name] for name in names]), all(planted)
        return self._samples(SCORES, names, told, nulls, raw, _most(told.shares, names))

    def _drawn(self, clients: Sequence[str]) -> list[int]:
        count = min(_PLANTED, len(clients))
        return [int(n) for n in self.rng.choice(len(clients), size=count, replace=False)]

    def _missed(self, weights: Array, place: int) -> bool:
        """Tell whether a second total without one client is found."""
        of = weights[np.flatnonzero(weights[:, place])[0]].copy()
        of[place] = 0.0
        found = told_shares(np.vstack([weights, of]), 0).shares
        return bool(found[place] >= _ENOUGH)

    def _odd(self, count: int, place: int) -> bool:
        """Tell whether a client is found that has other records than all others."""
        counts = np.full(count, 8.0)
        counts[place] = 10.0
        return bool(_solved(counts, 0)[0].shares[place] >= _ENOUGH)

    def _samples(
        self, kind: str, clients: Sequence[str], told: Told, null: Array, raw: bool, note: str
    ) -> Samples:
        seen = told.shares >= _ENOUGH
        if not told.complete:
            note += (
                "; there are too many sets of colluders to try all of them, so there may be more"
            )
            raw = raw and bool(seen.any())  # who has not tried everything must not say PASS
        note += f"; {self.colluders} clients may collude"
        what = f"{kind}: {self.message.name}"
        return _facts(what, clients, seen, raw, null >= _ENOUGH, note)


def _copies(colluders: int) -> int:
    return min(colluders, 8) + 2


def _solved(counts: Array, colluders: int) -> tuple[Told, Told]:
    """Return what two totals of one value tell of each client, and of clients that have doubles.

    The values are alike in spread; one total weighs them by records, the other one rounds each.
    """

    def asked(of: Array) -> Told:
        noise = np.array([0.0, _ROUNDED * len(of)])
        return told_shares(np.stack([of, np.ones_like(of)]), colluders, noise)

    return asked(counts), asked(np.tile(counts, _copies(colluders)))


def _most(shares: Array, clients: Sequence[str]) -> str:
    """Say whom totals tell of, and how much; to a tenth, as shares follow from private counts."""
    told = [name for name, share in zip(clients, shares, strict=True) if share >= _ENOUGH]
    if told:
        return f"{len(told)} of {len(clients)} clients' are told, {told[0][:40]}'s among them"
    return f"of no client more than {np.ceil(10 * shares.max()):.0f} tenths are told"


def _facts(
    what: str, clients: Sequence[str], seen: Flags, raw: bool, null: Flags, note: str
) -> Samples:
    return Samples(
        payload=_PAYLOAD,
        what=what,
        units=tuple(clients),
        prior=np.zeros(len(clients)),
        raw=np.full(len(clients), float(raw)),
        null=np.asarray(null, dtype=np.float64),
        protected=np.asarray(seen, dtype=np.float64),
        positives=int(np.sum(seen)),
        negatives=int(len(clients) - np.sum(seen)),
        note=note,
        **RULE.given(),
    )


def _sizes(case: Case, rng: np.random.Generator) -> Samples | NotApplicable:
    """Ask whether the sizes of what clients sent set one apart."""
    asked = sent_sizes(case)
    clients = sorted({name for sizes in asked.values() for name in sizes})
    if not clients:
        return NotApplicable("no client sent anything", _PAYLOAD, SIZES)
    smallest = max(case.policy.smallest_cohort, case.plan.smallest_cohort, 2)
    apart = {key[1] for key, sizes in asked.items() if rare_sizes(sizes, smallest)}
    seen = {name for sizes in asked.values() for name in rare_sizes(sizes, smallest)}
    doubled = (
        {(n, c): s for n, s in one.items() for c in range(smallest)} for one in asked.values()
    )
    null = {name for sizes in doubled for name, _ in rare_sizes(sizes, smallest)}
    drawn = rng.choice(clients, size=min(_PLANTED, len(clients)), replace=False)
    raw = all(_longer(asked.values(), name, smallest) for name in drawn)
    note = f"{len(seen)} of {len(clients)} clients stand out"
    note += f", in {', '.join(sorted(apart))[:120]}" if apart else ""
    flags = [np.array([name in those for name in clients]) for those in (seen, null)]
    return _facts(SIZES, clients, flags[0], raw, flags[1], note)


def _longer(asked: Iterable[Sizes], name: str, smallest: int) -> bool:
    """Tell whether a message one byte longer than all others' is found."""
    there = max((sizes for sizes in asked if name in sizes), key=len)
    return name in rare_sizes({**dict.fromkeys(there, (64,)), name: (65,)}, smallest)


ATTACK = Counts()
