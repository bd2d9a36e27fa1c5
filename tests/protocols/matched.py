"""A world whose clients are matched by tags: a toy algorithm, and what it should be told."""

from __future__ import annotations

from typing import Any

import numpy as np

from protocols.disclosures.match.guards import Match
from protocols.disclosures.noised.guards import LEVELS, Laplace
from protocols.forms import Algorithm, Exchange, Form
from protocols.messages import (
    MatchMessage,
    Matrix,
    ReleasedMessage,
    SumMessage,
    Vector,
    count,
    real,
)
from protocols.plan.planning import make_plan
from protocols.policy.guard import find
from protocols.policy.guards import Clip, Quantise, Seal, UnsafeClear
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Ask, Cohort
from tests.protocols.matching import KEY, crowd, plain
from tests.protocols.toys import DATA, names_of
from tests.protocols.wire import World

ITEMS, WIDTH, CAP = 40, 3, 16
BOUND, BITS = 1.0, 16
STEP = BOUND / (2 ** (BITS - 1) - 1)
UP = "expand.up.MATCH"
SCALE = BOUND / LEVELS  # of the noise in the form `published`: next to none, so that tests see whom
WIDE = {"form": "published", "neighbours": 16, "vectors": 32, "places": CAP * 16}


class Go(ReleasedMessage):
    step: int = count(unit="round", meaning="rounds so far")


class Items(MatchMessage):
    held: Vector = count("items", unit="item", meaning="1 + place of an item held", key=True)
    vector: Vector = real("h", unit="1", meaning="the user's vector")


class Found(MatchMessage):
    row: Vector = count("places", unit="item", meaning="1 + place of an item; 0: padding")
    vectors: Matrix = real("places", "h", unit="1", meaning="mean over cells")


class Change(SumMessage):
    change: Vector = real("h", unit="1", meaning="change")


def expand(site: Any, given: Go) -> Items:
    held = np.zeros(ITEMS, dtype=np.int64)
    held[site.items] = 1 + np.array(site.items)
    return Items(held=held, vector=site.vector)


def learn(site: Any, given: Go, found: Found) -> Change:
    pairs = list(zip(found.row, found.vectors, strict=True))
    site.found = {int(row) - 1: np.array(vector) for row, vector in pairs if row}
    site.lists = [(int(row) - 1, np.array(vector)) for row, vector in pairs if row]
    return Change(change=np.full(WIDTH, 0.125))


def rest(site: Any, given: Go) -> Change:
    return Change(change=np.full(WIDTH, 0.125))


def _never(*_: Any) -> Any:
    raise NotImplementedError


def play(state: int, cohort: Cohort) -> Any:
    reply = yield Ask(cohort, given=Go(step=state), back=Items)
    found = reply.matched(Items, into=Found)
    yield Ask(cohort, given=(Go(step=state), found), back=Change)
    return state + 1


EXPAND = Form(
    "expanding",
    play,
    (
        Exchange("expand", (Go,), (Items,), expand, due=lambda rounds: 1),
        Exchange("learn", (Go, Found), (Change,), learn),
        Exchange("rest", (Go,), (Change,), rest),
    ),
)


def match_policy(preset: str = "masks", *, clip: Clip | None = None, **facts: Any) -> PrivacyPolicy:
    """Return a policy that matches; `facts`: of the guard, and `colluders`."""
    document = PrivacyPolicy.preset(preset).document()
    more = {k: facts.pop(k) for k in ("colluders", "minimum_cohort", "budget") if k in facts}
    floor = 3 + more.get("colluders", 0)
    match = Match(**{"cap": CAP, "canaries": 3, "floor": floor, "popular": 0.0, **facts})
    chain = (clip or Clip(bound=BOUND), Quantise(bits=BITS), match, Seal())
    if match.mode == "deterministic":
        chain = (*chain[:3], UnsafeClear())
    if match.form == "published":
        chain = (Clip(bound=BOUND), Laplace(scale=SCALE), match, UnsafeClear())
    rules = {**document["rules"], "MATCH": [g.model_dump() for g in chain]}
    changed = {"name": "matching", "rules": rules, "rekey_rounds": 4, **more}
    return PrivacyPolicy.model_validate({**document, **changed})


