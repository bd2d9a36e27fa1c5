"""The report as data. Its JSON Schema: ``secure-fgl schema report``; every object is closed.

Whole numbers are exact; everything else is text, so that two readers print the same report.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field as Setting

from audits.accounting.empirical import UNTRIED, Empirical
from audits.attacks._shared.models import AttackRow, Claim, NotTested
from audits.elsewhere.rehearsal import Rehearsed
from audits.elsewhere.sites import AtSites
from audits.report.sections import (
    Changes,
    Clusters,
    Cost,
    Fact,
    Method,
    Obligation,
    RoundBytes,
    Rows,
    Scope,
    Spending,
    StepFacts,
    Tried,
    Waived,
)
from protocols.plan.plan import FieldPlan
from protocols.shown import Shown
from protocols.strict import Strict

REPORT_VERSION: Literal[7] = 7
Severity = Literal["critical", "high", "medium", "low", "info"]
State = Literal["OK", "ATTENTION", "FAIL", "NOT TESTED"]


class Tool(Strict):
    """What made the report."""

    name: str = "secure-fgl"
    report_version: int = REPORT_VERSION


class Head(Strict):
    """The end of one party's ledger: number of entries and Merkle root (hex, RFC 9162)."""

    party: str
    entries: int
    root: str


class Subject(Strict):
    """Which run this is about."""

    run: str
    algorithm: str
    form: str
    dataset: str
    task: str
    synthetic: bool
    rounds: int
    clients: int
    smallest_cohort: int
    scheme: str
    policy: str
    plan_digest: str
    policy_digest: str
    roster_digest: str
    first_entry: str
    last_entry: str
    heads: tuple[Head, ...]


class PartyFacts(Strict):
    """One party: role, short name of its key, its charter's names if any, what it sent and got."""

    name: str
    role: str
    key: str
    site: str = ""
    organisation: str = ""
    sent: int
    sent_bytes: int
    received: int
    received_bytes: int
    refusals: int


class Line(Strict):
    """One line of the verdict strip."""

    question: str
    answer: str
    state: State


class Count(Strict):
    """Planned against actual, for one item.

    Attributes:
        routes: sender-recipient pairs on which it may travel.
        planned, planned_bytes: upper bounds for the whole run.
    """

    item: str
    sender: str
    recipient: str
    routes: int
    planned: int
    planned_bytes: int
    seen: int
    seen_bytes: int


class Unplanned(Strict):
    """A release that the plan does not hold; `what` says why."""

    party: str
    entry: int
    item: str
    what: str


class Denied(Strict):
    """A refusal entry: who refused, in which exchange, with which code of the closed list."""

    party: str
    entry: int
    exchange: int
    round: int
    code: str


class PlanDiff(Strict):
    """Plan against actual: `planned` counts the larger of two ways, `seen` every release."""

    planned: int
    seen: int
    items: tuple[Count, ...]
    unplanned: tuple[Unplanned, ...]
    missing: tuple[str, ...]
    denied: tuple[Denied, ...]


Moment = Literal[
    "while keys were agreed on", "while items were matched", "before the request reached it",
    "before it answered", "before its answer arrived", "before the survivor list reached it",
    "before its vote arrived", "before the votes reached it", "before its shares arrived",
]  # fmt: skip


class Vanished(Strict):
    """A client that vanished: in which exchange, and how far it came."""

    client: str
    round: int
    exchange: int
    moment: Moment


class LostRound(Strict):
    """An Ask that came to nothing, with which its round was skipped.

    Attributes:
        arrived: clients whose answers were there.
        votes: holders that voted for the survivor list; None if there was none.
        shares: the fewest holders that gave shares of one client's seed; None if none were asked.
    """

    round: int
    exchange: int
    ask: str
    arrived: int
    votes: int | None
    shares: int | None


class Dropouts(Strict):
    """Who vanished when, and which rounds were skipped, by all ledgers."""

    vanished: tuple[Vanished, ...]
    lost: tuple[LostRound, ...]


class RoleView(Strict):
    """What one role, or some together, could see, in words.

    Attributes:
        received: envelopes that were addressed to it; None for collusions and the network.
    """

    viewer: str
    received: int | None
    sees: tuple[str, ...]


