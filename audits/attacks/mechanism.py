"""A10: does the noise deliver the epsilon that is claimed for it?

Question. Where a plan claims differential privacy, each client adds noise before its vector leaves.
Does that noise really keep two runs apart by no more than epsilon says: one with a record, one
without?

Who attacks. Somebody who sees one noised release and knows everything else: the record in question,
chosen as bad for its owner as the guards permit, and all that others sent. He has to say whether
the record is in it. Nothing of the run's data is needed: the noise code itself is run, many times.

What the numbers mean. ``protected`` is the epsilon that this attacker proves, with 95 % confidence;
``prior`` is the epsilon that is claimed. A proof above the claim falsifies it: FAIL. A PASS reads
"not falsified" and no more. Beside each bound stands its ceiling, what an attacker who never errs
would have proved with as many trials; a claim above it is not tested, and INCONCLUSIVE.

Where each client's message is read by itself, under noise of its own, the two runs are two messages
as far apart as the clip lets them be. They take the whole way of a client: over clip and noise to
packed bytes. Of SQKR the symbol is attacked that it tells, which is the whole of its proof: the
bits before it are drawn at random, and give away less.

The record is put into one entry, and spread over many with alternating signs, where noise that
repeats itself would show. Gaussian noise is also read as such, which proves far more: an epsilon at
a delta of 10^-5 rests on events that 20,000 trials never see. That reading takes for granted that
the noise is Gaussian; if it is not, the claim does not hold either.

Controls. Raw: noise ten times too small is planted, and has to break the claim, or the attack is
too weak to say anything. Null: the record is in neither run, and nothing may be proved,
there with 99.9 % confidence.

A second question is asked of the code: is every value an integer of the grid (the low bits of a
floating-point sum tell what was added), and can no input, however large, pass the sensitivity with
which the accountant counts?

Of rows of neighbours' features the release is all rows that one node enters, together; the record
is its features, as one vector of the sensitivity.

What it cannot show. One release only (of rows: one run's): that many compose as the accountant
says is arithmetic, and stands as "untested" among the claims. That clients used this code, and drew
their noise from a good source, is for other evidence.

Sources: Jagielski, Ullman and Oprea, NeurIPS 2020; Nasr et al., USENIX Security 2023; Mironov, "On
significance of the least significant bits for differential privacy", CCS 2012.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from audits.attacks._methods.statistics import Bound, Reading, claim, lower_bound, untested
from audits.attacks._noise import noise_code
from audits.attacks._noise.release import PLANTED, Release
from audits.attacks._noise.releases import releases
from audits.attacks._shared.material import Material
from audits.attacks._shared.models import Claim
from audits.attacks._shared.rules import Rule
from audits.attacks._shared.verdicts import Findings, NotApplicable, Samples
from audits.evidence.steps import Case
from crypto.samplers import KEY_BYTES, Stream
from protocols.privacy.noising import noises

__all__ = ["ATTACK", "TRIALS"]

PROVED = Rule(
    "epsilon that is proved (lower bound)",
    margin=0.0,
    gate=0.15,
    chance=0.0,
    exact=True,
    clients=False,
    claims=True,
    also=("P13", "P17"),
)
CODE = Rule(
    "share of values that break the rule",
    margin=0.0,
    gate=0.5,
    chance=0.0,
    exact=True,
    clients=False,
    also=("P13", "P17"),
)
TRIALS = {"quick": 20_000, "default": 200_000}
"""Runs of the mechanism with the record, and as many without it."""
_DRAWS = {"quick": 4_000_000, "default": 16_000_000}  # of noise, at most, for each set of runs
_FEWEST = 2_000
_SURE = 0.999999  # of the null control, so that no report is INVALID by chance


@dataclass(frozen=True)
class _Outcome:
    """What was proved of one release in one reading: of the run's noise and of both controls."""

    what: str
    seen: Bound
    raw: Bound
    null: Bound

    def able(self, epsilon: float, gate: float) -> bool:
        """Tell whether the planted violation broke the claim."""
        return self.raw.epsilon - epsilon >= gate


