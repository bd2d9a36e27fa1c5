"""Clients as witnesses: does every client's ledger hold the same heads of all the others?"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from audits.evidence.run_files import fail
from audits.evidence.steps import Case, Check
from audits.report.words import plural
from protocols.evidence.ledger import SILENT, Entry, Line, client_items, received, tree, word_of
from protocols.plan.steps import Service, Step

_WITHOUT = (Service.PAIRS, Service.TOTALS)
"""Whose messages to clients bring no root."""


def witnesses(case: Case) -> str:
    """Recompute each root over all clients' heads, and find it in every ledger that got it."""
    roots, lines = _told(case)
    signed, asked = _noted(case, roots, lines), 0
    refused = {party: entry["exchange"] for party, entry in case.ledger_index.of_kind("refusal")}
    for sent in case.ledger_index.releases():
        if sent.party != case.exchanges.aggregator or sent.step is not Step.DOWN:
            continue
        if case.ledger_index.receipt(sent, sent.recipient) is None or sent.part in _WITHOUT:
            continue
        if sent.exchange >= refused.get(sent.recipient, sent.exchange + 1):
            continue  # it refused in this exchange or before, and its session was over
        asked += 1
        if (sent.recipient, sent.exchange) not in signed and not case.ledger_index.in_cut(sent):
            fail(
                "witnesses",
                f"{sent.recipient} wrote down no heads of the others in exchange {sent.exchange}",
            )
    last = max(roots, default=0)
    end = (Service.HEADS, Step.DOWN)
    ends = [s for s in case.ledger_index.releases_of(last) if (s.part, s.step) == end]
    left = sum(case.ledger_index.receipt(s, s.recipient) is not None for s in ends)
    said = f"{plural(len(roots), 'root')} over all clients' heads, in {asked} places"
    missing = sum(signed.values())
    said += f"; {plural(missing, 'receipt')} say that something was lost" if missing else ""
    if not left:
        return f"{said}; nobody was told the last heads"
    return said if left == len(ends) else f"{said}; {left} of {len(ends)} were told the last heads"


def roots(case: Case) -> str:
    """Recompute each root that the aggregator gave out from its own receipts, on its own side."""
    found, _ = _told(case)
    return (
        f"{plural(len(found), 'root')} over the heads that were received; that all clients hold "
        "the same, only their ledgers show"
    )


def _told(case: Case) -> tuple[dict[int, bytes], dict[int, dict[str, Line]]]:
    """Return each root that the aggregator gave out, recomputed, and the lines under it."""
    clients = case.roster.clients
    lines: dict[str, Line] = {}
    roots: dict[int, bytes] = {}
    under: dict[int, dict[str, Line]] = {}
    for entry in case.ledger_index.entries[case.exchanges.aggregator]:
        if entry["kind"] == "receipt" and entry["sender"] in clients:
            before = lines.get(entry["sender"], SILENT)
            facts = entry["exchange"], entry["item"], entry["commitment"], entry["sender_head"]
            lines[entry["sender"]] = received(before, *facts)
        if entry["kind"] != "heads":
            continue
        number, (root, _) = entry["exchange"], tree(clients, lines)
        if number in roots:
            fail("witnesses", f"the aggregator gave out two roots in exchange {number}")
        if not hmac.compare_digest(root.hex(), entry["root"]):
            fail(
                "witnesses",
                f"the root of exchange {number} is not over the heads that these ledgers hold",
            )
        roots[number], under[number] = root, dict(lines)
    return roots, under


def _noted(
    case: Case, roots: Mapping[int, bytes], lines: Mapping[int, Mapping[str, Line]]
) -> dict[tuple[str, int], int]:
    """Return (client, exchange) -> whether a receipt was missing, for every note of a root."""
    noted: dict[tuple[str, int], int] = {}
    for party, entry in case.ledger_index.of_kind("heads"):
        if party == case.exchanges.aggregator:
            continue
        place = party, entry["exchange"]
        if place in noted:
            fail("witnesses", f"{party} wrote down two roots in exchange {place[1]}")
        root = roots.get(place[1])
        if root is None or not hmac.compare_digest(root.hex(), entry["root"]):
            fail(
                "witnesses",
                f"{party} holds another root over all heads of exchange {place[1]} "
                "than these ledgers give",
            )
        _same_line(case, party, entry, lines[place[1]].get(party, SILENT))
        noted[place] = entry["missing"]
    return noted


def _same_line(case: Case, party: str, entry: Entry, line: Line) -> None:
    """Fail unless a client was told what the aggregator had received from it."""
    if not {"received", "items", "missing"} <= set(entry):
        fail("witnesses", f"entry {entry['seq']} of {party} does not say which receipt it checked")
    word = word_of(line[1], client_items(case.plan.items))
    if (entry["received"], entry["items"]) != (line[0], word):
        fail("witnesses", f"{party} was told of another receipt than the aggregator recorded")


ROOTS = Check("witnesses", ("files", "plan", "roster", "chain"), roots)
WITNESSES = Check("witnesses", ("files", "plan", "roster", "chain", "receipts"), witnesses)
