"""Keys and budgets: each epoch's key lived no longer than it, and noise was paid for first."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from audits.accounting.models import rounded_up
from audits.asks import SUM_UP
from audits.steps import Case, Check
from audits.view import fail
from audits.words import plural
from protocols.budget import Budget, Unit, budget_key
from protocols.ledger import Entry
from protocols.roster import Role

_DIGEST = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"\d{1,20}(\.\d{1,20})?([eE][+-]?\d{1,3})?")


def keys(case: Case) -> str:
    """Each epoch's key was made once, used in it only, and destroyed before the next (O9)."""
    made = _made(case)
    received = {party: _received(case, party, made) for party in case.roster.clients}
    encrypted, uploads = "key.call" in {item.id for item in case.plan.items}, 0
    for sent in case.book.releases() if encrypted else ():
        if sent.item.endswith(SUM_UP):
            uploads += 1
            epoch = case.asks.epoch(sent.round)
            if sent.facts["key"] != made.get(epoch, "")[:16]:
                fail("keys", f"release {sent.seq} of {sent.party} is not under its epoch's key")
            if received.get(sent.party, {}).get(epoch, sent.seq) >= sent.seq:
                fail("keys", f"release {sent.seq} of {sent.party} is under a key it never took")
    if not encrypted:
        return "no sum is encrypted, and there was no key"
    kept = f"{plural(len(made), 'key')}, each made and destroyed once"
    return f"{kept}; {plural(uploads, 'upload')} under the key of their epoch"


def _made(case: Case) -> dict[int, str]:
    """Return epoch -> key, as the key authority's own ledger tells their lives."""
    authorities = case.roster.names(Role.KEY_AUTHORITY)
    for party, entry in case.book.of_kind("key"):
        role = case.roster.party(party).role
        wanted = ("received",) if role is Role.CLIENT else ("made", "destroyed")
        if role is Role.AGGREGATOR or entry["event"] not in wanted:
            fail("keys", f"entry {entry['seq']} of {party} is of a key that is not its own")
    found: dict[int, str] = {}
    for party in authorities:
        live = ""
        for entry in case.book.entries.get(party, []):
            live = _next(case, entry, live, found)
        if live:
            fail("keys", f"the last key of {party} was not destroyed (O9)")
    return found


def _next(case: Case, entry: Entry, live: str, found: dict[int, str]) -> str:
    """Return the key that is alive after an entry of the authority; note its epoch."""
    kind = entry["kind"]
    if kind == "key" and entry["event"] == "made":
        if live:
            fail("keys", "a key was made before the one before it was destroyed (O9)")
        if entry["key"] in found.values() or entry.get("scheme") != case.plan.scheme:
            fail("keys", "a key was made twice, or of another scheme than planned")
        return str(entry["key"])
    if kind == "key":
        if not live or entry["key"] != live:
            fail("keys", "a key was destroyed that was not alive")
        return ""
    if kind == "release" and entry["item"] == "key.offer":
        epoch = case.asks.epoch(entry["round"])
        if not live or epoch in found:
            fail("keys", "a second key was offered in one epoch (O9)")
        found[epoch] = live
    elif kind == "open" and found.get(case.asks.epoch(entry["round"])) != live:
        fail("keys", f"exchange {entry['exchange']} was opened with another epoch's key (O9)")
    elif kind == "close" and live:
        fail("keys", "the run ended before its key was destroyed (O9)")
    return live


def _received(case: Case, party: str, made: dict[int, str]) -> dict[int, int]:
    """Return epoch -> the entry with which a client took that epoch's key."""
    found: dict[int, int] = {}
    epoch = -1
    for entry in case.book.entries.get(party, []):
        if entry["kind"] == "receipt" and entry["item"] == "key.offer":
            epoch = case.asks.epoch(entry["round"])
        elif entry["kind"] == "key":
            if entry["key"] != made.get(epoch) or epoch in found:
                fail("keys", f"entry {entry['seq']} of {party} is of a key that nobody offered")
            found[epoch] = entry["seq"]
    return found


class _Claim(NamedTuple):
    """What a budget of one unit may be spent on.

    Attributes:
        cap: the policy's.
        draws: tells whether an entry says that noise was drawn.
    """

    cap: Budget | None
    draws: Callable[[Entry], bool]


def _claims(case: Case) -> dict[Unit, _Claim]:
    noised = {item.id for item in case.plan.items if item.noise is not None}
    found: dict[Unit, _Claim] = {}
    if noised:
        found["client"] = _Claim(
            case.policy.budget, lambda e: e["kind"] == "release" and e["item"] in noised
        )
    if (training := case.plan.training) is not None:
        cap = case.policy.training.budget if case.policy.training is not None else None
        found[training.unit] = _Claim(cap, lambda e: e["kind"] == "training")
    return found


def budget(case: Case) -> str:
    """Where noise is planned, every client reserved its budget before any noise was drawn (O20)."""
    claims = _claims(case)
    found: dict[tuple[str, str], list[Entry]] = {}
    for party, entry in case.book.of_kind("budget"):
        unit = entry.get("unit", "client")
        if unit not in claims or case.roster.party(party).role is not Role.CLIENT:
            fail("budget", f"{party} took from a budget, and no noise is planned for it")
        found.setdefault((party, unit), []).append(entry)
    for unit, claim in claims.items():
        for party in case.roster.clients:
            _reserved(case, party, found.get((party, unit), []), unit, claim)
    if not claims:
        return "no noise is planned, and no budget was touched"
    clients = len({party for party, _ in found})
    return f"{clients} clients reserved their budget before any noise was drawn"


def _reserved(case: Case, party: str, found: Sequence[Entry], unit: Unit, claim: _Claim) -> None:
    if len(found) != 1:
        fail("budget", f"{party} reserved its budget {len(found)} times, not once (O20)")
    (entry,) = found
    if entry["dataset"] != budget_key(case.plan.data.name, unit) or not entry["entries"]:
        fail("budget", f"{party} took from the budget of other data")
    numbers = (entry["epsilon"], entry["delta"])
    if not (_DIGEST.fullmatch(entry["head"]) and all(map(_NUMBER.fullmatch, numbers))):
        fail("budget", f"the budget entry of {party} states no head or no number")
    (epsilon, delta), cap = map(float, numbers), claim.cap
    # What an entry states is rounded up, so what it is compared with must be too.
    if cap is None or epsilon > float(rounded_up(cap.epsilon)) or delta > cap.delta:
        fail("budget", f"the budget of {party} is exceeded (O20)")
    for other in case.book.entries.get(party, []):
        if claim.draws(other) and other["seq"] < entry["seq"]:
            fail("budget", f"{party} noised a message before it reserved its budget (O20)")


CHECKS = (
    Check("keys", ("files", "plan", "roster", "chain"), keys),
    Check("budget", ("files", "plan", "roster", "chain"), budget),
)
