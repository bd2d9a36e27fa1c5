"""Keys and budgets: each epoch's key lived no longer than it, and noise was paid for first."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from audits.accounting.models import rounded_up
from audits.evidence.run_files import fail
from audits.evidence.steps import Case, Check
from audits.report.words import plural
from protocols.disclosures._evaluated.ciphers import keyed
from protocols.disclosures._evaluated.guards import evaluated
from protocols.disclosures.names import Disclosure
from protocols.evidence.ledger import Entry
from protocols.plan.steps import Service, Step
from protocols.policy.budget import Budget, Unit, budget_key
from protocols.wire.roles import Role, takers

_DIGEST = re.compile(r"[0-9a-f]{64}")
_NUMBER = re.compile(r"\d{1,20}(\.\d{1,20})?([eE][+-]?\d{1,3})?")


def keys(case: Case) -> str:
    """Each epoch's key was made once, used in it only, and destroyed before the next (O9)."""
    made = _made(case)
    received = {party: _received(case, party, made) for party in _takers(case)}
    secret, uploads = _schemes(case), 0
    for sent in case.ledger_index.releases():
        if secret and sent.planned is None:  # what it holds, and under which key, nobody can say
            fail("keys", f"release {sent.seq} of {sent.party} is not under its epoch's key")
        if sent.step is Step.UP and str(sent.part) in secret:
            uploads += 1
            epoch = case.exchanges.epoch(sent.round)
            key = made.get(epoch, {}).get(secret[str(sent.part)], "")
            if sent.facts["key"] != key[:16]:
                fail("keys", f"release {sent.seq} of {sent.party} is not under its epoch's key")
            if received.get(sent.party, {}).get(epoch, sent.seq) >= sent.seq:
                fail("keys", f"release {sent.seq} of {sent.party} is under a key it never took")
    if not secret:
        return "no sum is encrypted, and there was no key"
    kept = f"{plural(sum(map(len, made.values())), 'key')}, each made and destroyed once"
    return f"{kept}; {plural(uploads, 'upload')} under the key of their epoch"


def _takers(case: Case) -> list[str]:
    """Return who takes an epoch's public keys; the aggregator, which hands them on, aside."""
    roles = (r for r in takers(Service.KEYS, Step.OFFER) if r is not Role.AGGREGATOR)
    return [name for role in roles for name in case.roster.names(role)]


def _schemes(case: Case) -> dict[str, str]:
    """Return disclosure -> scheme, of what is encrypted under a key of the authority."""
    found = {}
    for disclosure in keyed(case.plan.items, case.policy):
        guard = evaluated(case.policy.chain(disclosure))
        found[str(disclosure)] = guard.scheme if guard is not None else case.plan.scheme
    return found


def _made(case: Case) -> dict[int, dict[str, str]]:
    """Return epoch -> scheme -> key, as the key authority's own ledger tells their lives."""
    authorities, receiving = case.roster.names(Role.KEY_AUTHORITY), set(_takers(case))
    for party, entry in case.ledger_index.of_kind("key"):
        role = case.roster.party(party).role
        wanted = ("received",) if party in receiving else ("made", "destroyed")
        if role is Role.AGGREGATOR or entry["event"] not in wanted:
            fail("keys", f"entry {entry['seq']} of {party} is of a key that is not its own")
    found: dict[int, dict[str, str]] = {}
    for party in authorities:
        live: dict[str, str] = {}
        for entry in case.ledger_index.entries.get(party, []):
            _next(case, entry, live, found)
        if live:
            fail("keys", f"the last key of {party} was not destroyed (O9)")
    return found


