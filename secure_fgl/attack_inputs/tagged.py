"""What the attacks on item rows and on tags are given, from captured rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from algorithms._shared.item_expansion import by_popularity
from audits.attacks import ItemRows, Tagged
from audits.attacks._shared.material import Rows
from audits.evidence.steps import Case
from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.protocol.tagging import TAG_BYTES, public_tags
from protocols.disclosures.match.protocol.wire import public_key
from protocols.disclosures.match.run import match_guard, match_item
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.run import row_item, rows_guard
from protocols.errors import EvidenceError
from protocols.evidence.captures import captured_rounds
from protocols.forms import Exchange
from protocols.messages import Array, Message, NoisedMessage, SumMessage, partial_of
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.rounds import Reply
from protocols.sessions.store.recording import Captured
from protocols.wire.codec import decode
from protocols.wire.envelope import Envelope
from protocols.wire.roles import Role
from secure_fgl.attack_inputs.captured_sent import Arrays, fields, items_of, ratings_of
from secure_fgl.attack_inputs.mixtures import Replayed, answered

# --- What the attack on item rows is given: what was said of them in captured rounds, and of it
# seen ---
#
# As `secure_fgl.attack_inputs.materials` for updates: what a client said before protection is
# computed again. Rows that left one by one are read from the client's own envelope; of a sum, from
# the total.

Clear = Callable[[Captured, Exchange, type[Message]], Arrays]
"""Reads a sum's message from the client's own envelope, where it left in clear."""


def item_material(
    run: Replayed,
    answers: Mapping[str, Sequence[Captured]],
    replies: Mapping[int, Reply],
    clear: Clear,
) -> list[ItemRows]:
    """Return every client's captured gradients of item rows, by client and round.

    Args:
        run: code and data.
        answers: client -> its captured answers, held against its ledger.
        replies: exchange number -> what the aggregator captured of it.
        clear: see `Clear`.
    """
    asked = {e.name: (e, kind) for e in run.form.exchanges for kind in _kinds(e)}
    found, totals, block = [], dict[int, Rows](), run.case.plan.dims.get("block", 0)
    for client, captured in sorted(answers.items()):
        if client not in run.training:  # it never opened its canaries' coins
            continue
        held, begun, table = items_of(run.sites[client], run.task.spec), 0, None
        for answer in captured:
            if held is None or answer.exchange not in asked:
                continue
            exchange, kind = asked[answer.exchange]
            raw = _computed(answered(run.training[client], answer, exchange, kind))
            seen, cohort = _seen(run, client, answer, exchange, kind, replies, clear, totals)
            catalogue, number = run.case.plan.dims["items"], _block(answer)
            begun = begun if number else answer.number  # blocks of one gradient are one message
            raw = _shifted(raw, number * block)
            seen = None if seen is None else _shifted(seen, number * block)
            table = _table(run.task, answer) if not number else table
            facts = (held, raw, seen, cohort, ratings_of(run.sites[client]), table)
            found.append(ItemRows(client, answer.round, begun, catalogue, *facts))
    return found


def _table(task: Any, answer: Captured) -> Any:
    """Return each item's vector and bias as they were handed out, (items, h + 1); None: unknown."""
    layout = dict(task.layout())
    weights = next((m.weights for m in answer.given if hasattr(m, "weights")), None)
    if weights is None or "items.table" not in layout:
        return None
    items, width = layout["items.table"]
    whole = np.asarray(weights, dtype=np.float64)[: items * (width + 1)]
    vectors, biases = whole[: items * width].reshape(items, width), whole[items * width :]
    return np.hstack([vectors, biases[:, None]])


def _kinds(exchange: Exchange) -> list[type[Message]]:
    """Return the messages of an exchange that hold item rows, at most one."""
    sums = [k for k in exchange.back if issubclass(k, SumMessage) and any(f.held for f in k.fields)]
    alone = [k for k in exchange.back if issubclass(k, NoisedMessage) and _numbered(k)]
    return [*sums, *alone][:1]


def _block(answer: Captured) -> int:
    """Return which block of rows an answer holds."""
    return next((int(getattr(given, "block", 0)) for given in answer.given), 0)


def _shifted(rows: Rows, start: int) -> Rows:
    return rows[0] + start, rows[1]


