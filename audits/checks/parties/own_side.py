"""The steps of one party's own side of a run: what its files show without anybody else's.

A party holds the charter, its own ledger and its own head. They show that its record is whole, that
what left it was planned and paid for, and what the aggregator told it of what had arrived. They
cannot show what others recorded: that is NOT CHECKED here, and said by name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from audits.checks.parties.own_models import own_models
from audits.evidence.run_files import fail
from audits.evidence.steps import Case, Check, NotChecked
from audits.report.words import plural
from protocols.errors import BadEnvelope
from protocols.evidence.heads import Spoken, client_items
from protocols.evidence.ledger import Entry
from protocols.plan.plan import Item
from protocols.plan.steps import Service, Step
from protocols.wire.roles import Role
from protocols.wire.roster import EVERYONE

ELSEWHERE = "only their ledgers show it: gather all sides (secure-fgl audit gather)"
_WITHOUT = (Service.PAIRS, Service.TOTALS)
"""Whose messages to clients bring no root."""


def _entries(case: Case, kind: str) -> list[Entry]:
    return [e for e in case.ledger_index.entries[case.view.side] if e["kind"] == kind]


def _role(case: Case) -> Role:
    return case.roster.party(case.view.side).role


def receipts(case: Case) -> str:
    """Each own receipt is of a planned envelope for this party; no envelope left or came twice."""
    sent = [s.commitment for s in case.ledger_index.releases()]
    if len(set(sent)) != len(sent):
        fail("receipts", f"{case.view.side} recorded one envelope twice")
    found, often = set[tuple[str, str]](), Counter[tuple[str, str]]()
    for entry in _entries(case, "receipt"):
        item = case.ledger_index.items.get(entry["item"])
        where = f"receipt {entry['seq']} of {case.view.side}"
        if item is None:
            fail("receipts", f"{where} is of no planned item")
        _on_its_route(case, entry, item, where)
        often[entry["sender"], item.id] += 1
        if often[entry["sender"], item.id] > item.times:
            fail("receipts", f"{where} came more often than the planned {item.times} times")
        if (entry["sender"], entry["commitment"]) in found:
            fail("receipts", f"{where} is there twice")
        found.add((entry["sender"], entry["commitment"]))
    return (
        f"{plural(len(found), 'receipt')} of planned envelopes for {case.view.side}; that their "
        "senders recorded the same, only their ledgers show"
    )


def _on_its_route(case: Case, entry: Entry, item: Item, where: str) -> None:
    me, senders = case.view.side, case.roster.names(Role(item.sender))
    mine = EVERYONE if item.recipient == EVERYONE else me
    to = item.recipient in (EVERYONE, str(_role(case)))
    if not to or entry["recipient"] != mine or entry["sender"] not in senders:
        fail("receipts", f"{where} came on another route than planned")
    if entry["sender"] == me:
        fail("receipts", f"{where} is of an envelope of its own")
    if entry["bytes"] > item.bytes or entry["round"] > case.plan.rounds:
        fail("receipts", f"{where} is larger than planned, or of a round beyond the plan")


def witnesses(case: Case) -> str:
    """The aggregator's receipts are of what this client sent, each under a root over all heads."""
    if _role(case) is not Role.CLIENT:
        raise NotChecked("roots over all heads are written down by clients and the aggregator")
    noted, missing = set[int](), 0
    spoken = Spoken(client_items(case.plan.items))
    told = {item.id for item in case.plan.items if item.sender == str(Role.CLIENT)}
    for entry in case.ledger_index.entries[case.view.side]:
        if entry["kind"] == "release" and entry["item"] in told:
            item, commitment, head = entry["item"], entry["commitment"], entry["prev"]
            spoken.add(entry["exchange"], item, commitment, head)
        if entry["kind"] == "heads":
            missing += _noted(case, spoken, entry, noted)
    if silent := [number for number in _with_a_root(case) if number not in noted]:
        fail("witnesses", f"{case.view.side} wrote down no heads in exchange {silent[0]}")
    said = f"{plural(len(noted), 'root')} over all clients' heads, each with a receipt of what left"
    said += f"; {plural(missing, 'receipt')} say that something was lost" if missing else ""
    return f"{said}; that all clients hold the same roots, only their ledgers show"