def toy(form: Form[Any] = EXPAND, places: int = CAP) -> Algorithm[Any]:
    dims = {"items": ITEMS, "h": WIDTH, "places": places}
    return Algorithm("toy", "none", lambda rng: 1, _never, (form,), dims)


def match_plan(policy: PrivacyPolicy, form: Form[Any] = EXPAND, **facts: Any) -> Any:
    made = toy(form, facts.pop("places", CAP))
    clients, rounds = names_of(facts.pop("clients", 11)), facts.pop("rounds", 3)
    return make_plan(made, policy, data=DATA, clients=clients, rounds=rounds, scheme=None)


def matching(seed: int = 0, world: type[World] = World, **facts: Any) -> Any:
    """Return a started world whose clients hold items and vectors; `facts`: see above."""
    plans = {k: facts.pop(k) for k in ("clients", "rounds", "places") if k in facts}
    policy = match_policy(**facts)
    plan = match_plan(policy, **plans)
    guard = guard_of(policy)
    made = world(EXPAND, policy, plan=plan, clients=plan.clients, d=WIDTH,
                 tag_key=KEY if guard.mode == "hmac" else None)  # fmt: skip
    own = crowd(len(made.names), ITEMS, CAP, seed)
    rng = np.random.default_rng(seed)
    for name, items in zip(made.names, own.values(), strict=True):
        site = made.sites[name]
        site.items, site.vector, site.found = items, rng.uniform(-0.9, 0.9, WIDTH), None
    return made


def guard_of(policy: PrivacyPolicy) -> Match:
    found = find(policy.rules["MATCH"], "match")
    assert isinstance(found, Match)
    return found


def matched_round(world: Any, number: int = 1) -> Any:
    """Match, and hand out what was found; return the second reply."""
    world.prepare(number)
    world.pump(world.ask(number, given=Go(step=number), back=(Items,)))
    sealed = world.aggregator.reply().matched(Items, into=Found)
    world.pump(world.ask(number, given=(Go(step=number), sealed), back=(Change,)))
    return world.aggregator.reply()


def cells_of(world: Any) -> dict[str, int]:
    """Return who stands in which cell, as the matcher knows it."""
    return dict(world.serving["matcher"].tags._side._cells)


def wanted(world: Any, gone: tuple[str, ...] = ()) -> dict[str, dict[int, np.ndarray]]:
    """Return what plaintext matching under the same caps tells each client, in loops."""
    cells, match = cells_of(world), guard_of(world.policy)
    own = {name: world.sites[name].items for name in world.names}
    lost = {cells[name] for name in gone}
    means = {
        cell: np.mean([world.sites[n].vector for n in own if cells[n] == cell], axis=0)
        for cell in set(cells.values()) - lost
    }
    lists = plain(own, cells, match.floor)
    return {
        name: {
            item: np.mean([means[cell] for cell in held if cell in means], axis=0)
            for item, held in rows.items()
            if any(cell in means for cell in held)
        }
        for name, rows in lists.items()
    }


def named(world: Any, name: str) -> dict[int, set[str]]:
    """Return who was handed to a client under each of its items, by the nearest vector."""
    found: dict[int, set[str]] = {}
    for item, vector in world.sites[name].lists:
        gaps = {n: float(np.abs(world.sites[n].vector - vector).max()) for n in world.names}
        who = min(gaps, key=gaps.__getitem__)
        assert gaps[who] < 64 * SCALE and who not in found.get(item, set())
        found.setdefault(item, set()).add(who)
    return found


def same(world: Any, gone: tuple[str, ...] = ()) -> None:
    """Hold what every client was told to plaintext matching, to within the grid."""
    told = wanted(world, gone)
    for name in set(world.names) - set(gone):
        found = world.sites[name].found
        assert found is not None and set(found) == set(told[name])
        for item, vector in told[name].items():
            assert np.abs(found[item] - vector).max() <= STEP
    assert any(told.values())
