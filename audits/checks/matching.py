"""Items matched by tags: one canary for all, one batch a client, cells of the matcher (O24).

Whoever sent on what it made of a matching recorded it before; so an entry that is missing was taken
out.
"""

from __future__ import annotations

from collections import Counter
from typing import NoReturn

from audits.evidence.asked import Asked
from audits.evidence.run_files import fail
from audits.evidence.steps import Case
from audits.report.words import plural
from protocols.disclosures.match.messages import CellTotals, Listed
from protocols.disclosures.match.run import match_guard
from protocols.disclosures.names import Disclosure
from protocols.evidence.ledger import Entry
from protocols.plan.steps import Step
from protocols.wire.roles import Role

_TELLS = (Role.CLIENT, Role.MATCHER, Role.AGGREGATOR)
_RECORDED: dict[Step | None, str] = {
    **dict.fromkeys((Step.ANSWERS, Step.SECOND_ANSWERS), "tags"),
    **dict.fromkeys((Step.COMPARED, Step.SPLIT, Step.TAKEN), "match"),
    Step.TAGS: "canary",
}
"""Step of a matching that somebody sent -> kind of the entry that it wrote before."""


def matching(case: Case) -> str:
    """Every party's record of a matching is there and tells of one canary; quotas were kept.

    Part of the step ``opened``; returns a clause for its sentence, empty if nothing was matched.
    """
    told: dict[int, dict[str, Entry]] = {}
    for party, entry in case.ledger_index.of_kind("match"):
        known = told.setdefault(entry["exchange"], {})
        if case.roster.party(party).role not in _TELLS or party in known:
            _fail(entry, f"was recorded by {party}, or twice")
        known[party] = entry
        ask = case.exchanges.all.get(entry["exchange"])
        if ask is None or not ask.matched or ask.round != entry["round"]:
            _fail(entry, "is of no such exchange")
    for known in told.values():
        _one_story(case, known)
    _one_canary(case)
    refused = _servers(case)
    _nothing_missing(case)
    _often(case)
    if not told:
        return ""
    more = f"; {plural(refused, 'question')} beyond the quota refused" if refused else ""
    return f"; {plural(len(told), 'Ask')} matched, each by one canary{more}"


def _fail(entry: Entry, what: str) -> NoReturn:
    fail("opened", f"the matching of exchange {entry['exchange']} {what}")


def _one_story(case: Case, known: dict[str, Entry]) -> None:
    """Hold clients, matcher and aggregator to one number of cells, and to receipts."""
    entries = list(known.values())
    matchers = [e for p, e in known.items() if case.roster.party(p).role is Role.MATCHER]
    if not matchers:
        _fail(entries[0], "is not in the matcher's ledger")
    (matcher,) = matchers
    for party, entry in known.items():
        client = case.roster.party(party).role is Role.CLIENT
        if entry["cells"] > matcher["cells"] or (client and entry["cells"] != matcher["cells"]):
            _fail(entry, "has other cells at the matcher (O25)")
        if not client and entry.get("clients") != _counted(case, party, entry):
            _fail(entry, f"counts other clients at {party} than envelopes arrived of")


def _one_canary(case: Case) -> None:
    """Hold all who made a matching's tags, or told of it, to one canary, told of a cell or not."""
    seen: dict[int, str] = {}
    for kind in ("canary", "match"):
        for party, entry in case.ledger_index.of_kind(kind):
            ask = case.exchanges.all.get(entry["exchange"])
            if kind == "canary" and (
                case.roster.party(party).role is not Role.CLIENT
                or ask is None
                or not ask.matched
                or ask.round != entry["round"]
            ):
                _fail(entry, f"has a canary of {party}, and the Ask has none")
            if seen.setdefault(entry["exchange"], entry["canary"]) != entry["canary"]:
                _fail(entry, "rests on more than one canary (O24)")


