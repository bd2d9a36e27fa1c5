"""Lies that all parties tell together: changes for :func:`tests.audits.forging.rewrite`."""

from __future__ import annotations

from audits.evidence.run_files import RunView
from audits.evidence.verify import verify
from protocols.evidence.ledger import Entry
from tests.audits.forging import Change


def finds(step: str, text: str, view: RunView) -> None:
    """Assert that verification fails first at a step, with these words."""
    failed = verify(view).failed
    assert failed is not None, "nothing failed"
    assert failed.name == step, failed
    assert text in failed.detail, failed


def matches(entry: Entry, **facts: object) -> bool:
    return all(entry.get(name) == value for name, value in facts.items())


def drop(owner: str, **facts: object) -> Change:
    return lambda party, entry: [] if party == owner and matches(entry, **facts) else [entry]


def setting(owner: str, facts: dict[str, object], **changed: object) -> Change:
    def change(party: str, entry: Entry) -> list[Entry]:
        mine = owner in ("", party) and matches(entry, **facts)
        return [{**entry, **changed} if mine else entry]

    return change


def both(*changes: Change) -> Change:
    def change(party: str, entry: Entry) -> list[Entry]:
        entries = [entry]
        for one in changes:
            entries = [new for old in entries for new in one(party, old)]
        return entries

    return change


def silent(client: str, *items: str, round: int = 2) -> Change:
    """Take away what a client sent of some items, at both ends."""

    def change(party: str, entry: Entry) -> list[Entry]:
        told = entry.get("sender") == client and entry.get("round") == round
        return [] if told and str(entry.get("item")).endswith(items) else [entry]

    return change


def counts(number: int, exchange: int = 2) -> Change:
    """State another number of survivors everywhere."""
    kinds = ("open", "survivors")
    stated = ({"kind": kind, "exchange": exchange} for kind in kinds)
    return both(*(setting("", facts, survivors=number) for facts in stated))


def untold(client: str, name: str, exchange: int, *kinds: str, keep: bool = False) -> Change:
    """Take away what a client was sent to open a sum, and its own entry about a survivor list.

    `keep`: not the entry.
    """
    items = tuple(f"{name}.{kind}" for kind in kinds)

    def change(party: str, entry: Entry) -> list[Entry]:
        here = entry.get("exchange") == exchange
        told = str(entry.get("item")) in items and entry.get("recipient") == client
        own = party == client and entry["kind"] == "survivors" and "survivors" in kinds and not keep
        return [] if here and (told or own) else [entry]

    return change


def after(owner: str, late: dict[str, object], first: dict[str, object]) -> Change:
    """Move an entry of a party behind a later one."""
    held: list[Entry] = []

    def change(party: str, entry: Entry) -> list[Entry]:
        if party == owner and matches(entry, **late):
            held.append(entry)
            return []
        there = party == owner and held and matches(entry, **first)
        return [entry, held.pop()] if there else [entry]

    return change


def twice(owner: str, kind: str) -> Change:
    def change(party: str, entry: Entry) -> list[Entry]:
        return [entry, dict(entry)] if party == owner and entry["kind"] == kind else [entry]

    return change
