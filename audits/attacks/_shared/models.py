"""What the attacks found, as data: ``attacks.json``. Every object is closed.

Whole numbers are exact, everything else is decimal text. There is no clock and no running time in
it: the same attacks on the same run give the same bytes.
"""

from __future__ import annotations

import json
from typing import Literal

from pydantic import Field as Setting
from pydantic import ValidationError, field_validator, model_validator

from audits.attacks._shared.rules import NullSide
from audits.evidence.run_files import check_version, read_json
from protocols.errors import EvidenceError
from protocols.strict import Strict
from protocols.versions import ATTACKS

__all__ = [
    "ATTACKS_LIMIT",
    "ATTACKS_VERSION",
    "FIGURES",
    "AttackReport",
    "AttackRow",
    "Claim",
    "Evidence",
    "NotTested",
    "Profile",
    "Value",
    "Verdict",
    "bucket",
]

ATTACKS_VERSION: Literal[4] = 4
ATTACKS_LIMIT = 4 << 20  # bytes; a row takes about 1 kB
Verdict = Literal[
    "PASS",
    "FAIL",
    "ABOVE_PRIOR",
    "INCONCLUSIVE",
    "INVALID",
    "NOT_APPLICABLE",
    "NOT_TESTED",
    "ERROR",
]
Evidence = Literal["", "signs", "there"]
"""How sure a row that decides nothing is of a gain; see `audits.attacks._shared.together`."""
FIGURES = ("prior", "raw", "null", "protected", "raw_gap", "gap", "excess")
"""The names of the values that a verdict rests on."""
Profile = Literal["quick", "default"]
_DECIMAL = r"^-?\d{1,12}(\.\d{1,12})?$"
_PAYLOAD = r"^(P(0[1-9]|1\d|2[01]))?$"
_DIGEST = r"^[0-9a-f]{64}$"
_ATTACK = r"^[AX]\d{1,2}$"


def bucket(count: int) -> int:
    """Return the largest power of two that is at most `count`; 0 for none."""
    return 1 << (count.bit_length() - 1) if count > 0 else 0


class Value(Strict):
    """A mean over clients with its 95 % interval; `n` is the number of clients."""

    value: str = Setting(pattern=_DECIMAL, description="the mean; decimal text")
    low: str = Setting(pattern=_DECIMAL, description="lower end; decimal text")
    high: str = Setting(pattern=_DECIMAL, description="upper end; decimal text")
    n: int = Setting(ge=1, description="clients that it is a mean over")

    @model_validator(mode="after")
    def _in_order(self) -> Value:
        if not float(self.low) <= float(self.value) <= float(self.high):
            raise ValueError("an interval holds its value")
        return self


class AttackRow(Strict):
    """One question of one attack on one kind of payload.

    Attributes:
        id, name, question: of the attack.
        payload: ``P01`` to ``P21``; empty if it was not applicable to any.
        what: which message or variant of the question.
        rounds: looked at; empty: the whole run.
        n_clients: clients behind the scores.
        replicas: audit replicas of each client; see `audits.attacks._shared.exposed`.
        n_pos, n_neg: records or trials behind the scores, the next power of two below, "at least
            so many" (0: none): two reports must not give one client's exact count (O28).
        seed: of the attack's chance (hex), made from the ledger heads.
        metric: name of the score; larger is worse.
        chance: of a random guess; empty where nothing was measured.
        prior, raw, null, protected: the four reference points of a row.
        raw_gap, gap: raw and protected minus prior, client by client; what `gate` and `margin`
            are held against.
        excess: protected minus null, client by client.
        evidence: beside ABOVE_PRIOR, and nowhere else: ``there`` where one sound report in a
            thousand would show as much, ``signs`` where one in twenty would.
        margin, gate, null_side, exact: of the rule that the attack declares for this score; see
            :class:`audits.attacks._shared.rules.Rule`.
        reason: why this verdict, in words.
        needed_n: about how many clients would decide it; None if no number would, or none is
            needed.
        detectable: beside PASS, its power: the smallest gain over the prior that would have been a
            FAIL with a chance of 95 %; of facts, the gain that was planted and found; else empty.
    """

    id: str = Setting(pattern=_ATTACK)
    name: str = Setting(max_length=40)
    question: str = Setting(max_length=400)
    payload: str = Setting(pattern=_PAYLOAD)
    what: str = Setting(max_length=200)
    profile: Profile = Setting(description="how much was tried")
    rounds: tuple[int, ...] = ()
    n_clients: int = Setting(ge=0)
    replicas: int = Setting(
        default=0,
        ge=0,
        le=100,
        description="audit replicas of each client: other draws of its own records, whose scores "
        "are averaged with its own; intervals are over clients",
    )
    n_pos: int = Setting(ge=0)
    n_neg: int = Setting(ge=0)
    seed: str = Setting(pattern=_DIGEST)
    metric: str = Setting(max_length=60)
    chance: str = Setting(pattern=rf"{_DECIMAL}|^$")
    prior: Value | None = None
    raw: Value | None = None
    null: Value | None = None
    protected: Value | None = None
    raw_gap: Value | None = None
    gap: Value | None = None
    excess: Value | None = None
    margin: str = Setting(pattern=_DECIMAL)
    gate: str = Setting(pattern=_DECIMAL)
    null_side: NullSide = "both"
    exact: bool = False
    verdict: Verdict = Setting(
        description="PASS: not above the margin; FAIL: above it; ABOVE_PRIOR: above what is "
        "public, and on which side of the margin is not known"
    )
    evidence: Evidence = ""
    reason: str = Setting(min_length=1, max_length=600)
    needed_n: int | None = Setting(default=None, ge=1)
    detectable: str = Setting(default="", pattern=rf"{_DECIMAL}|^$")

    @field_validator("n_pos", "n_neg")
    @classmethod
    def _in_buckets(cls, count: int) -> int:
        if count != bucket(count):
            raise ValueError("counts of records are powers of two; exact ones stay with the data")
        return count

    @model_validator(mode="after")
    def _measured(self) -> AttackRow:
        values = tuple(getattr(self, name) for name in FIGURES)
        measured = self.verdict in ("PASS", "FAIL", "ABOVE_PRIOR", "INVALID")
        if measured and (None in values or not self.chance or not self.payload):
            raise ValueError("a verdict that rests on figures needs all of them")
        if (self.verdict == "PASS") != bool(self.detectable):
            raise ValueError("a PASS, and nothing else, stands beside what it could have missed")
        if (self.verdict == "ABOVE_PRIOR") != bool(self.evidence):
            raise ValueError("ABOVE_PRIOR, and nothing else, stands beside how sure it is")
        return self