def _servers(case: Case) -> int:
    """Hold tag servers to one epoch a round and one batch a client; return what they refused."""
    guard = match_guard(case.policy.rules.get(Disclosure.MATCH, ()))
    rounds: dict[str, set[int]] = {}
    refused = 0
    for party, entry in case.ledger_index.of_kind("tags"):
        done = rounds.setdefault(party, set())
        ask = case.exchanges.all.get(entry["exchange"])
        if case.roster.party(party).role is not Role.TAG_SERVER or ask is None or not ask.matched:
            _fail(entry, f"had tags made by {party}, and the Ask has none")
        if entry["round"] in done or {entry["epoch"], entry["round"]} != {ask.round}:
            _fail(entry, "had tags made twice in a round (O24)")
        done.add(entry["round"])
        refused += entry["refused"]
        if guard is None or entry["quota"] != guard.places:
            _fail(entry, "had another quota than the policy's (O24)")
        said = {s.step for s in ask.sents if s.party == party}
        asked = _passed(case, ask) if Step.SECOND_ANSWERS in said else len(ask.answered)
        if said and entry["clients"] != asked:
            _fail(entry, f"had tags made for other clients at {party} than envelopes arrived of")
    return refused


def _often(case: Case) -> None:
    """Hold how often each client had items matched to the policy, whatever the plan says."""
    guard = match_guard(case.policy.rules.get(Disclosure.MATCH, ()))
    matched = str(Disclosure.MATCH)
    begun = Counter(
        sent.party
        for sent in case.ledger_index.releases()
        if sent.facts["disclosure"] == matched and sent.party in case.roster.clients
    )
    for party, times in begun.items():
        if guard is not None and times > guard.epochs:
            fail("opened", f"{party} had items matched {times} times, the policy {guard.epochs}")


def _nothing_missing(case: Case) -> None:
    """Demand an entry of everybody who sent on what it made, or handed out what was found."""
    kinds = ("canary", "match", "tags")
    there = {(k, p, e["exchange"]) for k in kinds for p, e in case.ledger_index.of_kind(k)}
    added = {
        e["round"] for p, e in case.ledger_index.of_kind("match") if p == case.exchanges.aggregator
    }
    found = {CellTotals.__name__, Listed.__name__}
    hand_out = {i.id for i in case.plan.items if found & {m.name for m in i.messages}}
    for sent in case.ledger_index.releases():
        kind = _RECORDED.get(sent.step) if sent.part is Disclosure.MATCH else None
        missing = kind is not None and (kind, sent.party, sent.exchange) not in there
        if missing or (sent.item in hand_out and sent.round not in added):
            fail("opened", f"the ledger of {sent.party} lacks the matching behind {sent.item}")


def _counted(case: Case, party: str, entry: Entry) -> int:
    """Return of how many clients the tags, or what they answered last, had arrived."""
    ask: Asked = case.exchanges.all[entry["exchange"]]
    if party == case.exchanges.aggregator:
        taken = case.plan.all_of(Disclosure.MATCH, Step.TAKEN)
        lists = any(item.exchange == ask.name for item in taken)
        return _arrived(case, ask, Step.TAKEN if lists else Step.PART, entry["seq"])
    if not ask.of(Disclosure.MATCH, Step.POINTS):  # in `hmac` mode tags leave first
        return len(ask.answered)
    return _before(case, ask, Step.TAGS, Step.COMPARE)


def _passed(case: Case, ask: Asked) -> int:
    """Return of how many clients points had arrived that went on to the second tag server."""
    return _before(case, ask, Step.ONWARD, Step.SECOND_POINTS)


def _before(case: Case, ask: Asked, step: Step, request: Step) -> int:
    """Return of how many clients a step's answer had arrived when the aggregator asked on."""
    asked = [s.seq for s in ask.of(Disclosure.MATCH, request) if s.party == ask.by]
    return _arrived(case, ask, step, max(asked, default=-1))


def _arrived(case: Case, ask: Asked, step: Step, before: int) -> int:
    """Return of how many clients the aggregator had a step's answer by an entry of its ledger."""
    seqs = (case.ledger_index.receipt(s, ask.by) for s in ask.of(Disclosure.MATCH, step))
    return sum(seq is not None and seq < before for seq in seqs)
