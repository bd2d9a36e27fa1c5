"""Parts of the report that stand on their own: scope, rounds, changes, obligations, method.

They import next to nothing of the other auditors: whoever fills a part can import its shape.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field as Setting

from audits.accounting.calibration import Calibrated
from audits.accounting.empirical import UNTRIED, Empirical
from audits.accounting.models import Epsilon, Share
from protocols.strict import Strict

Move = Literal["new", "fixed", "worse", "better", "no longer measured"]


class Fact(Strict):
    """A name and its value, as text; of ``result.json``, the step ``result`` tells what is held."""

    name: str = Setting(description="what it is")
    value: str = Setting(description="as text")


class StepFacts(Strict):
    """One verification step."""

    name: str = Setting(description="of the step")
    status: Literal["OK", "FAIL", "NOT CHECKED"] = Setting(description="what became of it")
    detail: str = Setting(description="what was found, in words")


class Flow(Strict):
    """What went from one role to another, over all parties in these roles.

    Attributes:
        sender, recipient: roles; ``roster`` is everyone.
        items: plan items, in plan order.
        protection: in words, each once.
    """

    sender: str
    recipient: str
    items: tuple[str, ...]
    count: int = Setting(description="envelopes")
    bytes: int = Setting(description="on the wire, of all of them")
    protection: tuple[str, ...]
    unsafe: bool = Setting(description="something of it left in clear")


class Scope(Strict):
    """Section 1: what was computed, from which kind of data, and who sent what to whom.

    Attributes:
        purpose: of the computation; the purpose in law is not in the files of a run.
        data: public facts about the data, from the plan.
        unknown: what such a section should hold and these files cannot tell.
    """

    purpose: str
    data: tuple[Fact, ...]
    flows: tuple[Flow, ...]
    unknown: tuple[str, ...]


class RoundPart(Strict):
    """What one role sent to another in one round, in bytes."""

    sender: str = Setting(description="a role")
    recipient: str = Setting(description="a role, or `roster`: everyone")
    bytes: int = Setting(description="on the wire")


class RoundBytes(Strict):
    """Planned against seen, for one round; round 0 is everything outside the rounds.

    Attributes:
        planned: upper bound, bytes.
        seen: bytes, planned or not.
        parts: the same by roles, the largest route of the run first.
    """

    round: int = Setting(description="0: outside the rounds")
    planned: int
    seen: int
    parts: tuple[RoundPart, ...]


class Rows(Strict):
    """The weighted rows of one round, as the aggregator and its witnesses recorded them (O10).

    Attributes:
        receivers: clients that were handed a row.
        flattened: rows among them that were brought to the nearest admissible weights; the
            aggregator's word.
        group: on how many others in effect the row rests that rests on the fewest; decimal text,
            ``none`` if no row rests on others.
        others: clients beside a receiver.
        rank: independent combinations of them that one receiver was handed at most, so far.
        solved: how many of them one receiver could solve for at most, did nothing change.
    """

    round: int = Setting(description="in which they were handed out")
    receivers: int
    flattened: int
    group: str
    others: int
    rank: int
    solved: int


class Clustering(Strict):
    """Clusters from a round on: sizes, a cut's sides in its cluster's place, the larger first.

    Attributes:
        round: one more than the run has: the Asks after them.
        apart: clients that were asked in none of them, or not yet.
        signed: rounds in which the cuts were signed that led here from the row before.
    """

    round: int
    sizes: tuple[int, ...] = Setting(description="clients in each cluster")
    apart: int
    signed: tuple[int, ...]


class Clusters(Strict):
    """How clients were split; `unused` counts signed cuts that no client was told of (O5)."""

    signed: bool = Setting(description="the key authority computed and signed each cut")
    rows: tuple[Clustering, ...]
    unused: int = Setting(description="signed cuts that no client was told of")


class SpentAt(Strict):
    """What was spent up to and including a round; the labels stand in :class:`Spending`."""

    round: int = Setting(description="0: before the first")
    value: str = Setting(description="epsilon so far; decimal text or `infinity`")


class Labelled(Strict):
    """One epsilon of section 4, what it counts, and what attacks say of it."""

    what: str = Setting(description="what is counted, in words")
    epsilon: Epsilon
    empirical: Empirical = UNTRIED


class Spending(Strict):
    """One unit's budget: every number with its six labels, and its timeline over the rounds.

    Attributes:
        unit: whose presence is bounded.
        rows: planned and recorded, per message, round and run.
        shares: the planned run with some of the clients missing or colluding (O18).
        target: the budget; decimal text.
        timeline: by the ledger of whoever spent most; at most some dozens of the rounds.
        calibrated: items under clients' own noise; empty where others' noise is counted on.
    """

    unit: str
    rows: tuple[Labelled, ...]
    shares: tuple[Share, ...]
    target: str
    timeline: tuple[SpentAt, ...]
    calibrated: tuple[Calibrated, ...] = ()


class Tried(Strict):
    """Whether attacks were run; their rows stand beside it in the report.

    Attributes:
        state: what became of ``attacks.json``, in one sentence.
        used: it belongs to this run.
        profile, code_digest: of the attacks; empty if none is used.
    """

    state: str
    used: bool
    profile: str = ""
    code_digest: str = ""


class Waived(Strict):
    """Who accepted a finding, why, and until when; days as YYYY-MM-DD.

    Attributes:
        until: the last day on which it holds.
        judged: the day on which that was looked at; `audit report` judges anew.
    """

    owner: str = Setting(description="who accepted it")
    reason: str = Setting(description="in their words")
    until: str
    judged: str


class Change(Strict):
    """One thing that is different from the baseline.

    Attributes:
        move: new, fixed, worse, better, or no longer measured.
        kind: finding, attack, epsilon or egress.
        what: rule and item, attack and payload, or unit; in words.
        severity: of a finding its own; of everything else see :mod:`audits.findings.changes`.
        old, new: values as text; empty where there was none.
        waived: it is a finding, or a failed attack, that somebody accepted.
        fingerprint: SHA-256 (hex) of what is compared, without values.
    """

    move: Move
    kind: Literal["finding", "attack", "epsilon", "egress"]
    what: str
    severity: Literal["critical", "high", "medium", "low", "info"]
    old: str
    new: str
    waived: bool = False
    fingerprint: str


class Changes(Strict):
    """Section 8: what moved since an earlier report.

    Attributes:
        baseline_run, baseline_digest: of that report: its run and SHA-256 (hex) of its bytes.
        notes: what makes the two hard to compare, in sentences.
        same: how many findings, attacks, epsilons and routes did not move.
        changes: new and worse first, the gravest of them first.
    """

    baseline_run: str
    baseline_digest: str
    notes: tuple[str, ...] = ()
    same: int
    changes: tuple[Change, ...]


class Obligation(Strict):
    """Section 9: what a regime asks for, and where this report has evidence. Not legal advice."""

    regime: str = Setting(description="law or standard")
    asks: str = Setting(description="what it asks for, in words")
    evidence: tuple[str, ...] = Setting(description="sections here, and what stands there")
    people: str = Setting(description="what remains for people to supply")


class Method(Strict):
    """Section 10: how the numbers were made.

    Attributes:
        facts: seeds, profile, digests and versions that the files record.
        how: in sentences.
    """

    facts: tuple[Fact, ...]
    how: tuple[str, ...]
