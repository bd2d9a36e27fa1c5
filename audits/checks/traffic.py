"""Plan against ledger, and receipts: do the parties' records tell one story?"""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from audits.evidence.dropouts import Losses
from audits.evidence.entries import ROUTE
from audits.evidence.ledger_index import Sent
from audits.evidence.run_files import fail
from audits.evidence.steps import Case, Check
from audits.report.words import plural

_NAMED = 5  # clients that a sentence lists


def plan_vs_ledger(case: Case) -> str:
    """Each release is a planned item, on its route, in size, number and protection."""
    releases = case.ledger_index.releases()
    yardstick = case.yardstick
    for found in yardstick.violations(releases):
        fail("plan_vs_ledger", f"release {found.sent.seq} of {found.sent.party} {found.what}")
    return f"all {len(releases)} releases are as planned"


def receipts(case: Case) -> str:
    """Every receipt belongs to a release; every release has its receipts, or is explained."""
    ledger_index, releases = case.ledger_index, {}
    for sent in ledger_index.releases():
        key = (sent.party, sent.commitment)
        if key in releases:
            fail("receipts", f"{sent.party} recorded one envelope twice")
        releases[key] = sent
    received = _match(case, releases)
    losses, cut, lost = Losses(case), 0, list[tuple[int, str]]()
    for sent in releases.values():
        for party in sent.addressees(case.roster):
            if (party, sent.party, sent.commitment) in received:
                continue
            if ledger_index.in_cut(sent):
                cut += 1
            elif (client := losses.explained(sent, party)) is not None:
                lost.append((sent.round, client))
            else:
                fail("receipts", f"{party} has no receipt of release {sent.seq} of {sent.party}")
    said = f"{len(received)} receipts match {len(releases)} releases"
    if lost:
        said += f"; {plural(len(lost), 'envelope')} lost with clients that vanished: {_who(lost)}"
    return said + (f"; the run ended early: {cut} envelopes were under way" if cut else "")


def _who(lost: Iterable[tuple[int, str]]) -> str:
    found = sorted(set(lost))
    named = ", ".join(f"{client} in round {round}" for round, client in found[:_NAMED])
    return named + (f" and {len(found) - _NAMED} more" if len(found) > _NAMED else "")


def _match(case: Case, releases: dict[tuple[str, str], Sent]) -> set[tuple[str, str, str]]:
    received: set[tuple[str, str, str]] = set()
    for party, entry in case.ledger_index.of_kind("receipt"):
        sender, commitment = entry["sender"], entry["commitment"]
        where = f"receipt {entry['seq']} of {party}"
        sent = releases.get((sender, commitment))
        if sent is None:
            fail("receipts", f"{where} is of an envelope that nobody recorded as sent")
        if party not in sent.addressees(case.roster):
            fail("receipts", f"{where} is of an envelope for somebody else")
        if any(entry[name] != sent.facts[name] for name in (*ROUTE, "bytes")):
            fail("receipts", f"{where} says something else than the sender's release")
        if not hmac.compare_digest(entry["sender_head"].encode(), sent.prev.encode()):
            fail("receipts", f"{where} saw another ledger of the sender than this one")
        if (party, sender, commitment) in received:
            fail("receipts", f"{where} is there twice")
        received.add((party, sender, commitment))
    return received


CHECKS = (
    Check("plan_vs_ledger", ("files", "plan", "roster", "chain"), plan_vs_ledger),
    Check("receipts", ("files", "plan", "roster", "chain"), receipts),
)
