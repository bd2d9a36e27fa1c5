"""What the attack on rows is given: the rule of the run's policy, applied to the clients' data.

Rows are not read from captures: who is told which row follows from the data and the rule, but for
rows that are equally good, between which the run's tags decided. Numbers stand in their place here.
Terms that depend on the model are those of the run's first model, which needs no capture: which
combination of rows fixes which term depends on no weight.
Noise is drawn anew, as the plan says it, from a key of the run's name: a report can be repeated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from algorithms.fed_gcn import Client
from algorithms.tasks import Site
from audits.attacks import RowsTold, RowSystem
from audits.evidence.steps import Case
from crypto.quantiser import Grid
from protocols.disclosures.names import Disclosure
from protocols.disclosures.row_sum.guards import Rows
from protocols.disclosures.row_sum.protocol.assignment import Offer, Served, assigned
from protocols.disclosures.row_sum.protocol.wire import MOST
from protocols.disclosures.row_sum.run import NoisedRows, grid_of
from protocols.forms import Form
from protocols.messages import Message
from protocols.plan.steps import Step
from protocols.policy.guard import guard_of
from protocols.privacy.record_noise import counted_in
from protocols.privacy.row_noise import row_noise
from protocols.rounds import Cohort
from secure_fgl.errors import UsageError
from secure_fgl.run.simulation import Preparation

__all__ = ["systems", "told_rows"]

_TAG, _ROWS = 16, Disclosure.ROW_SUM
Array = NDArray[np.float64]
Made = Callable[[bytes, str], Array]


class Replayed(Protocol):
    """A run's code and data once more."""

    @property
    def case(self) -> Case:
        """The run's documents and ledgers."""

    @property
    def form(self) -> Form[Any]:
        """The admitted form."""

    @property
    def sites(self) -> Mapping[str, Site]:
        """Every client's site."""

    @property
    def training(self) -> Mapping[str, Site]:
        """The same with the canaries that train."""

    @property
    def prepared(self) -> Preparation:
        """What a run begins with."""


def told_rows(run: Replayed) -> RowsTold | None:
    """Return what receivers are told of rows; None if the run tells none."""
    case, sites = run.case, run.sites
    if not case.plan.all_of(Disclosure.ROW_SUM, Step.UP):
        return None
    client, first = _asked(run)
    said = {name: client.linked(site, *first) for name, site in sites.items()}
    offers = {name: _offer(one) for name, one in said.items()}
    terms = {
        _tag(number): one.terms[[at]].toarray().ravel()[:-1]
        for one in said.values()
        for at, number in enumerate(one.ids)
    }
    everything = 1 << 20
    free = assigned(offers, 1, everything, everything)
    guard = guard_of(case.policy.chain(Disclosure.ROW_SUM), Rows)
    protected = guard is not None and not guard.unsafe
    noise = row_noise(case.policy)
    floor = case.policy.others if protected else (guard.threshold if guard else 1)
    each = 1 if protected else everything
    if noise is not None:
        floor, each = 1, noise.releases
    places = guard.rows if guard is not None and protected else everything
    served = assigned(offers, floor, places, each=each)
    bound, bits = grid_of(case.policy) if protected else (0.0, 0)
    step = Grid(bound, bits).step if protected else 1e-7
    names = sorted(sites)
    made = _noised(case, offers, terms, step)
    return RowsTold(
        seen=tuple(systems(served, offers, terms, [(name,) for name in names], made)),
        pooled=tuple(systems(served, offers, terms, list(pairwise([*names, names[0]])), made)),
        raw=tuple(systems(free, offers, terms, [(name,) for name in names])),
        tolerance=step,
    )


def _asked(run: Replayed) -> tuple[Client, tuple[Message, ...]]:
    """Return who answers when rows are asked for, and what the run's first Ask hands out."""
    asked = (e for e in run.form.exchanges if any(k.disclosure is _ROWS for k in e.back))
    client = next(getattr(e.answer, "__self__", None) for e in asked)
    steps = run.form.round(run.prepared.first_state(), Cohort(tuple(sorted(run.sites))))
    first = next(steps).handed
    steps.close()
    if not isinstance(client, Client):
        raise UsageError("The algorithm does not say how its rows' terms are computed.")
    return client, tuple(one for one in first if isinstance(one, Message))


def _noised(
    case: Case, offers: Mapping[str, Offer], terms: Mapping[bytes, Array], step: float
) -> Made | None:
    """Return what clients add to rows under noise; None without noise."""
    noise = counted_in(case.plan.items, "node")
    if noise is None:
        return None
    key = hashlib.sha256(b"secure-fgl/audit rows\0" + case.roster_file.run.encode()).digest()
    maker = NoisedRows(*grid_of(case.policy), noise, MOST // len(offers), key)

    @cache
    def made(row: bytes, adder: str) -> Array:
        entering = [terms[node] for node in sorted(offers[adder].nodes[row])]
        return np.asarray(maker.row(row + adder.encode(), entering)[0] * step)

    return made


def _tag(number: Any) -> bytes:
    return int(number).to_bytes(_TAG, "big")


def _offer(one: Any) -> Offer:
    nodes: dict[bytes, set[bytes]] = {}
    for node, row in one.links.T:
        nodes.setdefault(_tag(row), set()).add(_tag(one.ids[node]))
    held = {row: frozenset(of) for row, of in nodes.items()}
    return Offer(held, frozenset(map(_tag, one.wanted)))


def systems(
    served: Sequence[Served],
    offers: Mapping[str, Offer],
    terms: Mapping[bytes, Array],
    receivers: Sequence[tuple[str, ...]],
    made: Made | None = None,
) -> list[RowSystem]:
    """Return the equations of receivers that pool what they are told, their own terms taken off.

    Args:
        served: the rows.
        offers: by client, which of its nodes enter which row.
        terms: by node, (F,).
        receivers: who pools.
        made: what a client adds to a row, under its noise; None: the terms as they are.
    """
    found, width = [], len(next(iter(terms.values())))
    first = 0 if made is None else 1
    for who in receivers:
        rows: dict[tuple[bytes, ...], tuple[bytes, list[str]]] = {}
        for one in served:
            for receiver in sorted(set(one.receivers) & set(who)):
                adders = [name for name in one.others(receiver) if name not in who]
                entering = sorted(node for n in adders for node in offers[n].nodes[one.row])
                if entering:  # exact rows of the same nodes are the same equation, noised ones not
                    again = (one.row,) if made is not None else ()
                    rows[(*again, *entering)] = one.row, adders
        nodes = sorted({node for key in rows for node in key[first:]})
        place = {node: at for at, node in enumerate(nodes)}
        held = np.stack([terms[node] for node in nodes]) if nodes else np.zeros((0, width))
        system, sums = np.zeros((len(rows), len(nodes))), np.zeros((len(rows), width))
        for at, key in enumerate(sorted(rows)):
            row, adders = rows[key]
            system[at, [place[node] for node in key[first:]]] = 1.0
            if made is not None:
                sums[at] = np.sum([made(row, name) for name in adders], axis=0)
        found.append(
            RowSystem("+".join(who), system, system @ held if made is None else sums, held)
        )
    return found
