"""Section 1 and the rounds of section 2: what was computed on what, who sent whom how much when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from audits.attacks._shared.payloads import payloads_of
from audits.evidence.charter_file import CharterFile
from audits.evidence.drift import Yardstick
from audits.evidence.ledger_index import LedgerIndex, Sent
from audits.evidence.steps import UNSIGNED_SIDE, Case, Status, Verification
from audits.report import words
from audits.report.models import (
    Count,
    Denied,
    Egress,
    Line,
    MessageFacts,
    PartyFacts,
    PlanDiff,
    Row,
    Unplanned,
)
from audits.report.sections import Fact, Flow, RoundBytes, RoundPart, Rows, Scope
from crypto.signing import key_id
from protocols.disclosures.names import Disclosure
from protocols.plan.learns import not_used, schemes
from protocols.plan.plan import Item, Plan, at_most, plugin_of, times_in_round
from protocols.plan.steps import Service
from protocols.wire.roles import Role
from protocols.wire.roster import EVERYONE

UNKNOWN = (
    "the purpose in law, and its basis",
    "what kinds of people the records are about, and whether they belong to special categories",
    "in which country each party is, and who operates it",
    "how long each site keeps its records, and whatever the policy names no days for",
)
_PLACES = {
    "isolated": "in a process of their own, without keys, network and files; answers alone: its "
    "import, init and round ran beside the clients' keys",
    "in the clients' own process": "beside all clients' keys and data (isolate: false)",
}
PERSONS = "Persons"
"""Which fact says of how many a site needs records to train."""
MOST_ROUNDS = 10_000  # of a plan, listed one by one; beyond, those in which something left
_Route = tuple[str, str]


def scope(
    plan: Plan, egress: Sequence[Egress], smallest: int | None, answers: object = None
) -> Scope:
    """Return section 1 of a report.

    Args:
        plan: of the run.
        egress: its roll-up, from :func:`audits.report.scope.roll_up`.
        smallest: from :func:`smallest_opened`.
        answers: where clients computed them, as ``result.json`` of a simulation says.
    """
    data = plan.data
    return Scope(
        purpose=f"Training with {plan.algorithm} ({plan.form.replace('_', ' ')}) for a task of the "
        f"kind '{data.task}', on data that lie with {words.plural(len(plan.clients), 'client')}.",
        data=(
            Fact(name="Data", value=data.name),
            Fact(name="Made by a generator", value="yes" if data.synthetic else "no"),
            Fact(name="Input features of a record", value=words.number(data.features)),
            *([Fact(name="Edges", value=data.edges)] if data.edges else []),
            Fact(name="Classes", value=words.number(data.classes)),
            Fact(name="Training records of one site, at most", value=words.number(data.records)),
            Fact(name=PERSONS, value=plan.floor_words),
            Fact(
                name="Smallest cohort allowed by the policy",
                value=words.plural(plan.smallest_cohort, "client"),
            ),
            Fact(
                name="Smallest cohort whose total was opened",
                value="none was" if smallest is None else words.plural(smallest, "client"),
            ),
            *_withstood(plan),
            *([Fact(name="Cohorts", value=plan.drawn.words)] if plan.drawn else []),
            *_under(plan),
            *_outside(plan, answers),
        ),
        flows=tuple(_flows(egress)),
        unknown=UNKNOWN,
    )


def _withstood(plan: Plan) -> Iterator[Fact]:
    if words_of_plan := plan.withstands_words:
        yield Fact(name="Dishonest clients that the policy withstands", value=words_of_plan)


def _under(plan: Plan) -> Iterator[Fact]:
    """Yield what encrypts the messages that are compared or weighed, if any are."""
    for name, scheme in schemes(plan.items).items():
        yield Fact(name=f"Encryption of {name}", value=scheme)


def _outside(plan: Plan, answers: object) -> Iterator[Fact]:
    """Yield every plug-in that the run was computed with, and where its answers ran."""
    for entry, digest in plan.plugins.items():
        kind, name = plugin_of(entry) or ("", entry)
        unused = any(warning.startswith(not_used(name)) for warning in plan.warnings)
        value = f"{name}, {digest}{', given and not used' if unused else ''}"
        yield Fact(name=f"Code from outside the program ({kind})", value=value)
    if plan.plugins and answers in _PLACES:
        yield Fact(name="Answers of that code", value=_PLACES[str(answers)])


def smallest_opened(ledger_index: LedgerIndex) -> int | None:
    """Return over how few clients a total was opened, by the ledgers; None if none was opened."""
    return min((entry["survivors"] for _, entry in ledger_index.totals()), default=None)


def weighed(ledger_index: LedgerIndex, plan: Plan) -> tuple[Rows, ...]:
    """Return what the aggregator recorded of each round's weights, in order."""
    return tuple(
        Rows(
            round=entry["round"],
            receivers=entry["receivers"],
            flattened=len(entry["flattened"]),
            group=f"{entry['group'] / 1000:.2f}" if entry["group"] else "none",
            others=len(plan.clients) - 1,
            rank=entry["rank"],
            solved=entry["solved"],
        )
        for _, entry in ledger_index.of_kind("weights")
    )


