"""The means that clients read of their neighbours' models, computed again.

A client reads the weighted sum over its neighbours and takes its own part for its own model, which
it knows; so it has their mean. Every neighbour's model follows from that neighbour's capture of the
round. Where the reader's next round is captured too, the mean is held against what it went on from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from algorithms.tasks import ClientModel
from protocols.disclosures.names import Disclosure
from protocols.disclosures.neighbour_sum.layout import grid_of
from protocols.errors import EvidenceError
from protocols.messages import Message
from protocols.sessions.store.recording import Captured
from secure_fgl.attack_inputs.agreement import rounded
from secure_fgl.attack_inputs.mixtures import Replayed, answered, idle
from secure_fgl.attack_inputs.weighed import weighed_field

__all__ = ["neighbour_means"]

Array = np.ndarray[Any, np.dtype[np.float64]]
_NONE = "no captured round has the models of all neighbours of two clients, which are needed"
_PART = "what neighbours mix is not a whole model"
_FLAT = 1e-6  # how far a weight may be off that is kept as a float of four bytes


def neighbour_means(run: Replayed, answers: Mapping[str, Sequence[Captured]]) -> dict[str, Any]:
    """Return ``read`` and ``unread`` of `audits.attacks.Released`.

    Args:
        run: code and data.
        answers: client -> its captured answers, held against its ledger.

    Raises:
        EvidenceError: a mean, computed again, is not what its reader went on from.
    """
    topology = run.case.plan.topology
    named = {e.name: k for e in run.form.exchanges for k in e.back if _mixed(k)}
    if topology is None or not named:
        return {}
    given = {(c, a.number): a for c, mine in answers.items() for a in mine if a.exchange in named}
    said = dict[tuple[str, int], Array]()
    last = dict[str, int]()
    for reader, entry in run.case.ledger_index.of_kind("neighbourhood"):
        around, number = {reader, *topology.neighbours(reader)}, int(entry["exchange"])
        there = around <= run.training.keys() and all((n, number) in given for n in around)
        if entry["absent"] or not there or number < last.get(reader, 0):
            continue
        last[reader] = number
        said |= {(n, number): _said(run, n, given[n, number], named) for n in around}
        _check(run, reader, number, said, given, named)
    if any(one.shape != (run.task.size,) for one in said.values()):
        return {"unread": _PART}
    found = dict[str, tuple[object, object]]()
    for client in sorted(run.sites):
        readers = [n for n in sorted(last) if client in topology.neighbours(n)]
        if not readers:
            continue
        shares = {n: topology.shares[n] for n in readers}
        reader = max(readers, key=lambda n: shares[n][client] / sum(shares[n].values()))
        row, number = shares[reader], last[reader]
        mean = sum(w * said[n, number] for n, w in row.items()) / sum(row.values())
        found[client] = _model(mean), _model(said[client, number])
    return {"read": found} if len(found) > 1 else {"unread": _NONE}


def _mixed(kind: type[Message]) -> bool:
    return kind.disclosure is Disclosure.NEIGHBOUR_SUM and bool(weighed_field(kind))


def _model(weights: Any) -> ClientModel:
    return ClientModel((np.asarray(weights, dtype=np.float32),))


def _layout(run: Replayed, kind: type[Message]) -> Any:
    case = run.case
    chain = case.policy.chain(Disclosure.NEIGHBOUR_SUM)
    return grid_of(case.plan.topology, (kind,), chain, case.plan.dims).layout


def _said(
    run: Replayed, client: str, answer: Captured, named: Mapping[str, type[Message]]
) -> Array:
    """Return a client's model as it left it: clipped and on the grid."""
    kind = named[answer.exchange]
    exchange = next(e for e in run.form.exchanges if e.name == answer.exchange)
    told = answered(run.training[client], answer, exchange, kind)
    return _vector(rounded(_layout(run, kind), [told], kind))


def _vector(message: Message) -> Array:
    found: Array = np.asarray(getattr(message, weighed_field(type(message))), dtype=np.float64)
    return found.ravel()


def _check(
    run: Replayed,
    reader: str,
    number: int,
    said: Mapping[tuple[str, int], Array],
    given: Mapping[tuple[str, int], Captured],
    named: Mapping[str, type[Message]],
) -> None:
    """Hold a mean against what the reader began its next round with, if that was captured."""
    topology, now = run.case.plan.topology, given[reader, number]
    later = [a for (c, _), a in given.items() if c == reader and a.round == now.round + 1]
    if topology is None or not later or run.case.plan.training is not None:
        return  # noise in training is the operating system's: the same does not come out again
    kind = named[later[0].exchange]
    still = next(e for e in idle(run).exchanges if e.name == later[0].exchange)
    begun = _vector(answered(run.training[reader], later[0], still, kind))
    parts = {**topology.shares[reader], reader: topology.own(reader)}
    mixed = sum(w * said[n, number] for n, w in parts.items()) / topology.whole
    steps = [c.grid.step for c in _layout(run, kind).columns if c.grid is not None]
    if np.abs(begun - mixed).max() > 2.0 * max(steps, default=0.0) + _FLAT:
        raise EvidenceError(
            "captured",
            f"the mean that {reader} read, computed again, is not what it went on from; the data, "
            "the configuration or the code are other than in the run",
        )