def _next(case: Case, entry: Entry, live: dict[str, str], found: dict[int, dict[str, str]]) -> None:
    """Follow an entry of the authority: which keys are alive after it, and of which epoch."""
    kind = entry["kind"]
    if kind == "key" and entry["event"] == "made":
        _new(case, entry, live, found)
    elif kind == "key":
        dead = [scheme for scheme, key in live.items() if key == entry["key"]]
        if not dead:
            fail("keys", "a key was destroyed that was not alive")
        del live[dead[0]]
    elif kind == "release" and _offers(case, entry):
        epoch = case.exchanges.epoch(entry["round"])
        if set(live) != set(_schemes(case).values()) or epoch in found:
            fail("keys", "a second key was offered in one epoch (O9)")
        found[epoch] = dict(live)
    elif kind == "open":
        said, schemes = entry.get("disclosure", str(Disclosure.SUM)), _schemes(case)
        if said not in schemes and said != Disclosure.SUM:
            return  # nothing of it is under an epoch's key
        scheme = schemes.get(said, "")
        offered = found.get(case.exchanges.epoch(entry["round"]), {})
        if scheme not in live or offered.get(scheme) != live[scheme]:
            fail("keys", f"exchange {entry['exchange']} was opened with another epoch's key (O9)")
    elif kind == "close" and live:
        fail("keys", "the run ended before its key was destroyed (O9)")


def _offers(case: Case, entry: Entry) -> bool:
    """Tell whether a release or a receipt is of an epoch's public keys."""
    item = case.ledger_index.items.get(entry["item"])
    return item is not None and (item.part, item.step) == (Service.KEYS, Step.OFFER)


def _new(case: Case, entry: Entry, live: dict[str, str], found: dict[int, dict[str, str]]) -> None:
    scheme, used = entry.get("scheme", ""), {k for keys in found.values() for k in keys.values()}
    if scheme in live or any(live.get(s) == k for keys in found.values() for s, k in keys.items()):
        fail("keys", "a key was made before the one before it was destroyed (O9)")
    if entry["key"] in used | set(live.values()) or scheme not in _schemes(case).values():
        fail("keys", "a key was made twice, or of another scheme than planned")
    live[scheme] = entry["key"]


def _received(case: Case, party: str, made: dict[int, dict[str, str]]) -> dict[int, int]:
    """Return epoch -> the entry with which a client took the last of that epoch's keys."""
    found: dict[int, int] = {}
    epoch, left = -1, list[str]()
    for entry in case.ledger_index.entries.get(party, []):
        if entry["kind"] == "receipt" and _offers(case, entry):
            epoch = case.exchanges.epoch(entry["round"])
            left = list(made.get(epoch, {}).values()) if epoch not in found else []
        elif entry["kind"] == "key":
            if entry["key"] not in left:
                fail("keys", f"entry {entry['seq']} of {party} is of a key that nobody offered")
            left.remove(entry["key"])
            if not left:
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
    caps = case.policy.budgets
    found: dict[Unit, _Claim] = {}
    if noised:
        found["client"] = _Claim(
            caps.get("client"), lambda e: e["kind"] == "release" and e["item"] in noised
        )
    counted: dict[Unit, set[str]] = {}
    for item in case.plan.items:
        if item.counted is not None:
            counted.setdefault(item.counted.unit, set()).add(item.id)
    if (training := case.plan.training) is not None:
        scored = counted.get(training.unit, set())
        found[training.unit] = _Claim(
            caps.get(training.unit),
            lambda e: e["kind"] == "training" or (e["kind"] == "release" and e["item"] in scored),
        )
    if rows := counted.get("node"):
        found["node"] = _Claim(
            caps.get("node"), lambda e: e["kind"] == "release" and e["item"] in rows
        )
    return found


def budget(case: Case) -> str:
    """Where noise is planned, every client reserved its budget before any noise was drawn (O20)."""
    claims = _claims(case)
    found: dict[tuple[str, str], list[Entry]] = {}
    for party, entry in case.ledger_index.of_kind("budget"):
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
    for other in case.ledger_index.entries.get(party, []):
        if claim.draws(other) and other["seq"] < entry["seq"]:
            fail("budget", f"{party} noised a message before it reserved its budget (O20)")


CHECKS = (
    Check("keys", ("files", "plan", "roster", "chain"), keys),
    Check("budget", ("files", "plan", "roster", "chain"), budget),
)