class Claim(Strict):
    """A privacy claim held against evidence.

    Every attack whose figure is a lower bound of epsilon brings one: the word beside each epsilon
    of a report is made of these alone (`audits.accounting.empirical`), by `unit`, `epsilon_lb`,
    `ceiling`, `trials` and `status`, whichever attack they are of.

    Attributes:
        text: the claim in words.
        epsilon_claim: decimal text.
        unit: whose presence it is about.
        epsilon_lb: lower bound that the attack reached; empty if untested.
        ceiling: what a perfect attack could have reached with as many trials; empty if untested.
        confidence: of the bound, for example ``0.95``; empty if untested.
        trials: per side.
        status: a bound above the claim falsifies it; one below proves nothing.
    """

    text: str = Setting(max_length=400)
    epsilon_claim: str = Setting(pattern=_DECIMAL)
    unit: str = Setting(max_length=40)
    epsilon_lb: str = Setting(default="", pattern=rf"{_DECIMAL}|^$")
    ceiling: str = Setting(default="", pattern=rf"{_DECIMAL}|^$")
    confidence: str = Setting(default="", pattern=rf"{_DECIMAL}|^$")
    trials: int = Setting(default=0, ge=0)
    status: Literal["falsified", "not_falsified", "untested"]


class NotTested(Strict):
    """A kind of payload that the run sends and no attack looked at, and why."""

    payload: str = Setting(pattern=_PAYLOAD, min_length=3, description="`P01` to `P21`")
    why: str = Setting(min_length=1, max_length=400, description="in a sentence")


class AttackReport(Strict):
    """What the attacks on a run found.

    Attributes:
        run, plan_digest, heads_digest: which run, and the state of its ledgers; see
            :func:`audits.attacks.heads_digest`.
        profile: as asked for. Nobody asks for a seed: each row holds the one that its run gives.
        code_digest: SHA-256 (hex) over the attacks' own source files.
        simulated: all roles ran in one process.
        rows: what was asked, in the order of the attacks.
        claims: privacy claims held against evidence.
        not_tested: what no attack looked at.
    """

    schema_version: Literal[4] = ATTACKS_VERSION
    run: str = Setting(max_length=64)
    plan_digest: str = Setting(pattern=_DIGEST)
    heads_digest: str = Setting(pattern=_DIGEST)
    profile: Profile
    code_digest: str = Setting(pattern=_DIGEST)
    simulated: bool
    rows: tuple[AttackRow, ...] = Setting(max_length=1000)
    claims: tuple[Claim, ...] = Setting(default=(), max_length=1000)
    not_tested: tuple[NotTested, ...] = Setting(default=(), max_length=100)

    def text(self) -> str:
        """Return the report as the JSON that is saved."""
        return json.dumps(self.model_dump(mode="json"), indent=2, sort_keys=True) + "\n"

    @classmethod
    def parse(cls, data: bytes) -> AttackReport:
        """Return a report from untrusted bytes; only what :meth:`text` writes is accepted.

        Raises:
            EvidenceError: at step ``files``.
        """
        step, what = "files", "attacks.json"
        document = read_json(data, limit=ATTACKS_LIMIT, what=what)
        check_version(document, ATTACKS, step=step, what=what, member="schema_version")
        try:
            report = cls.model_validate(document)
            written = report.text().encode("utf-8")
        except (ValidationError, UnicodeEncodeError):
            raise EvidenceError("files", "attacks.json is no list of attacks") from None
        if written != data:
            raise EvidenceError("files", "attacks.json is not in the form in which it is saved")
        return report