def _numbered(kind: type[Message]) -> str:
    """Return the field that numbers the rows of a message; empty: it holds all of them."""
    return next((f.name for f in kind.fields if f.wire == "u8" and f.shape[:1] == ("sent",)), "")


def _rows(kind: type[Message], values: Mapping[str, Any]) -> Rows:
    """Return the rows that a message's fields say; of all rows, those that are not zero."""
    number = _numbered(kind)
    field = next(f for f in kind.fields if len(f.shape) == 2 and (f.held or number))
    rows = np.asarray(values[field.name], dtype=np.float64)
    if number:
        return np.asarray(values[number], dtype=np.int64), rows
    there = np.flatnonzero(rows.any(axis=1))
    return there, rows[there]


def _computed(message: Message) -> Rows:
    """Return the rows that a client computed, before protection."""
    partial = partial_of(message)
    return _rows(type(message), partial.fields if partial else fields(message))


def _seen(
    run: Replayed,
    client: str,
    answer: Captured,
    exchange: Exchange,
    kind: type[Message],
    replies: Mapping[int, Reply],
    clear: Clear,
    totals: dict[int, Rows],
) -> tuple[Rows | None, int]:
    """Return the rows that the receiver read of an answer, and how many clients' they are."""
    case, number = run.case, answer.number
    arrived = case.exchanges.all[number].arrived
    if issubclass(kind, NoisedMessage):
        return _said(run, answer, exchange, kind), 1
    if find(case.policy.chain(Disclosure.SUM), "unsafe_clear") is not None:
        return _rows(kind, clear(answer, exchange, kind)), 1
    if not issubclass(kind, SumMessage) or number not in replies or client not in arrived:
        return None, 0
    if number not in totals:
        total: Message = replies[number].total(kind)
        totals[number] = _rows(kind, fields(total))
    return totals[number], len(arrived)


def _said(run: Replayed, answer: Captured, exchange: Exchange, kind: type[Message]) -> Rows:
    """Return the rows of the client's own envelope; a number beyond the catalogue is nobody's."""
    item = run.case.plan.find(exchange.name, kind.disclosure, Step.UP)
    sent = (Envelope.decode(data) for data in answer.sent)
    body = next(envelope.body for envelope in sent if envelope.header.item == item.id)
    kinds = [k for k in exchange.back if k.disclosure is kind.disclosure]
    messages = decode(kinds, bytes(body), {**run.case.plan.dims, **item.dims})
    number, rows = _rows(kind, fields(next(m for m in messages if type(m) is kind)))
    number = number.astype(np.int64)
    there = number < run.case.plan.dims["items"]
    return number[there], rows[there]


# --- What the attacks on tags are given: what was compared in captured rounds, and what is true of
# it ---
#
# Items, or the nodes of rows that are found by tags; an item is then a node's public number. The
# matcher captured the tags, every client which of its own are of which item, every tag server what
# its share makes by itself. Nothing that a ledger says was compared may be missing, and clients and
# matcher must have captured the same tags.

Views = Callable[[str, Role], Mapping[int, Mapping[str, bytes]]]
"""Reads what a tag server or the matcher captured, by exchange number."""


def tag_material(
    run: Replayed, answers: Mapping[str, Sequence[Captured]], views: Views
) -> list[Tagged]:
    """Return every captured matching, oldest first.

    Args:
        run: code and data.
        answers: client -> its captured answers, held against its ledger.
        views: see `Views`.

    Raises:
        EvidenceError: something that was to be captured is missing, or captures contradict.
    """
    case, kind = run.case, _matching(run)
    if kind is None:
        return []
    rounds = captured_rounds(case.policy.capture, case.plan.rounds)
    (matcher,) = case.roster.names(Role.MATCHER)
    told = [
        e for p, e in case.ledger_index.of_kind(kind.entry) if p == matcher and e["round"] in rounds
    ]
    compared = views(matcher, Role.MATCHER)
    servers = {s: views(s, Role.TAG_SERVER) for s in sorted(case.roster.names(Role.TAG_SERVER))}
    found = []
    for entry in told:
        number = entry["exchange"]
        if number not in compared or any(number not in view for view in servers.values()):
            _fail(f"lacks what it captured while {kind.what} were matched")
        own = {c: a for c, those in answers.items() for a in those if a.number == number}
        known = _known(case, kind.entry, number, own, compared[number])
        alone = tuple(_table_tags(view[number]["alone"]) for view in servers.values())
        items = kind.items(own, compared[number])
        found.append(_tagged(run, kind, entry["round"], compared[number], known, alone, items))
    return found


