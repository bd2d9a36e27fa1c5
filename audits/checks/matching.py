"""Items matched by tags: one canary for all, one batch a client, cells of the matcher (O24)."""

from __future__ import annotations

from typing import NoReturn

from audits.steps import Case
from audits.view import fail
from audits.words import plural
from protocols.ledger import Entry
from protocols.roster import Role

_TELLS = (Role.CLIENT, Role.MATCHER, Role.AGGREGATOR)


def matching(case: Case) -> str:
    """Every party's record of a matching tells of one canary; no quota was exceeded.

    Part of the step ``opened``; returns a clause for its sentence, empty if nothing was matched.
    """
    told: dict[int, dict[str, Entry]] = {}
    for party, entry in case.book.of_kind("match"):
        known = told.setdefault(entry["exchange"], {})
        if case.roster.party(party).role not in _TELLS or party in known:
            _fail(entry, f"was recorded by {party}, or twice")
        known[party] = entry
        ask = case.asks.all.get(entry["exchange"])
        if ask is None or not ask.matched or ask.round != entry["round"]:
            _fail(entry, "is of no such exchange")
    for known in told.values():
        _one_story(case, known)
    refused = _servers(case)
    if not told:
        return ""
    more = f"; {plural(refused, 'question')} beyond the quota refused" if refused else ""
    return f"; {plural(len(told), 'Ask')} matched, each by one canary{more}"


def _fail(entry: Entry, what: str) -> NoReturn:
    fail("opened", f"the matching of exchange {entry['exchange']} {what}")


def _one_story(case: Case, known: dict[str, Entry]) -> None:
    """Hold clients, matcher and aggregator to one canary and one number of cells."""
    entries = list(known.values())
    if len({entry["canary"] for entry in entries}) != 1:
        _fail(entries[0], "rests on more than one canary (O24)")
    matchers = [e for p, e in known.items() if case.roster.party(p).role is Role.MATCHER]
    if not matchers:
        _fail(entries[0], "is not in the matcher's ledger")
    (matcher,) = matchers
    for party, entry in known.items():
        client = case.roster.party(party).role is Role.CLIENT
        if entry["cells"] > matcher["cells"] or (client and entry["cells"] != matcher["cells"]):
            _fail(entry, "has other cells at the matcher (O25)")


def _servers(case: Case) -> int:
    """Hold tag servers to one epoch a round and one batch a client; return what they refused."""
    rounds: dict[str, set[int]] = {}
    counts: dict[int, set[int]] = {}
    refused = 0
    for party, entry in case.book.of_kind("tags"):
        done = rounds.setdefault(party, set())
        ask = case.asks.all.get(entry["exchange"])
        if case.roster.party(party).role is not Role.TAG_SERVER or ask is None or not ask.matched:
            _fail(entry, f"had tags made by {party}, and the Ask has none")
        if entry["round"] in done or {entry["epoch"], entry["round"]} != {ask.round}:
            _fail(entry, "had tags made twice in a round (O24)")
        done.add(entry["round"])
        refused += entry["refused"]
        if not entry["refused"]:
            counts.setdefault(entry["exchange"], set()).add(entry["clients"])
            if len(counts[entry["exchange"]]) > 1:
                _fail(entry, "had tags made for other clients at each server")
    return refused
