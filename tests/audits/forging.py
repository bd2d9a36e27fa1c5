"""Ledgers written anew: what a party, or all parties together, can forge with their own keys."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from audits.evidence.run_files import RunView
from crypto.merkle import Checkpoint, Tree
from crypto.signing import SigningKey, canonical
from protocols.evidence.ledger import (
    SILENT,
    Entry,
    Line,
    client_items,
    head_of,
    origin_of,
    read_lines,
    received,
    tree,
    word_of,
)
from protocols.wire.envelope import NONE
from tests.audits.toy_run import AGGREGATOR, RESULT, Toy, stated, text


def entries_of(data: bytes) -> list[Entry]:
    """Return the entries of a ledger."""
    return [entry for entry, _ in read_lines(data)]


def write(entries: Iterable[Mapping[str, Any]]) -> bytes:
    """Write entries as a ledger whose chain holds: what a careful forger does."""
    lines, head = b"", NONE
    for number, entry in enumerate(entries):
        line = canonical({**entry, "seq": number, "prev": head}) + b"\n"
        lines, head = lines + line, head_of(line)
    return lines


def sign(toy_run: Toy, party: str, data: bytes, key: SigningKey | None = None) -> str:
    """Return a signed head over a ledger; by default with the party's own key."""
    tree = Tree()
    for line in data.splitlines(keepends=True):
        tree.append(line)
    note = Checkpoint(origin_of(toy_run.run, party), tree.size, tree.root())
    return note.sign(key or toy_run.identities[party].signing, party)


def forge(
    toy_run: Toy,
    view: RunView,
    party: str,
    change: Callable[[list[Entry]], list[Entry]],
    *,
    key: SigningKey | None = None,
) -> RunView:
    """Return the view after `party` itself rewrote its ledger and signed the new head."""
    data = write(change(entries_of(view.ledgers[party])))
    return replace(
        view,
        ledgers={**view.ledgers, party: data},
        checkpoints={**view.checkpoints, party: sign(toy_run, party, data, key)},
        reports={},
    )


def edit_last(kind: str, **facts: object) -> Callable[[list[Entry]], list[Entry]]:
    """Return a change of facts of the last entry of a kind, for :func:`forge`."""

    def change(entries: list[Entry]) -> list[Entry]:
        place = max(n for n, entry in enumerate(entries) if entry["kind"] == kind)
        return [*entries[:place], {**entries[place], **facts}, *entries[place + 1 :]]

    return change


def without_models(toy_run: Toy) -> RunView:
    """Return a run whose ledger says that it left no model, as a folder without checkpoints."""
    none = {**stated(model_sha256=None), "model": "", "best": ""}
    found = forge(toy_run, toy_run.view(reports=False), AGGREGATOR, edit_last("close", result=none))
    result = text({**RESULT, "model_sha256": None})
    return replace(found, weights={}, result_text=result)


Change = Callable[[str, Entry], list[Entry]]


class _Heads:
    """Makes the roots over all clients' heads again, as the aggregator does."""

    def __init__(self, toy_run: Toy) -> None:
        self._clients = toy_run.roster.clients
        self._items = client_items(toy_run.plan.items)
        self._lines: dict[str, Line] = {}
        self._roots: dict[int, tuple[str, dict[str, Line]]] = {}

    def hear(self, entry: Entry) -> None:
        sender = entry["sender"]
        if sender in self._clients:
            facts = entry["exchange"], entry["item"], entry["commitment"], entry["sender_head"]
            self._lines[sender] = received(self._lines.get(sender, SILENT), *facts)

    def again(self, party: str, entry: Entry) -> Entry:
        number = entry["exchange"]
        if party == "aggregator":
            root = tree(self._clients, self._lines)[0].hex()
            self._roots[number] = root, dict(self._lines)
            return {**entry, "root": root}
        if number not in self._roots:
            return entry
        root, lines = self._roots[number]
        exchange, said = lines.get(party, SILENT)
        return {**entry, "root": root, "received": exchange, "items": word_of(said, self._items)}


def rewrite(toy_run: Toy, view: RunView, change: Change, honest: Collection[str] = ()) -> RunView:
    """Return the view after *all* parties together rewrote their ledgers and signed new heads.

    Every chain, head and receipt is consistent afterwards, so only what `change` did can fail.

    Args:
        toy_run: holds the keys.
        view: to start from.
        change: returns what stands in place of an entry of a party: nothing, one or several.
        honest: clients that keep the roots over all heads which they were given.
    """
    told = _Heads(toy_run)
    waiting = {
        party: [new for entry in entries_of(data) for new in change(party, dict(entry))]
        for party, data in view.ledgers.items()
    }
    written = dict.fromkeys(view.ledgers, b"")
    heads, seen = dict.fromkeys(view.ledgers, NONE), dict[str, str]()
    sizes = dict.fromkeys(view.ledgers, 0)
    while any(waiting.values()):
        before = dict(sizes)
        for party, entries in waiting.items():
            while entries and (entries[0]["kind"] != "receipt" or entries[0]["commitment"] in seen):
                entry = {**entries.pop(0), "seq": sizes[party], "prev": heads[party]}
                if entry["kind"] == "receipt":
                    entry["sender_head"] = seen[entry["commitment"]]
                    if party == "aggregator":
                        told.hear(entry)
                elif entry["kind"] == "heads" and party not in honest:
                    entry = told.again(party, entry)
                elif entry["kind"] == "release":
                    seen.setdefault(entry["commitment"], heads[party])
                line = canonical(entry) + b"\n"
                written[party] += line
                heads[party], sizes[party] = head_of(line), sizes[party] + 1
        if sizes == before:
            raise ValueError("a receipt stands before the release it is of")
    notes = {party: sign(toy_run, party, data) for party, data in written.items()}
    return replace(view, ledgers=written, checkpoints=notes, reports={})