def _outcomes(release: Release, profile: str, rng: np.random.Generator) -> Iterator[_Outcome]:
    draws = _DRAWS.get(profile, _DRAWS["default"])
    runs = TRIALS.get(profile, TRIALS["default"])
    runs = max(_FEWEST, min(runs, draws // (release.shares * release.cost)))
    for width in release.widths(draws // runs):
        record, stream = release.record(width), Stream(rng.bytes(KEY_BYTES))
        none = release.scores(record, runs, stream, present=False)
        again = release.scores(record, runs, stream, present=False)
        there = release.scores(record, runs, stream, present=True)
        weak = [
            release.scores(record, runs, stream, present=present, weaker=PLANTED)
            for present in (True, False)
        ]
        readings: tuple[Reading, ...] = ("any mechanism",)
        if release.gaussian and (width > 1 or release.entries == 1):
            readings = ("any mechanism", "gaussian")
        for reading in readings:
            yield _Outcome(
                what=_what(width, reading),
                seen=lower_bound(there, none, delta=release.delta, reading=reading),
                raw=lower_bound(weak[0], weak[1], delta=release.delta, reading=reading),
                null=lower_bound(
                    again, none, delta=release.delta, confidence=_SURE, reading=reading
                ),
            )


def _what(width: int, reading: Reading) -> str:
    entries = "one entry" if width == 1 else f"{width} entries"
    return f"record in {entries}" + (", read as Gaussian noise" if reading == "gaussian" else "")


def _samples(release: Release, found: _Outcome) -> Samples:
    note = (
        f"{release.text}; proved at 95 %: {found.seen.epsilon:.4g}, ceiling of a perfect attack: "
        f"{found.seen.ceiling:.4g}; a bound below a claim proves nothing"
    )
    return Samples(
        payload=release.payload,
        what=f"{release.unit}: {found.what}",
        units=(release.mechanism,),
        prior=np.array([release.epsilon]),
        raw=np.array([found.raw.epsilon]),
        null=np.array([found.null.epsilon]),
        protected=np.array([found.seen.epsilon]),
        positives=found.seen.trials,
        negatives=found.seen.trials,
        note=note,
        bounds=(0.0, np.inf),
        **PROVED.given(),
    )


def _code(payload: str, name: str, checks: Sequence[noise_code.Check]) -> Samples:
    return Samples(
        payload=payload,
        what=f"code of {name}: on the grid, within the sensitivity",
        units=tuple(check.name for check in checks),
        prior=np.zeros(len(checks)),
        raw=np.array([check.raw for check in checks]),
        null=np.array([check.null for check in checks]),
        protected=np.array([check.found for check in checks]),
        note="; ".join(f"{check.name}: {check.says}" for check in checks),
        **CODE.given(),
    )


def _claim(release: Release, found: Sequence[_Outcome], gate: float) -> Claim:
    """Return the claim beside the strongest thing that was proved of it."""

    def strength(one: _Outcome) -> tuple[bool, bool, float]:
        able = one.able(release.epsilon, gate)
        return one.seen.epsilon > release.epsilon, able, one.seen.epsilon

    best = max(found, key=strength)
    able = best.able(release.epsilon, gate)
    return claim(release.text, release.epsilon, release.unit, best.seen, able=able)


def _composed(case: Case) -> Iterator[Claim]:
    """Yield what is claimed of whole runs, which no attack on one release can test."""
    for noise in noises(case.plan.items).values():
        text = f"the run, {noise.releases} releases of one client: composition is arithmetic"
        yield untested(text, float(noise.epsilon), "client")
    if (plan := case.plan.training) is not None:
        text = f"the run, {plan.releases} steps of private training: composition is arithmetic"
        yield untested(text, float(plan.epsilon), plan.unit)


@dataclass(frozen=True)
class Mechanism:
    """Attack A10; see the head of this file."""

    id: str = "A10"
    name: str = "dp-function"
    question: str = "Does the noise deliver the epsilon that is claimed for it?"
    payloads: tuple[str, ...] = ("P02", "P06")
    metric: str = PROVED.metric
    margin: float = PROVED.margin
    gate: float = PROVED.gate
    rules: tuple[Rule, ...] = (PROVED, CODE)
    needs_capture: bool = False

    def run(self, material: Material, rng: np.random.Generator, profile: str) -> Findings:
        """Run the noise code of every claim, and look at the code itself.

        Raises:
            EvidenceError: the plan states noise that cannot be counted with.
        """
        case = material.case
        found = list(releases(case))
        if not found:
            why = "no noise is planned, so no epsilon is claimed that could be false"
            return Findings((NotApplicable(why),))
        rows: list[Samples | NotApplicable] = []
        claims: list[Claim] = []
        for release in found:
            if not np.isfinite(release.epsilon):
                why = "the accountant claims no finite epsilon, so nothing can be falsified"
                rows.append(NotApplicable(why, payload=release.payload, what=release.unit))
                continue
            outcomes = list(_outcomes(release, profile, rng))
            rows += [_samples(release, one) for one in outcomes]
            claims.append(_claim(release, outcomes, self.gate))
            rows.append(_code(release.payload, *noise_code.checks(case, release, rng)))
        return Findings(tuple(rows), (*claims, *_composed(case)))


ATTACK = Mechanism()
