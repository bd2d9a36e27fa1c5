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
from audits.report.learning import Curve
from audits.report.sections import (
    Changes,
    Clusters,
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

REPORT_VERSION: Literal[9] = 9
Severity = Literal["critical", "high", "medium", "low", "info"]
State = Literal["OK", "ATTENTION", "FAIL", "NOT TESTED", "NOBODY"]


class Tool(Strict):
    """What made the report."""

    name: str = Setting("secure-fgl", description="the program")
    report_version: int = Setting(REPORT_VERSION, description="number of the report's format")


class Head(Strict):
    """The end of one party's ledger: number of entries and Merkle root (hex, RFC 9162)."""

    party: str = Setting(description="whose ledger")
    entries: int = Setting(description="how many it has")
    root: str = Setting(description="Merkle root, hex")


class Subject(Strict):
    """Which run this is about."""

    run: str = Setting(description="name of the run: 32 hex digits")
    algorithm: str = Setting(description="name, as in the catalogue")
    form: str = Setting(description="which variant of the algorithm")
    dataset: str = Setting(description="name, as in the plan")
    task: str = Setting(description="what is predicted: nodes, graphs or ratings")
    synthetic: bool = Setting(description="the data were generated")
    rounds: int = Setting(description="planned; a run may stop earlier")
    clients: int = Setting(description="how many the plan names")
    smallest_cohort: int = Setting(description="no total is of fewer clients")
    scheme: str = Setting(description="encryption of sums, or `none`")
    policy: str = Setting(description="the policy's name")
    plan_digest: str = Setting(description="SHA-256 of the plan, hex")
    policy_digest: str = Setting(description="SHA-256 of the policy, hex")
    roster_digest: str = Setting(description="SHA-256 of the roster, hex")
    first_entry: str = Setting(description="time of the first ledger entry; empty if none")
    last_entry: str = Setting(description="time of the last ledger entry; empty if none")
    heads: tuple[Head, ...]


class PartyFacts(Strict):
    """One party: role, short name of its key, its charter's names if any, what it sent and got."""

    name: str = Setting(description="as on the roster")
    role: str = Setting(description="client, aggregator, key authority, ...")
    key: str = Setting(description="first 16 hex digits of the SHA-256 of its signing key")
    organisation: str = Setting("", description="by the charter; empty without one")
    sent: int = Setting(description="envelopes")
    sent_bytes: int = Setting(description="on the wire")
    received: int = Setting(description="envelopes")
    received_bytes: int = Setting(description="on the wire")
    refusals: int = Setting(description="how often it refused")


class Line(Strict):
    """One line of the verdict strip."""

    question: str = Setting(description="as a reader would ask it")
    answer: str = Setting(description="in a sentence or two")
    state: State = Setting(description="what it amounts to")


class Count(Strict):
    """Planned against actual, for one item.

    Attributes:
        routes: sender-recipient pairs on which it may travel.
        planned, planned_bytes: upper bounds for the whole run.
    """

    item: str = Setting(description="of the plan, for example `train.up.SUM`")
    sender: str = Setting(description="a role")
    recipient: str = Setting(description="a role, or `roster`: all")
    routes: int
    planned: int
    planned_bytes: int
    seen: int = Setting(description="envelopes in the ledgers")
    seen_bytes: int = Setting(description="their bytes on the wire")


class Unplanned(Strict):
    """A release that the plan does not hold; `what` says why."""

    party: str = Setting(description="who sent it")
    entry: int = Setting(description="its number in that ledger")
    item: str = Setting(description="what it says that it is")
    what: str = Setting(description="why the plan does not hold it")


class Denied(Strict):
    """A refusal entry: who refused, in which exchange, with which code of the closed list."""

    party: str = Setting(description="who refused")
    entry: int = Setting(description="its number in that ledger")
    exchange: int = Setting(description="number of the exchange")
    round: int = Setting(description="0: outside the rounds")
    code: str = Setting(description="one of a closed list")


class PlanDiff(Strict):
    """Plan against actual: `planned` counts the larger of two ways, `seen` every release."""

    planned: int = Setting(description="envelopes, at most")
    seen: int = Setting(description="envelopes in the ledgers")
    items: tuple[Count, ...]
    unplanned: tuple[Unplanned, ...]
    missing: tuple[str, ...] = Setting(description="items that never left, though planned")
    denied: tuple[Denied, ...]


Moment = Literal[
    "while keys were agreed on", "while items were matched", "before the request reached it",
    "before it answered", "before its answer arrived", "before the survivor list reached it",
    "before its vote arrived", "before the votes reached it", "before its shares arrived",
]  # fmt: skip


class Vanished(Strict):
    """A client that vanished: in which exchange, and how far it came."""

    client: str = Setting(description="its name")
    round: int = Setting(description="0: outside the rounds")
    exchange: int = Setting(description="number of the exchange")
    moment: Moment = Setting(description="how far it came")


class LostRound(Strict):
    """An Ask that came to nothing, with which its round was skipped.

    Attributes:
        arrived: clients whose answers were there.
        votes: holders that voted for the survivor list; None if there was none.
        shares: the fewest holders that gave shares of one client's seed; None if none were asked.
            Votes and shares are counted as the aggregator received them.
        may_be_opened: enough shares left their holders, by the holders' own ledgers; that they were
            lost on the way, the aggregator alone says.
    """

    round: int = Setting(description="that was skipped")
    exchange: int = Setting(description="number of the exchange")
    ask: str = Setting(description="name of the Ask")
    arrived: int
    votes: int | None
    shares: int | None
    may_be_opened: bool = Setting(description="enough shares left, by the holders' own ledgers")


class Dropouts(Strict):
    """Who vanished when, and which rounds were skipped, by all ledgers."""

    vanished: tuple[Vanished, ...]
    lost: tuple[LostRound, ...]

    @property
    def openable(self) -> tuple[int, ...]:
        """The rounds that were skipped, and whose total may have been opened all the same."""
        return tuple(sorted({one.round for one in self.lost if one.may_be_opened}))


class RoleView(Strict):
    """What one role, or some together, could see, in words.

    Attributes:
        received: envelopes that were addressed to it; None for collusions and the network.
    """

    viewer: str = Setting(description="a role, or roles with `+` between them")
    received: int | None
    sees: tuple[str, ...] = Setting(description="what it could see, in sentences")


class MessageFacts(Strict):
    """One message type inside an item, with its fields."""

    name: str = Setting(description="of the message's class")
    fields: tuple[FieldPlan, ...]


class Egress(Strict):
    """What left on all routes of one item together: the roll-up by role.

    Attributes:
        payloads: P01 to P21, what it discloses first, then the forms it takes on its way.
        senders: how many parties sent it.
        clipped: how many envelopes had a value cut at the clipping bound.
        learns: per role, in words.
    """

    item: str = Setting(description="of the plan, for example `train.up.SUM`")
    payloads: tuple[str, ...]
    sender_role: str = Setting(description="whose role sent it")
    recipient_role: str = Setting(description="`roster`: everyone")
    disclosure: str = Setting(description="its key, for example `SUM`")
    meaning: str = Setting(description="what that discloses, in words")
    protection: tuple[str, ...] = Setting(description="guards, in order")
    unsafe: bool = Setting(description="it left in clear")
    planned: bool = Setting(description="the plan holds it")
    messages: tuple[MessageFacts, ...]
    learns: dict[str, str]
    senders: int
    count: int = Setting(description="envelopes")
    bytes: int = Setting(description="on the wire, of all of them")
    clipped: int
    first_round: int = Setting(description="0: outside the rounds")
    last_round: int = Setting(description="the last in which it left")


class Row(Strict):
    """Inventory: one sender, item, recipient and protection. Fields and learns: see the roll-up."""

    sender: str = Setting(description="a party")
    sender_role: str = Setting(description="its role")
    recipient: str = Setting(description="a party, or `roster`: everyone")
    recipient_role: str = Setting(description="its role")
    item: str = Setting(description="of the plan")
    messages: str = Setting(description="their names, joined by `+`")
    disclosure: str = Setting(description="its key, for example `SUM`")
    protection: tuple[str, ...] = Setting(description="guards, in order")
    unsafe: bool = Setting(description="it left in clear")
    count: int = Setting(description="envelopes")
    bytes: int = Setting(description="on the wire, of all of them")
    clipped: int = Setting(description="envelopes with a value cut at the bound")
    first_round: int = Setting(description="0: outside the rounds")
    last_round: int = Setting(description="the last in which it left")


class Account(Strict):
    """One statement of formal privacy: whose, over what, how much, and what it does not cover.

    Attributes:
        epsilon: of the run; ``infinity`` unless every message derived from data is covered (O16).
        recorded, target: of the covered messages: what the ledgers show of the client that spent
            most, and what was planned; ``infinity`` without noise.
        borne_out: the record does not exceed what was planned; empirical: what attacks say of it.
    """

    unit: str = Setting(description="whose presence is bounded")
    scope: str = Setting(description="over what: the run, or a round")
    mechanism: str = Setting(description="kind of noise, in words")
    epsilon: str
    recorded: str
    target: str
    borne_out: bool
    delta: str = Setting(description="decimal text")
    covered: tuple[str, ...] = Setting(description="plan items")
    not_covered: tuple[str, ...] = Setting(description="plan items that tell of data all the same")
    statement: str = Setting(description="the one sentence to quote")
    empirical: Empirical = UNTRIED


class Finding(Strict):
    """Something a reader should know. The fingerprint survives re-runs: it holds no values."""

    id: str = Setting(description="F01, F02, ... in this report")
    rule: str = Setting(description="name of the rule that found it")
    severity: Severity = Setting(description="how grave it is")
    payload: str = Setting("", description="P01 to P21, if it is about one; else empty")
    item: str = Setting(description="plan item that it is about; empty if none")
    recipient_role: str = Setting(description="who reads it; empty if nobody in particular")
    message: str = Setting(description="what was found")
    remediation: str = Setting(description="what to do next")
    fingerprint: str = Setting(description="SHA-256 (hex) of what it is about")
    waiver: Waived | None = Setting(None, description="who accepted it; it stays visible")
    limitation: str = Setting("", description="which part of LIMITATIONS.md says more, by id")


class Integrity(Strict):
    """Is the evidence intact? The steps are those of ``audit verify``, less the report's own.

    Attributes:
        result_digest, metrics_digest: SHA-256 (hex) of the bytes of ``result.json`` and
            ``metrics.jsonl``; the aggregator's ledger ends with the latter.
    """

    verdict: str = Setting(description="in words, as `audit verify` says it")
    steps: tuple[StepFacts, ...]
    result_digest: str
    metrics_digest: str


class Report(Shown):
    """What left each client, whether it was planned, what it reveals, and if the record holds."""

    facts: ClassVar = ("subject.algorithm", "subject.policy", "subject.run", "integrity.verdict")
    listed: ClassVar = ("verdict_strip", "question", "state", "answer")

    schema_version: Literal[9] = Setting(REPORT_VERSION, description="number of the format")
    tool: Tool = Setting(default_factory=Tool)
    subject: Subject
    transport: str = Setting(description="how messages travelled: `memory` or `broker`")
    side: str = Setting("", description="the party whose ledger alone is told; empty: all parties")
    notes: tuple[str, ...] = Setting(description="what to read first; empty if nothing")
    summary: str = Setting(description="the run in a few sentences")
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
    references: tuple[Fact, ...] = ()
    curves: tuple[Curve, ...] = ()
    method: Method
    limits: tuple[str, ...] = Setting(description="what is not shown, or not protected")
    integrity: Integrity