def _flows(egress: Sequence[Egress]) -> list[Flow]:
    routes: dict[_Route, list[Egress]] = {}
    for row in egress:
        routes.setdefault((row.sender_role, row.recipient_role), []).append(row)
    return [
        Flow(
            sender=sender,
            recipient=recipient,
            items=tuple(dict.fromkeys(row.item for row in rows)),
            count=sum(row.count for row in rows),
            bytes=sum(row.bytes for row in rows),
            protection=tuple(dict.fromkeys(words.protection(row.protection) for row in rows)),
            unsafe=any(row.unsafe for row in rows),
        )
        for (sender, recipient), rows in routes.items()
    ]


def rounds(plan: Plan, releases: Sequence[Sent], yardstick: Yardstick) -> tuple[RoundBytes, ...]:
    """Return planned and seen bytes of round 0 (outside the rounds) and of every round after it.

    An item that the plan ties to no round counts outside them, whenever it left.

    Args:
        plan: of the run.
        releases: every release, planned or not.
        yardstick: of the same run.
    """
    loose = {item.id for item in plan.items if not item.per_round}
    seen: dict[int, Counter[_Route]] = {}
    total: Counter[_Route] = Counter()
    for sent in releases:
        facts, sender = sent.facts, yardstick.roles.get(sent.party, "unknown")
        route = (sender, yardstick.roles.get(sent.recipient, sent.recipient))
        round = 0 if sent.item in loose else facts["round"]
        seen.setdefault(round, Counter())[route] += facts["bytes"]
        total[route] += facts["bytes"]
    order = sorted(total, key=lambda route: (-total[route], route))
    outside, inside = _planned(plan, yardstick)
    listed = {*range(min(plan.rounds, MOST_ROUNDS) + 1), *seen}
    return tuple(
        RoundBytes(
            round=round,
            planned=inside if 1 <= round <= plan.rounds else 0 if round else outside,
            seen=sum(found.values()),
            parts=tuple(
                RoundPart(sender=r[0], recipient=r[1], bytes=found[r]) for r in order if found[r]
            ),
        )
        for round in sorted(listed)
        for found in (seen.get(round, Counter()),)
    )


def _planned(plan: Plan, yardstick: Yardstick) -> tuple[int, int]:
    """Return the bytes that may leave outside the rounds, and in each of them."""

    def size(item: Item) -> int:
        return yardstick.routes(item) * item.bytes

    outside = at_most(plan.items, lambda i: size(i) * times_in_round(i, 0, plan.rounds))
    return outside, at_most(plan.items, lambda i: size(i) * i.per_round)


def own_summary(case: Case, egress: Sequence[Egress]) -> str:
    """Return the first paragraph about one party's side: what left it, and what it received."""
    side, plan = case.view.side, case.plan
    came = [entry for _, entry in case.ledger_index.of_kind("receipt")]
    role = words.role(case.roster.party(side).role)
    return (
        f"{side} ({role}) took part in training {plan.algorithm} on {plan.data.name} with "
        f"{words.plural(len(plan.clients), 'client')} for up to "
        f"{words.plural(plan.rounds, 'round')} under the policy {plan.policy}. "
        f"{words.plural(sum(row.count for row in egress), 'envelope')} "
        f"({words.size(sum(row.bytes for row in egress))}) left it, and it received "
        f"{words.plural(len(came), 'envelope')} ({words.size(sum(e['bytes'] for e in came))}). "
        "What other parties sent each other is not in its ledger."
    )


