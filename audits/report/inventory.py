"""What left each party: counted from the ledgers, per route and rolled up by role."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from audits.attacks._shared.payloads import payloads_of
from audits.evidence.charter_file import CharterFile
from audits.evidence.drift import Yardstick
from audits.evidence.ledger_index import LedgerIndex, Sent
from audits.report.models import (
    Count,
    Denied,
    Egress,
    MessageFacts,
    PartyFacts,
    PlanDiff,
    Row,
    Unplanned,
)
from crypto.signing.signatures import key_id
from protocols.disclosures.names import Disclosure
from protocols.plan.plan import Item, at_most
from protocols.plan.steps import Service
from protocols.wire.roles import Role
from protocols.wire.roster import EVERYONE

UNKNOWN = "unknown"  # the role of a recipient that is not on the roster
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
    return party if party == EVERYONE else yardstick.roles.get(party, UNKNOWN)


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
