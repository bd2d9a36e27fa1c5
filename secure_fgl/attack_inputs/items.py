"""What the attack on item rows is given: what was said of them in captured rounds, and of it seen.

As `secure_fgl.attack_inputs.materials` for updates: what a client said before protection is
computed again. Rows that left one by one are read from the client's own envelope; of a sum, from
the total.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from audits.attacks import ItemRows
from audits.attacks._shared.material import Rows
from protocols.disclosures.names import Disclosure
from protocols.forms import Exchange
from protocols.messages import Message, NoisedMessage, SumMessage, partial_of
from protocols.plan.steps import Step
from protocols.policy.guard import find
from protocols.rounds import Reply
from protocols.sessions.store.recording import Captured
from protocols.wire.codec import decode
from protocols.wire.envelope import Envelope
from secure_fgl.attack_inputs.mixtures import Replayed, answered
from secure_fgl.attack_inputs.truths import items_of, ratings_of
from secure_fgl.attack_inputs.updates import Arrays, fields

__all__ = ["item_material"]

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