def intact(evidence: Verification) -> Line:
    """Return the sixth of the seven lines: does the record hold, and as far as who can show?"""
    question = "Is the evidence intact?"
    if evidence.failed is not None:
        step = evidence.failed
        return Line(question=question, answer=f"No: {step.name}: {step.detail}.", state="FAIL")
    if evidence.side:
        held = "is whole, was signed and fits the plan"
        if evidence.verdict == UNSIGNED_SIDE:
            held = "fits the plan, and no head of it is signed: it may be cut, or anybody's"
        return Line(
            question=question,
            answer=f"As far as {evidence.side} alone can show: its ledger {held}. "
            "What others recorded was not compared: secure-fgl audit gather.",
            state="ATTENTION",
        )
    return Line(
        question=question,
        answer="Self-consistent only: plan, ledgers, receipts and heads agree with one another. "
        "Compare them with the heads that others hold: secure-fgl audit verify.",
        state="ATTENTION",
    )


def approved(evidence: Verification) -> Line:
    """Return the last of the seven lines: whose signatures were held against this plan."""
    question = "Who approved this?"
    step = next((one for one in evidence.steps if one.name == "approvals"), None)
    if step is not None and step.status is Status.OK:
        return Line(question=question, answer=f"{_sentence(step.detail)}.", state="OK")
    if step is not None and step.status is Status.FAIL:
        answer = f"Nobody whose signature holds: {step.detail}."
        return Line(question=question, answer=answer, state="FAIL")
    answer = (
        "Nobody is shown to have: the run holds no signature under its plan. Name approvers in the "
        "policy (secure-fgl approve), or have every party sign a charter."
    )
    return Line(question=question, answer=answer, state="NOBODY")


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


# What left each party: counted from the ledgers, per route and rolled up by role.


_NO_ROLE = "unknown"  # the role of a recipient that is not on the roster
_POSSIBLE = (Service.REFUSAL, Service.TOTALS)  # planned for what may happen; nobody misses them


class _Tally:
    """Counts, bytes and rounds of the releases that share a key."""

    def __init__(self) -> None:
        self.count = self.bytes = self.clipped = self.last = 0
        self.first: int | None = None
        self.senders: set[str] = set()

    def add(self, sent: Sent) -> None:
        facts = sent.facts
        self.count += 1
        self.bytes += facts["bytes"]
        self.clipped += facts["clipped"]
        self.first = facts["round"] if self.first is None else min(self.first, facts["round"])
        self.last = max(self.last, facts["round"])
        self.senders.add(sent.party)

    def facts(self) -> dict[str, int]:
        return {
            "count": self.count,
            "bytes": self.bytes,
            "clipped": self.clipped,
            "first_round": self.first or 0,
            "last_round": self.last,
        }


def _role(yardstick: Yardstick, party: str) -> str:
    return party if party == EVERYONE else yardstick.roles.get(party, _NO_ROLE)


def inventory(releases: Iterable[Sent], yardstick: Yardstick) -> tuple[Row, ...]:
    """Return one row per sender, item, recipient and protection; the clients' first, by name."""
    tallies: dict[tuple[Any, ...], _Tally] = {}
    for sent in releases:
        facts = sent.facts
        protection = (tuple(facts["protection"]), facts["unsafe"])
        said = (facts["messages"], facts["disclosure"])
        key = (sent.party, sent.item, sent.recipient, *said, *protection)
        tallies.setdefault(key, _Tally()).add(sent)

    def place(row: tuple[tuple[Any, ...], _Tally]) -> tuple[Any, ...]:
        return _role(yardstick, row[0][0]) != Role.CLIENT, row[0]

    return tuple(
        Row(
            sender=sender,
            sender_role=_role(yardstick, sender),
            recipient=recipient,
            recipient_role=_role(yardstick, recipient),
            item=item,
            messages=messages,
            disclosure=disclosure,
            protection=protection,
            unsafe=unsafe,
            **tally.facts(),
        )
        for (sender, item, recipient, messages, disclosure, protection, unsafe), tally in sorted(
            tallies.items(), key=place
        )
    )


def roll_up(releases: Iterable[Sent], yardstick: Yardstick) -> tuple[Egress, ...]:
    """Return one row per item, roles and protection: the clients' first, each in plan order."""
    tallies: dict[tuple[Any, ...], _Tally] = {}
    for sent in releases:
        facts = sent.facts
        roles = (_role(yardstick, sent.party), _role(yardstick, sent.recipient))
        protection = (tuple(facts["protection"]), facts["unsafe"])
        key = (sent.item, *roles, facts["disclosure"], facts["messages"], *protection)
        tallies.setdefault(key, _Tally()).add(sent)
    order = {name: place for place, name in enumerate(yardstick.items)}

    def place(row: tuple[tuple[Any, ...], _Tally]) -> tuple[Any, ...]:
        item, sender = row[0][:2]
        return sender != Role.CLIENT, order.get(item, len(order)), row[0]

    rows = sorted(tallies.items(), key=place)
    return tuple(_egress(key, tally, yardstick) for key, tally in rows)


