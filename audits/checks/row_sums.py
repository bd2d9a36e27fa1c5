"""Rows added up between clients: once in a run, by one canary, within quotas (O24, O25).

Whoever sent on what it made of rows recorded it before; so an entry that is missing was taken out.
"""

from __future__ import annotations

from collections import Counter
from typing import NoReturn

from audits.evidence.asked import Asked
from audits.evidence.run_files import fail
from audits.evidence.steps import Case
from audits.report.words import plural
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.messages import RowTotals
from protocols.disclosures.row_sum.run import rows_guard
from protocols.evidence.ledger import Entry
from protocols.plan.steps import Step
from protocols.privacy.record_noise import counted_in
from protocols.wire.roles import Role

_ROWS = Disclosure.ROW_SUM
_RECORDED: dict[Step | None, tuple[str, str]] = {
    **dict.fromkeys((Step.ANSWERS, Step.SECOND_ANSWERS), ("row_tags", "clients")),
    **dict.fromkeys((Step.TAGS, Step.COMPARED), ("rows", "canary")),
    Step.SPLIT: ("rows", "adding"),
    Step.PART: ("rows", "clipped"),
}
"""Step of rows that somebody sent -> kind of the entry that it wrote before, and a fact of it."""


def row_sums(case: Case) -> str:
    """Every party's record of rows is there and tells of one canary; each is of one Ask.

    Part of the step ``opened``; returns a clause for its sentence, empty if no rows were added up.
    """
    told = list(case.ledger_index.of_kind("rows"))
    asks = {entry["exchange"] for _, entry in told}
    if len(asks) > 1:
        fail("opened", "rows were added up twice; a node enters one row in a run (O25)")
    canaries = {entry["canary"] for _, entry in told if "canary" in entry}
    for party, entry in told:
        ask = case.exchanges.all.get(entry["exchange"])
        if ask is None or ask.round != entry["round"]:
            _fail(party, entry, "are of no such exchange")
        if len(canaries) > 1:
            _fail(party, entry, "rest on more than one canary (O24)")
        if "clients" in entry and entry["clients"] != _counted(case, ask, party, entry):
            _fail(party, entry, "count other clients than envelopes arrived of")
        _noised(case, party, entry)
    _nothing_twice(told)
    refused = _servers(case)
    _nothing_missing(case)
    begun = Counter(
        sent.party
        for sent in case.ledger_index.releases()
        if sent.part is _ROWS and sent.step is Step.UP and rows_guard(case.policy) is not None
    )
    for party, times in begun.items():
        if times > 1:
            fail("opened", f"{party} asked for rows {times} times; once in a run is allowed")
    if not told:
        return ""
    more = f"; {plural(refused, 'question')} beyond the quota refused" if refused else ""
    return f"; rows of {plural(len(begun), 'client')} added up by one canary{more}"


def _fail(party: str, entry: Entry, what: str) -> NoReturn:
    fail("opened", f"the rows of exchange {entry['exchange']}, as {party} has them, {what}")


def _noised(case: Case, party: str, entry: Entry) -> None:
    """Hold what a client added to the plan's noise, and its nodes to so many rows (ADR 0054)."""
    if "clipped" not in entry:
        return
    noise = counted_in(case.plan.items, "node")
    facts = {name: entry.get(name) for name in ("delta", "epsilon", "scale")}
    wanted = {name: getattr(noise, name, None) for name in facts}
    if facts != wanted:
        _fail(party, entry, "were noised otherwise than planned")
    if noise is not None and entry.get("entered", noise.fields + 1) > noise.fields:
        _fail(party, entry, "hold a node in more rows than the noise covers")


def _nothing_twice(told: list[tuple[str, Entry]]) -> None:
    """Hold each party to one record of each step: rows are assigned and added up once."""
    seen = set()
    for party, entry in told:
        for fact in {"canary", "adding", "clipped"} & set(entry):
            if (party, fact) in seen:
                _fail(party, entry, "stand there twice (O25)")
            seen.add((party, fact))


def _servers(case: Case) -> int:
    """Hold tag servers to one batch a client, once in a run; return what they refused."""
    guard, seen, refused = rows_guard(case.policy), set(), 0
    for party, entry in case.ledger_index.of_kind("row_tags"):
        if case.roster.party(party).role is not Role.TAG_SERVER or party in seen:
            _fail(party, entry, "had tags made by nobody who makes them, or twice (O24)")
        seen.add(party)
        if guard is None or entry["quota"] != guard.tags.places:
            _fail(party, entry, "had another quota than the policy's (O24)")
        ask = case.exchanges.all.get(entry["exchange"])
        if ask is None or {entry["epoch"], entry["round"]} != {ask.round}:
            _fail(party, entry, "had tags made in another round than they were asked in (O24)")
        said = {sent.step for sent in ask.sents if sent.party == party and sent.part is _ROWS}
        if said and entry["clients"] != _counted(case, ask, party, entry):
            _fail(party, entry, "count other clients than envelopes arrived of")
        refused += entry["refused"]
    return refused


def _counted(case: Case, ask: Asked, party: str, entry: Entry) -> int:
    """Return of how many clients had arrived what a party made of rows."""
    if party == ask.by:
        return _arrived(case, ask, Step.PART, entry["seq"])
    if case.roster.party(party).role is Role.MATCHER:
        return _before(case, ask, Step.TAGS, Step.COMPARE)
    if any(sent.party == party and sent.step is Step.SECOND_ANSWERS for sent in ask.sents):
        return _before(case, ask, Step.ONWARD, Step.SECOND_POINTS)
    return len(ask.answered)


def _before(case: Case, ask: Asked, step: Step, request: Step) -> int:
    """Return of how many clients a step's answer had arrived when the aggregator asked on."""
    asked = [sent.seq for sent in ask.of(_ROWS, request) if sent.party == ask.by]
    return _arrived(case, ask, step, max(asked, default=-1))


def _arrived(case: Case, ask: Asked, step: Step, before: int) -> int:
    """Return of how many clients the aggregator had a step's answer by an entry of its ledger."""
    seqs = (case.ledger_index.receipt(sent, ask.by) for sent in ask.of(_ROWS, step))
    return sum(seq is not None and seq < before for seq in seqs)


def _nothing_missing(case: Case) -> None:
    """Demand an entry of everybody who sent on what it made of rows, or handed them out."""
    index, by = case.ledger_index, case.exchanges.aggregator
    there = {
        (kind, party, fact, entry["exchange"])
        for kind in ("row_tags", "rows")
        for party, entry in index.of_kind(kind)
        for fact in entry
    }
    added = {party for kind, party, fact, _ in there if (kind, fact) == ("rows", "canary")}
    totals = {i.id for i in case.plan.items if RowTotals.__name__ in {m.name for m in i.messages}}
    for sent in index.releases():
        kind, fact = _RECORDED.get(sent.step, ("", "")) if sent.part is _ROWS else ("", "")
        missing = kind and (kind, sent.party, fact, sent.exchange) not in there
        if missing or (sent.item in totals and sent.party == by and by not in added):
            fail("opened", f"the ledger of {sent.party} lacks the rows behind {sent.item}")
