"""Keys and budgets: each epoch's key lived no longer than it, and noise was paid for first."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from audits.evidence.run_files import fail
from audits.evidence.steps import Case, Check, NotChecked
from audits.report.words import plural
from crypto.errors import CryptoError
from crypto.merkle import read
from protocols.disclosures._evaluated.ciphers import keyed
from protocols.disclosures._evaluated.guards import evaluated
from protocols.disclosures.names import Disclosure
from protocols.evidence.ledger import Entry
from protocols.plan.steps import Service, Step
from protocols.policy.budget import Budget, Unit, budget_key, budget_origin
from protocols.privacy.accounting import rounded_up
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
    if claims and not case.yardstick.clients:
        raise NotChecked("what clients reserved stands in their own ledgers")
    for unit, claim in claims.items():
        for party in case.yardstick.clients:
            _reserved(case, party, found.get((party, unit), []), unit, claim)
    cosigned = _cosigned(case, found)
    if not claims:
        return "no noise is planned, and no budget was touched"
    clients = len({party for party, _ in found})
    said = f"{clients} clients reserved their budget before any noise was drawn"
    return f"{said}; {plural(cosigned, 'head')} of them cosigned" if cosigned else said


def _cosigned(case: Case, found: Mapping[tuple[str, str], Sequence[Entry]]) -> int:
    """Hold notes on budgets to the ledgers; a simulation's are signed in one process, and unread.

    Raises:
        EvidenceError: at step ``budget``: a note is of no budget that was taken from, not signed by
            the aggregator, or older than the reservation.
    """
    if case.roster_file.simulated:
        return 0
    aggregator = case.roster.one(Role.AGGREGATOR)
    taken = {p if unit == "client" else f"{p}.{unit}": (p, e[0]) for (p, unit), e in found.items()}
    for name, data in case.view.budgets.items():
        if name not in taken:
            fail("budget", "budgets/ holds a note of a budget that nothing was taken from")
        party, entry = taken[name]
        try:
            note = read(data.decode("utf-8"), name=aggregator.name, key=aggregator.verify)
        except (CryptoError, UnicodeDecodeError):
            fail("budget", f"the note on the budget of {party} is not signed by the aggregator")
        if note.origin != budget_origin(party, entry["dataset"]) or note.size <= entry["entries"]:
            fail("budget", f"the note on the budget of {party} is of another one, or of an older")
    return len(case.view.budgets)


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


def own_keys(case: Case) -> str:
    """Hold one party's own keys: the authority's lived as they should, a client used what it took.

    That a client's keys are those which the authority made, only both ledgers show.
    """
    made, secret = _made(case), _schemes(case)
    if not secret:
        return "no sum is encrypted, and there was no key"
    role = case.roster.party(case.view.side).role
    if role is Role.KEY_AUTHORITY:
        return f"{plural(sum(map(len, made.values())), 'key')}, each made and destroyed once"
    if case.view.side not in _takers(case):
        raise NotChecked("this party takes no key of an epoch")
    taken, uploads = set[str](), 0
    for entry in case.ledger_index.entries[case.view.side]:
        if entry["kind"] == "key":
            taken.add(entry["key"][:16])
        item = case.ledger_index.items.get(entry.get("item", ""))
        if entry["kind"] != "release" or item is None or item.step is not Step.UP:
            continue
        uploads += str(item.part) in secret
        if str(item.part) in secret and entry["key"] not in taken:
            fail("keys", f"release {entry['seq']} of {case.view.side} is under a key it never took")
    return f"{plural(uploads, 'upload')} under keys that were taken before"


CHECKS = (
    Check("keys", ("files", "plan", "roster", "chain"), keys),
    Check("budget", ("files", "plan", "roster", "chain"), budget),
)