@dataclass(frozen=True)
class _Matching:
    """What a run has tags of.

    Attributes:
        what: in words.
        entry: kind of the ledger entries that say who took part.
        guard: how tags are made.
        catalogue: how many things there are to make tags of.
        items: gives, of clients that were compared, all that each has, (k,) numbers of the
            catalogue; of its captured answers by client.
    """

    what: str
    entry: str
    guard: Match
    catalogue: int
    items: Callable[[Mapping[str, Captured], Mapping[str, bytes]], dict[str, Array]]


def _matching(run: Replayed) -> _Matching | None:
    """Return what is matched in a run, items or the nodes of rows; None if nothing is."""
    case = run.case
    if match_item(case.plan) is not None:
        guard = match_guard(case.policy.rules.get(Disclosure.MATCH, ()))
        catalogue = case.plan.dims["items"]

        def rated(own: Mapping[str, Captured], there: Mapping[str, bytes]) -> dict[str, Array]:
            place = np.argsort(_order(run, catalogue))
            return {c: place[items_of(run.sites[c], run.task.spec)] for c in there}

        return None if guard is None else _Matching("items", "match", guard, catalogue, rated)
    rows = rows_guard(case.policy)
    if row_item(case.plan) is None or rows is None:
        return None
    return _Matching("nodes", "rows", rows.tags, case.plan.dims["nodes"], _nodes)


def _nodes(own: Mapping[str, Captured], there: Mapping[str, bytes]) -> dict[str, Array]:
    """Return the nodes that clients have, or have an edge to: none is left out of their tags."""
    tags = {client: own[client].tags for client in there if client in own}
    return {client: one["items"] for client, one in tags.items() if one is not None}


def _fail(what: str) -> NoReturn:
    raise EvidenceError("captured", f"a party {what}")


def _known(
    case: Case,
    kind: str,
    number: int,
    own: Mapping[str, Captured],
    compared: Mapping[str, bytes],
) -> dict[bytes, int]:
    """Return tag -> item of all clients, whose captures must be the matcher's."""
    truth: dict[bytes, int] = {}
    told = {p for p, e in case.ledger_index.of_kind(kind) if e["exchange"] == number}
    for client, sent in compared.items():
        tags = own[client].tags if client in own else None
        if tags is None:
            if client in told:
                _fail("lacks the tags that its ledger says it had compared")
            continue
        if np.ascontiguousarray(tags["sent"]).tobytes() != sent:
            _fail("captured other tags than the matcher")
        rows = _cut(sent)
        truth |= {rows[r]: int(i) for i, r in zip(tags["items"], tags["rows"], strict=True)}
    return truth


def _cut(data: bytes) -> list[bytes]:
    return [data[at : at + TAG_BYTES] for at in range(0, len(data), TAG_BYTES)]


def _table_tags(data: bytes) -> dict[bytes, int]:
    return {tag: item for item, tag in enumerate(_cut(data))}


def _tagged(
    run: Replayed,
    kind: _Matching,
    round: int,
    compared: Mapping[str, bytes],
    truth: Mapping[bytes, int],
    alone: tuple[Mapping[bytes, int], ...],
    items: Mapping[str, Array],
) -> Tagged:
    guard, catalogue = kind.guard, kind.catalogue
    public = guard.mode == "deterministic"
    opened = public_tags(public_key(run.case.roster), catalogue) if public else []
    return Tagged(
        round=round,
        keyed=guard.mode == "hmac",
        quota=guard.places,
        left_out=int(guard.popular * catalogue),
        catalogue=catalogue,
        sent={client: tuple(_cut(data)) for client, data in compared.items()},
        truth=truth,
        items=items,
        alone=alone,
        opened={tag: item for item, tag in enumerate(opened)},
    )


def _order(run: Replayed, catalogue: int) -> Array:
    """Return the items in the order of the public list, the most popular first."""
    chosen = run.config.algorithm
    popular = chosen.options.get(chosen.name, {}).get("popular", ())
    return by_popularity(popular, catalogue)