def _noted(case: Case, spoken: Spoken, entry: Entry, noted: set[int]) -> int:
    """Compare a receipt of the aggregator with what was sent before it; return what it lacks."""
    where = f"entry {entry['seq']} of {case.view.side}"
    if entry["exchange"] in noted:
        fail("witnesses", f"{case.view.side} wrote down two roots in one exchange")
    if not {"received", "items", "missing"} <= set(entry):
        fail("witnesses", f"{where} does not say which receipt it checked")
    noted.add(entry["exchange"])
    try:
        _, lacking = spoken.line(entry["received"], entry["items"])
    except BadEnvelope:
        fail("witnesses", f"{where} is a receipt for what this client never sent")
    if int(lacking) != entry["missing"]:
        fail("witnesses", f"{where} hides, or makes up, that something was lost")
    return int(lacking)


def _with_a_root(case: Case) -> Iterator[int]:
    """Yield the exchanges in which a root came, but where the session ended over it."""
    refused = min((e["exchange"] for e in _entries(case, "refusal")), default=None)
    ended = any(e["state"] != "DEAD" for e in _entries(case, "close"))
    came = []
    for entry in _entries(case, "receipt"):
        item = case.ledger_index.items.get(entry["item"])
        if item is not None and item.step is Step.DOWN and item.part not in _WITHOUT:
            came.append(entry["exchange"])
    last = max(came, default=0)
    for number in came:
        over = refused is not None and number >= refused
        if not over and (ended or number != last):
            yield number


def opened(case: Case) -> str:
    """What this party opened was opened once, over enough clients."""
    found = _entries(case, "open")
    if not found:
        raise NotChecked(f"{case.view.side} opened nothing; what others opened, {ELSEWHERE}")
    if _role(case) not in (Role.AGGREGATOR, Role.KEY_AUTHORITY):
        fail("opened", f"{case.view.side} opened something, and its role opens nothing")
    once: set[tuple[object, ...]] = set()
    for entry in found:
        what = entry["exchange"], entry.get("disclosure", ""), entry.get("digest", "")
        if what in once:
            fail("opened", f"exchange {entry['exchange']} was opened twice (O5)")
        once.add(what)
        if "disclosure" in entry:
            continue  # rows and cosines count their own uploads
        if not case.plan.smallest_cohort <= entry["survivors"] <= entry["members"]:
            fail("opened", f"the total of exchange {entry['exchange']} is over too few clients")
    return f"{plural(len(found), 'opening')}, each once; what had arrived for them, {ELSEWHERE}"


def result(case: Case) -> str:
    """Only the aggregator states a result."""
    there = (case.view.result_text, case.view.metrics_text, case.view.weights)
    if any(there):
        fail("result", "there is a result here, and only the aggregator's side holds one")
    if any("result" in entry for entry in _entries(case, "close")):
        fail("result", f"{case.view.side} states a result and is no aggregator")
    own = own_models(case)
    raise NotChecked(f"{own}the result stands in the aggregator's ledger; {ELSEWHERE}")


def others(case: Case) -> str:
    """Name what one side cannot show."""
    count = len(case.roster.document()) - 1
    raise NotChecked(
        f"that the other {count} parties recorded the same envelopes, heads and openings, and that "
        f"nothing is missing here which they hold: {ELSEWHERE}"
    )


_NEEDS = ("files", "plan", "roster", "chain")
RECEIPTS = Check("receipts", _NEEDS, receipts)
OPENED = Check("opened", _NEEDS, opened)
WITNESSES = Check("witnesses", (*_NEEDS, "receipts"), witnesses)
RESULT = Check("result", ("files", "roster", "chain"), result)
OTHERS = Check("others", ("files", "roster"), others)
