"""A world whose clients add up rows over edges between them: a toy algorithm, and what is true."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from protocols.disclosures.row_sum import aggregator
from protocols.disclosures.row_sum.guards import Rows
from protocols.disclosures.row_sum.protocol.wire import cut_slots
from protocols.forms import Algorithm, Exchange, Form
from protocols.messages import (
    Matrix,
    ReleasedMessage,
    RowSumMessage,
    SumMessage,
    Vector,
    count,
    real,
)
from protocols.plan.planning import make_plan
from protocols.policy.guards import Clip, Quantise, Seal
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Ask, Cohort
from tests.protocols.toys import DATA, names_of
from tests.protocols.wire import World

EACH, FEATURES = 4, 3
BOUND, BITS = 8.0, 18
STEP = BOUND / (2 ** (BITS - 1) - 1)
CAP, PLACES = 64, 8
CLIP = 2.0
"""Of a term's norm under noise: no term of `rowed` is longer."""


class Go(ReleasedMessage):
    step: int = count(unit="round", meaning="rounds so far")


class Terms(RowSumMessage):
    by_tags = of_one = True
    sums: Matrix = real("row_places", "width", unit="1", meaning="sums of terms; last, how many")


class Told(RowSumMessage):
    node: Vector = count("row_places", unit="row", meaning="1 + the row's number, 0 for padding")
    sums: Matrix = real("row_places", "width", unit="1", meaning="others' terms", wire="f4")


class Change(SumMessage):
    change: Vector = real("h", unit="1", meaning="change")


def link(site: Any, given: Go) -> Terms:
    return Terms.unsummed(own=site.own, terms=site.terms, links=site.links, wanted=site.wanted)


def learn(site: Any, given: Go, told: Told) -> Change:
    there = np.flatnonzero(told.node)
    site.found = {int(told.node[at]) - 1: np.array(told.sums[at]) for at in there}
    return Change(change=np.full(FEATURES, 0.125))


def rest(site: Any, given: Go) -> Change:
    return Change(change=np.full(FEATURES, 0.125))


def _never(*_: Any) -> Any:
    raise NotImplementedError


def play(state: int, cohort: Cohort) -> Any:
    reply = yield Ask(cohort, given=Go(step=state), back=Terms)
    told = reply.read(Terms, into=Told)
    yield Ask(cohort, given=(Go(step=state), told), back=Change)
    return state + 1


ADDING = Form(
    "adding",
    play,
    (
        Exchange("link", (Go,), (Terms,), link, due=lambda rounds: 1),
        Exchange("learn", (Go, Told), (Change,), learn),
        Exchange("rest", (Go,), (Change,), rest),
    ),
)


def watch_cuts(monkeypatch: pytest.MonkeyPatch) -> list[dict[Any, Any]]:
    """Return what the aggregator will have cut out of clients' slots: words by label and so on."""
    found: list[dict[Any, Any]] = []

    def cutting(data: bytes, run: Any) -> dict[Any, Any]:
        found.append(cut_slots(data, run))
        return found[-1]

    monkeypatch.setattr(aggregator, "cut_slots", cutting)
    return found


def row_policy(**facts: Any) -> PrivacyPolicy:
    """Return a policy under which rows are added up.

    Args:
        facts: of the guard; `colluders` and `minimum_cohort`; and `noise`, the guard `row_noise`
            of the form noised, under which a term's norm is clipped.
    """
    noise = facts.pop("noise", None)
    facts = {**facts, "form": "noised"} if noise else facts
    document = PrivacyPolicy.preset("masks").document()
    more = {k: facts.pop(k) for k in ("colluders", "minimum_cohort") if k in facts}
    guard = Rows(
        **{"cap": CAP, "canaries": 3, "links": 256, "rows": PLACES, "accept_sums": True, **facts}
    )
    chain: tuple[Any, ...] = (Clip(bound=BOUND), Quantise(bits=BITS), guard, Seal())
    if noise:
        chain = (Clip(bound=CLIP, norm="l2"), Quantise(bits=16), noise, guard, Seal())
    rules = {**document["rules"], "ROW_SUM": [g.model_dump() for g in chain]}
    changed = {"name": "rows", "rules": rules, "capture": None, **more}
    return PrivacyPolicy.model_validate({**document, **changed})


def row_plan(policy: PrivacyPolicy, form: Form[Any] = ADDING, clients: int = 6) -> Any:
    dims = {"h": FEATURES, "block": 16, "width": FEATURES + 1}
    made = Algorithm("toy", "none", lambda rng: 1, _never, (form,), dims)
    return make_plan(made, policy, data=DATA, clients=names_of(clients), rounds=3, scheme=None)


def rowed(world: type[World] = World, clients: int = 6, **facts: Any) -> Any:
    """Return a world of clients with EACH nodes: node 0 of all is one star's leaf, and so on.

    Nodes 0 to clients * EACH - 1 belong to the clients in turn. Row n * EACH, of client n's first
    node, has a leaf at every other client: the node with number n of these, so that stars have
    leaves of their own where EACH allows it. Rows 1 and 5 have one leaf alone.
    """
    reserve, plan = (facts.pop(name, None) for name in ("reserve", "plan"))
    policy = row_policy(**facts)
    plan = plan or row_plan(policy, clients=clients)
    place = {"plan": plan, "clients": plan.clients, "d": FEATURES, "reserve": reserve}
    made = world(ADDING, policy, **place)
    rng = np.random.default_rng(0)
    number = {name: n for n, name in enumerate(sorted(made.names))}
    edges = [
        (n * EACH, other * EACH + 1 + n % (EACH - 1))
        for n in range(clients)
        for other in range(clients)
        if n != other
    ]
    edges += [(1, 5)]
    for name, n in number.items():
        site = made.sites[name]
        site.own = np.arange(n * EACH, (n + 1) * EACH)
        site.terms = np.hstack([rng.uniform(-1, 1, (EACH, FEATURES)), np.ones((EACH, 1))])
        links = [(b - n * EACH, a) for a, b in edges + [(b, a) for a, b in edges]
                 if b // EACH == n and a // EACH != n]  # fmt: skip
        site.links = np.array(sorted(set(links)), dtype=np.int64).reshape(-1, 2).T
        site.wanted = np.unique(
            [a for a, b in edges if a // EACH == n] + [b for a, b in edges if b // EACH == n]
        )
        site.found = None
    return made


def row_round(world: Any, number: int = 1) -> Any:
    """Add rows up, and hand them out; return the second reply."""
    world.prepare(number)
    world.pump(world.ask(number, given=Go(step=number), back=(Terms,)))
    sealed = world.aggregator.reply().read(Terms, into=Told)
    world.pump(world.ask(number, given=(Go(step=number), sealed), back=(Change,)))
    return world.aggregator.reply()


def true_sum(world: Any, row: int, receiver: str) -> np.ndarray:
    """Return what the other clients' terms of a row add up to, in clear."""
    total = np.zeros(FEATURES + 1)
    for name in world.names:
        site = world.sites[name]
        if name != receiver:
            total += site.terms[site.links[0][site.links[1] == row]].sum(axis=0)
    return total


def same(world: Any) -> int:
    """Hold what every client was told to the sums in clear; return how many rows that were."""
    rows = 0
    for name in world.names:
        for row, sums in world.sites[name].found.items():
            gap = np.abs(sums - true_sum(world, row, name))
            assert gap[-1] == 0 and gap.max() <= len(world.names) * STEP
            rows += 1
    return rows