def _egress(key: tuple[Any, ...], tally: _Tally, yardstick: Yardstick) -> Egress:
    name, sender, recipient, disclosure, messages, protection, unsafe = key
    item = yardstick.items.get(name)
    said = [MessageFacts(name=part, fields=()) for part in messages.split("+")]
    if item is not None:
        said = [MessageFacts(name=m.name, fields=m.fields) for m in item.messages]
    return Egress(
        item=name,
        payloads=payloads_of(item, yardstick.plan, yardstick.policy) if item is not None else (),
        sender_role=sender,
        recipient_role=recipient,
        disclosure=disclosure,
        meaning=Disclosure(disclosure).meaning,
        protection=protection,
        unsafe=unsafe,
        planned=item is not None,
        messages=tuple(said),
        learns=dict(item.learns) if item is not None else {},
        senders=len(tally.senders),
        **tally.facts(),
    )


def plan_diff(
    ledger_index: LedgerIndex, releases: Sequence[Sent], yardstick: Yardstick
) -> PlanDiff:
    """Return plan against actual, item by item."""
    seen: dict[str, _Tally] = {}
    for sent in releases:
        seen.setdefault(sent.item, _Tally()).add(sent)
    counts = []
    for item in yardstick.plan.items:
        tally, routes = seen.get(item.id, _Tally()), yardstick.routes(item)
        counts.append(
            Count(
                item=item.id,
                sender=item.sender,
                recipient=item.recipient,
                routes=routes,
                planned=routes * item.times,
                planned_bytes=routes * item.times * item.bytes,
                seen=tally.count,
                seen_bytes=tally.bytes,
            )
        )
    return PlanDiff(
        planned=at_most(yardstick.plan.items, lambda item: yardstick.routes(item) * item.times),
        seen=len(releases),
        items=tuple(counts),
        unplanned=tuple(
            Unplanned(party=v.sent.party, entry=v.sent.seq, item=v.sent.item, what=v.what)
            for v in yardstick.violations(releases)
        ),
        missing=tuple(item.id for item in _missing(yardstick, seen)),
        denied=tuple(
            Denied(
                party=party,
                entry=entry["seq"],
                exchange=entry["exchange"],
                round=entry["round"],
                code=entry["code"],
            )
            for party, entry in ledger_index.of_kind("refusal")
        ),
    )


def _missing(yardstick: Yardstick, seen: Mapping[str, _Tally]) -> Iterator[Item]:
    """Yield what was planned, was to leave, and did not.

    In a run that came to its farewell, an Ask of which nothing left is one that was not needed, as
    a comparison of clients that are alike.
    """
    items = yardstick.plan.items
    asked = {item.exchange for item in items if item.id in seen}
    ended = any(item.part is Service.HEADS and item.id in seen for item in items)
    for item in items:
        needed = not ended or item.exchange in asked or not item.exchange
        planned = needed and item.part not in _POSSIBLE and yardstick.routes(item) * item.times
        instead = (other.id in seen for other in yardstick.plan.instead_of(item))
        if planned and item.id not in seen and not any(instead):
            yield item


def parties(
    ledger_index: LedgerIndex, yardstick: Yardstick, charter: CharterFile | None = None
) -> tuple[PartyFacts, ...]:
    """Return every party on the roster with what it sent and received.

    Args:
        ledger_index: the ledgers.
        yardstick: of the same run.
        charter: says where each party is and whose it is; None without one.
    """
    organisations = charter.organisations if charter is not None else {}
    facts: dict[str, dict[str, int]] = {}
    for kind, (count, size) in _COUNTED.items():
        for party, entry in ledger_index.of_kind(kind):
            mine = facts.setdefault(party, {})
            mine[count] = mine.get(count, 0) + 1
            if size:
                mine[size] = mine.get(size, 0) + entry["bytes"]
    nothing = dict.fromkeys((name for pair in _COUNTED.values() for name in pair if name), 0)
    return tuple(
        PartyFacts(
            name=entry["name"],
            role=entry["role"],
            key=key_id(bytes.fromhex(entry["verify"])),
            organisation=organisations.get(entry["name"], ""),
            **{**nothing, **facts.get(entry["name"], {})},
        )
        for entry in yardstick.roster.document()
    )


_COUNTED = {
    "release": ("sent", "sent_bytes"),
    "receipt": ("received", "received_bytes"),
    "refusal": ("refusals", ""),
}
