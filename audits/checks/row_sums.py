"""Rows added up between clients: once in a run, by one canary, within quotas (O24, O25).

Whoever sent on what it made of rows recorded it before; so an entry that is missing was taken out.
"""

from __future__ import annotations

from collections import Counter
from typing import NoReturn

from audits.evidence.run_files import fail
from audits.evidence.steps import Case
from audits.report.words import plural
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.run import rows_guard
from protocols.evidence.ledger import Entry
from protocols.plan.steps import Step
from protocols.wire.roles import Role

_ROWS = Disclosure.ROW_SUM
_RECORDED: dict[Step | None, str] = {
    **dict.fromkeys((Step.ANSWERS, Step.SECOND_ANSWERS), "row_tags"),
    **dict.fromkeys((Step.TAGS, Step.COMPARED, Step.SPLIT, Step.PART), "rows"),
}
"""Step of rows that somebody sent -> kind of the entry that it wrote before."""


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
    _servers(case)
    _nothing_missing(case)
    begun = Counter(
        sent.party
        for sent in case.ledger_index.releases()
        if sent.part is _ROWS and sent.step is Step.UP and rows_guard(case.policy) is not None
    )
    for party, times in begun.items():
        if times > 1:
            fail("opened", f"{party} asked for rows {times} times; once in a run is allowed")
    return f"; rows of {plural(len(begun), 'client')} added up by one canary" if told else ""


def _fail(party: str, entry: Entry, what: str) -> NoReturn:
    fail("opened", f"the rows of exchange {entry['exchange']}, as {party} has them, {what}")


def _servers(case: Case) -> None:
    """Hold tag servers to one batch a client, once in a run, of the policy's size."""
    guard, seen = rows_guard(case.policy), set()
    for party, entry in case.ledger_index.of_kind("row_tags"):
        if case.roster.party(party).role is not Role.TAG_SERVER or party in seen:
            _fail(party, entry, "had tags made by nobody who makes them, or twice (O24)")
        seen.add(party)
        if guard is None or entry["quota"] != guard.tags.places:
            _fail(party, entry, "had another quota than the policy's (O24)")
        if entry["clients"] > len(case.roster.clients):
            _fail(party, entry, "had tags made for more clients than there are")


def _nothing_missing(case: Case) -> None:
    """Demand an entry of everybody who sent on what it made of rows."""
    index = case.ledger_index
    there = {(k, p, e["exchange"]) for k in ("row_tags", "rows") for p, e in index.of_kind(k)}
    for sent in index.releases():
        kind = _RECORDED.get(sent.step) if sent.part is _ROWS else None
        if kind is not None and (kind, sent.party, sent.exchange) not in there:
            fail("opened", f"the ledger of {sent.party} lacks the rows behind {sent.item}")