class MessageFacts(Strict):
    """One message type inside an item, with its fields."""

    name: str
    fields: tuple[FieldPlan, ...]


class Egress(Strict):
    """What left on all routes of one item together: the roll-up by role.

    Attributes:
        payloads: P01 to P21, what it discloses first, then the forms it takes on its way.
        senders: how many parties sent it.
        clipped: how many envelopes had a value cut at the clipping bound.
        learns: per role, in words.
    """

    item: str
    payloads: tuple[str, ...]
    sender_role: str
    recipient_role: str
    disclosure: str
    meaning: str
    protection: tuple[str, ...]
    unsafe: bool
    planned: bool
    messages: tuple[MessageFacts, ...]
    learns: dict[str, str]
    senders: int
    count: int
    bytes: int
    clipped: int
    first_round: int
    last_round: int


class Row(Strict):
    """Inventory: one sender, item, recipient and protection. Fields and learns: see the roll-up."""

    sender: str
    sender_role: str
    recipient: str
    recipient_role: str
    item: str
    messages: str
    disclosure: str
    protection: tuple[str, ...]
    unsafe: bool
    count: int
    bytes: int
    clipped: int
    first_round: int
    last_round: int


class Account(Strict):
    """One statement of formal privacy: whose, over what, how much, and what it does not cover.

    Attributes:
        epsilon: of the run; ``infinity`` unless every message derived from data is covered (O16).
        recorded, target: of the covered messages: what the ledgers show of the client that spent
            most, and what was planned; ``infinity`` without noise.
        borne_out: the record does not exceed what was planned; empirical: what attacks say of it.
    """

    unit: str
    scope: str
    mechanism: str
    epsilon: str
    recorded: str
    target: str
    borne_out: bool
    delta: str
    covered: tuple[str, ...]
    not_covered: tuple[str, ...]
    statement: str
    empirical: Empirical = UNTRIED


class Finding(Strict):
    """Something a reader should know. The fingerprint survives re-runs: it holds no values.

    Attributes:
        payload: P01 to P21, if it is about one; else empty.
        waiver: who accepted it; it stays visible.
    """

    id: str
    rule: str
    severity: Severity
    payload: str = ""
    item: str
    recipient_role: str
    message: str
    remediation: str
    fingerprint: str
    waiver: Waived | None = None


class Integrity(Strict):
    """Is the evidence intact? The steps are those of ``audit verify``, less the report's own.

    Attributes:
        result_digest, metrics_digest: SHA-256 (hex) of the bytes of ``result.json`` and
            ``metrics.jsonl``; the aggregator's ledger ends with the latter.
    """

    verdict: str
    steps: tuple[StepFacts, ...]
    result_digest: str
    metrics_digest: str


class Report(Shown):
    """What left each client, whether it was planned, what it reveals, and if the record holds."""

    facts: ClassVar = ("subject.algorithm", "subject.policy", "subject.run", "integrity.verdict")
    listed: ClassVar = ("verdict_strip", "question", "state", "answer")

    schema_version: Literal[7] = REPORT_VERSION
    tool: Tool = Setting(default_factory=Tool)
    subject: Subject
    transport: str
    side: str = ""
    notes: tuple[str, ...]
    summary: str
    verdict_strip: tuple[Line, ...]
    scope: Scope
    parties: tuple[PartyFacts, ...]
    plan_diff: PlanDiff
    rounds: tuple[RoundBytes, ...]
    dropouts: Dropouts
    clusters: Clusters | None = None
    views: tuple[RoleView, ...]
    egress: tuple[Egress, ...]
    rows: tuple[Rows, ...] = ()
    inventory: tuple[Row, ...]
    accounting: tuple[Account, ...]
    spending: tuple[Spending, ...]
    tried: Tried
    attacks: tuple[AttackRow, ...]
    not_tested: tuple[NotTested, ...]
    claims: tuple[Claim, ...]
    findings: tuple[Finding, ...]
    changes: Changes | None = None
    rehearsed: Rehearsed | None = None
    at_sites: AtSites | None = None
    obligations: tuple[Obligation, ...]
    results: tuple[Fact, ...]
    method: Method
    cost: Cost | None = None
    limits: tuple[str, ...]
    integrity: Integrity
