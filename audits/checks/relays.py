"""Batches that a relay took the senders off: each Ask once, and over what had arrived (O23).

The relay writes down of whom it got boxes before it opens them. So a batch without such an entry,
or over too few clients, or over two different sets of a round, is found without a look inside.
"""

from __future__ import annotations

from collections import defaultdict
from typing import NoReturn

from audits.evidence.asked import Asked
from audits.evidence.exchanges import facts_of
from audits.evidence.run_files import fail
from audits.evidence.steps import Case
from audits.report.words import plural, relayed
from protocols.disclosures.names import Disclosure
from protocols.evidence.ledger import Entry
from protocols.plan.plan import Item
from protocols.plan.steps import Part, Step
from protocols.wire.roles import Role


def relays(case: Case) -> str:
    """Every batch was relayed once, over a whole set of survivors.

    Part of the step ``opened``; returns a clause for its sentence, empty if nothing was relayed.
    """
    told = list(case.ledger_index.of_kind("relay"))
    once: set[tuple[str, Part, int]] = set()
    rounds: dict[int, list[Asked]] = defaultdict(list)
    ups = {item.id: item for item in case.plan.all_of(step=Step.UP) if relayed(item.guards)}
    for party, entry in told:
        if case.roster.party(party).role is not Role.RELAY:
            _fail(entry, f"were relayed by {party}, which is no relay")
        up = ups.get(entry["item"])
        if up is None:
            _fail(entry, "are of no such exchange")
        if (up.exchange, up.part, entry["exchange"]) in once:
            _fail(entry, "were relayed twice (O23)")
        once.add((up.exchange, up.part, entry["exchange"]))
        ask = _counted(case, entry, up)
        _returned(ask, up, party, entry)
        for other in rounds[ask.round]:
            if ask.arrived & other.arrived and ask.arrived != other.arrived:
                _fail(entry, "overlap another cohort of their round (O5)")
        rounds[ask.round].append(ask)
    for sent in case.ledger_index.releases():
        if sent.step is Step.RELAYED and (sent.ask, sent.part, sent.exchange) not in once:
            fail("opened", f"the batch of exchange {sent.exchange} left {sent.party} unrecorded")
    if not told:
        return ""
    mixed = [e for _, e in told if ups[e["item"]].disclosure is Disclosure.MIXED]
    what = "mixtures" if len(mixed) == len(told) else "messages"
    return f"; {what} of {plural(len(told), 'Ask')} relayed, each once"


def _fail(entry: Entry, what: str) -> NoReturn:
    fail("opened", f"the messages of exchange {entry['exchange']} {what}")


def _counted(case: Case, entry: Entry, up: Item) -> Asked:
    """Return the Ask of a batch; raises unless it is over just what the aggregator had received."""
    ask = case.exchanges.all.get(entry["exchange"])
    if ask is None or ask.name != up.exchange:
        _fail(entry, "are of no such exchange")
    if not ask.of(up.part, Step.RELAY):
        _fail(entry, "were relayed, and nobody handed them over")
    if entry["survivors"] < case.plan.smallest_cohort:
        _fail(entry, f"are those of {entry['survivors']} clients")
    cohort = ask.sents[0].facts["cohort"]
    wanted = (ask.number, ask.round, cohort, len(ask.members), len(ask.arrived))
    if facts_of(entry) != wanted:
        _fail(entry, "are not those that had arrived")
    return ask


def _returned(ask: Asked, up: Item, party: str, entry: Entry) -> None:
    """A pool that left the relay stands behind a durable entry."""
    sent = [s for s in ask.of(up.part, Step.RELAYED) if s.party == party]
    if any(s.seq < entry["seq"] for s in sent):
        _fail(entry, "left before that was recorded")
    if not sent and not ask.cut:
        _fail(entry, "were relayed and never returned")
