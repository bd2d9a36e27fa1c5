"""What attacks are given of vectors that are weighed: FED-PUB's models, FedEgo's reduction layers.

A client says a whole vector and no change. Its change is that vector less what its round began
with, which no message holds: a client begins with its own row of the round before. Both are
computed again by the algorithm's own code, the second one with a task that learns nothing, so that
what comes out is what went in.

In clear the aggregator reads each client's vector, and knows what it began with. Where vectors are
weighed, others read rows, each receiver its own; as they came, rows lie in the receivers' captures
and are held against the vectors computed again. Of a client the row is taken that weighs it most,
and is not its own. Who reads it knows what it began with itself, and not what others did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from audits.attacks import Exposure, Truth
from protocols.disclosures._evaluated.ciphers import shape_of
from protocols.disclosures._evaluated.guards import evaluated
from protocols.disclosures.names import Disclosure
from protocols.errors import EvidenceError
from protocols.forms import Exchange
from protocols.messages import Message, WeightedSumMessage
from protocols.plan.steps import Step
from protocols.sessions.store.recording import Captured, keeps_given
from protocols.wire.codec import decode
from protocols.wire.envelope import Envelope
from secure_fgl.attack_inputs.captured_sent import rounded, truth_of
from secure_fgl.attack_inputs.mixtures import Replayed, answered, idle
from secure_fgl.attack_inputs.models import check_opened

__all__ = ["UNWEIGHED", "weighed_field", "weighed_kind", "weighed_material"]

Array = np.ndarray[Any, np.dtype[np.float64]]

UNWEIGHED = "no captured round brought back what clients gave to be weighed"
ROW = "P21"
_FLAT = 1e-5  # how far a number may be off that travels as a float of four bytes
_HELD = 1e-3  # a share below which a client is as good as not in a row; the grid of shares is 1/128


@dataclass(frozen=True, repr=False)
class _Said:
    """One client's vector in one Ask, computed again: what it began with, and what it said.

    Attributes:
        left: the same as it left the client, clipped to the grid where there is one. It is not
            rounded: where changes are smaller than a step, rounding would hide whose they are.
    """

    client: str
    answer: Captured
    begun: Array
    told: Array
    left: Array
    truth: Truth


def weighed_kind(kinds: Sequence[type[Message]]) -> type[Message] | None:
    """Return the message of an exchange that is weighed, or was; None if there is none."""
    found = (k for k in kinds if issubclass(k, WeightedSumMessage) and weighed_field(k))
    return next(found, None)


def weighed_field(kind: type[Message]) -> str:
    """Return the name of the real vector in a message that is weighed; empty if it has none."""
    found = (f for f in kind.fields if len(f.shape) == 1 and f.wire in ("f4", "f8"))
    return next((f.name for f in found), "")


def weighed_material(
    run: Replayed, answers: Mapping[str, Sequence[Captured]], *, first_only: bool
) -> list[Exposure]:
    """Return every client's vectors that were weighed, as changes, and who read what of them.

    Args:
        run: code and data.
        answers: client -> its captured answers, held against its ledger.
        first_only: the Asks alone that hold some client's first captured round.

    Raises:
        EvidenceError: what was read is not what is computed again.
        UsageError: some client's canaries are unknown.
    """
    named = {exchange.name: exchange for exchange in run.form.exchanges}
    giving = {name for name, e in named.items() if weighed_kind(e.back)}
    handing = {name for name, e in named.items() if keeps_given(e) and weighed_kind(e.given)}
    if not giving:
        return []
    check_opened(run.sites, run.training)  # a row is held against all who are in it
    asks, handed = dict[int, dict[str, Captured]](), list[tuple[str, Captured]]()
    first = {min((a.round for a in mine), default=0) for mine in answers.values()}
    for client, mine in sorted(answers.items()):
        for answer in mine:
            if answer.exchange in giving:
                asks.setdefault(answer.number, {})[client] = answer
            if answer.exchange in handing:
                handed.append((client, answer))
    rows, found, still = _rows(asks, handed), list[Exposure](), idle(run)
    for number, ask in sorted(asks.items()):
        one = next(iter(ask.values()))
        if first_only and one.round not in first:
            continue
        exchange = named[one.exchange]
        begun = next(e for e in still.exchanges if e.name == exchange.name)
        there = sorted(run.case.exchanges.all[number].arrived & set(ask))
        said = [_said(run, client, ask[client], exchange, begun) for client in there]
        found += _alone(run, said, exchange)
        found += _in_rows(run, said, rows.get(number, {}), exchange)
    return found


def _said(
    run: Replayed, client: str, answer: Captured, exchange: Exchange, begun: Exchange
) -> _Said:
    """Let a client answer twice more: as it did, and as one that learns nothing."""
    kind, site = _kind(exchange), run.training[client]
    told, still = (answered(site, answer, each, kind) for each in (exchange, begun))
    truth = truth_of(run.sites[client], run.task.spec, run.config.model.layers)
    layout, vector = _layout(run, kind), _vector(told)
    if layout is not None:  # what lies within the grid is rounded by less than a step
        grid = _vector(rounded(layout, [told], kind))
        vector = np.where(np.abs(grid - vector) <= _step(layout), vector, grid)
    return _Said(client, answer, _vector(still), _vector(told), vector, truth)


def _alone(run: Replayed, said: Sequence[_Said], exchange: Exchange) -> Iterator[Exposure]:
    """Yield what the aggregator read of each client, where vectors left in clear."""
    kind = _kind(exchange)
    if evaluated(run.case.policy.chain(kind.disclosure)) is not None:
        return
    item = run.case.plan.find(exchange.name, Disclosure.WEIGHTED_SUM, Step.UP)
    for one in said:
        sent = (Envelope.decode(data) for data in one.answer.sent)
        body = next(e.body for e in sent if e.header.item == item.id)
        (message,) = decode((kind,), bytes(body), {**run.case.plan.dims, **item.dims})
        read = _vector(message)
        if _exact(run) and np.abs(read - one.told).max() > _FLAT:
            raise _other(kind, "a vector")
        yield _exposure(run, one, one.begun, read, 1, "")


def _in_rows(
    run: Replayed, said: Sequence[_Said], rows: Mapping[str, Array], exchange: Exchange
) -> Iterator[Exposure]:
    """Yield what another client read of each one in its row."""
    there = {one.client: one for one in said}
    readers = [name for name in sorted(rows) if name in there]
    if len(said) < 2 or not readers:
        return
    table = {name: _shares(run, said, rows[name], _kind(exchange)) for name in readers}
    for place, one in enumerate(said):
        others = [name for name in readers if name != one.client]
        if not others:
            continue
        reader = max(others, key=lambda name: table[name][place])  # the first, where all are alike
        held = int(np.count_nonzero(table[reader] > _HELD))
        yield _exposure(run, one, there[reader].begun, rows[reader], max(held, 2), ROW)


def _shares(run: Replayed, said: Sequence[_Said], row: Array, kind: type[Message]) -> Array:
    """Return what each client weighs in a row, (K,); they sum to one.

    Raises:
        EvidenceError: the row is no such combination of what clients said.
    """
    base, *others = (one.left for one in said)
    apart = np.stack([one - base for one in others], axis=1)
    found = np.linalg.lstsq(apart, row - base, rcond=None)[0]
    off = np.abs(apart @ found - (row - base))
    most = max(_FLAT, _step(_layout(run, kind)))
    # True shares leave less than one step a number, and those found a little more in one place.
    # A mean alone would pass for a change of few numbers, though these say most of a client.
    near = np.sqrt(np.mean(off**2)) <= most and off.max() <= most * (1 + 2 * np.sqrt(len(said)))
    if _exact(run) and not near:
        raise _other(kind, "a row")
    return np.concatenate([[1.0 - found.sum()], found])


def _exposure(
    run: Replayed, one: _Said, known: Array, read: Array, cohort: int, payload: str
) -> Exposure:
    chosen = run.config.algorithm
    return Exposure(
        client=one.client,
        round=one.answer.round,
        known={"weights": known},
        raw={"delta": one.told - one.begun},
        seen={"delta": read - known},
        cohort=cohort,
        truth=one.truth,
        lr=run.task.lr,
        steps=chosen.epochs,
        optimiser=run.config.model.optimiser or "",
        payload=payload,
        alone=bool(payload) and not _exact(run),
    )


def _rows(
    asks: Mapping[int, Mapping[str, Captured]], handed: Sequence[tuple[str, Captured]]
) -> dict[int, dict[str, Array]]:
    """Return the rows as they came, by the Ask whose vectors are in them, and receiver."""
    found = dict[int, dict[str, Array]]()
    for client, answer in handed:
        before = [n for n, ask in asks.items() if n < answer.number and _round(ask) == answer.round]
        row = next(m for m in answer.given if isinstance(m, WeightedSumMessage))
        if before:  # an Ask that was lost is asked anew in its round, and hands out nothing
            found.setdefault(max(before), {})[client] = _vector(row)
    return found


def _round(ask: Mapping[str, Captured]) -> int:
    return next(iter(ask.values())).round


def _layout(run: Replayed, kind: type[Message]) -> Any:
    """Return the grid on which vectors leave; None where they leave as they are."""
    policy = run.case.policy
    if evaluated(policy.chain(kind.disclosure)) is None:
        return None
    return shape_of((kind,), policy, run.case.plan.dims).layout


def _step(layout: Any) -> float:
    """Return the step of the grid on which vectors leave; 0 where there is none."""
    columns = () if layout is None else layout.columns
    return float(max((c.grid.step for c in columns if c.grid), default=0.0))


def _kind(exchange: Exchange) -> type[Message]:
    kind = weighed_kind(exchange.back)
    if kind is None:  # asked for before; said once more for the type checker
        raise ValueError("nothing in this exchange is weighed")
    return kind


def _vector(message: Message) -> Array:
    found: Array = np.asarray(getattr(message, weighed_field(type(message))), dtype=np.float64)
    return found.ravel()


def _exact(run: Replayed) -> bool:
    """Tell whether the same comes out again: noise in training is from the operating system."""
    return run.case.plan.training is None


def _other(kind: type[Message], what: str) -> EvidenceError:
    return EvidenceError(
        "captured",
        f"{what} of {kind.__name__}, computed again, is not what was read; the data, the "
        "configuration or the code are other than in the run",
    )
