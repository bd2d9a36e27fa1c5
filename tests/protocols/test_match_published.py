"""The form `published` within a run: whose vectors a client reads, who reads what (O21, O24)."""

from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from protocols.disclosures.match.disclosure import CELLS, LISTS
from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.messages import CellTotals, Listed
from protocols.disclosures.match.protocol.cells import locked_bytes, unlocked
from protocols.disclosures.match.run import held
from protocols.disclosures.noised.decoys import noised_steps
from protocols.disclosures.noised.guards import Laplace
from protocols.errors import Refused, RoundLost
from protocols.policy.budget import Budget
from protocols.policy.guards import Clip, Quantise, Seal, UnsafeClear
from protocols.policy.policy import PrivacyPolicy
from protocols.sessions.part import State
from protocols.wire.envelope import Envelope
from tests.laws.search import found, spellings, travelled
from tests.protocols.matched import (
    BOUND,
    CAP,
    SCALE,
    WIDE,
    WIDTH,
    Change,
    Go,
    Items,
    guard_of,
    match_plan,
    match_policy,
    matched_round,
    matching,
    named,
)
from tests.protocols.test_results_resume import Killed

GONE = "client-3"


def holders(world, name: str, gone: tuple[str, ...] = ()) -> dict[int, set[str]]:
    """Return who holds each item of a client, by the items themselves."""
    own = {n: set(world.sites[n].items) for n in world.names if n not in gone}
    lists = {item: {n for n in own if item in own[n]} for item in own[name]}
    floor = guard_of(world.policy).floor
    return {item: who - {name} for item, who in lists.items() if len(who) >= floor}


@pytest.mark.parametrize("mode", ["oprf", "hmac"])
def test_lists_are_those_of_plaintext_matching_where_nothing_is_capped(mode):
    world = matching(mode=mode, **WIDE).start()
    for number in (1, 2):
        reply = matched_round(world, number)
        assert np.allclose(reply.total(Change).change, 11 * 0.125, atol=1e-3)
        for name in world.names:
            assert named(world, name) == holders(world, name) != {}


def test_lists_are_part_of_those_of_plaintext_matching_under_caps():
    world = matching(
        mode="hmac", **{**WIDE, "neighbours": 2, "vectors": 4, "places": CAP * 2}
    ).start()
    matched_round(world)
    full = 0
    for name in world.names:
        mine, told = holders(world, name), named(world, name)
        assert len(set().union(*told.values())) <= 4
        for item, who in told.items():
            assert who <= mine[item] and len(who) <= 2
            full += len(who) == 2
    assert full > 20


def test_every_client_draws_noise_of_its_own_once_a_round():
    """What strangers read is the vector, clipped, with noise of the planned scale, and one draw."""
    world = matching(mode="hmac", **WIDE).start()
    read = []
    for number in (1, 2):
        matched_round(world, number)
        of = {name: set() for name in world.names}
        for name in world.names:
            for _, vector in world.sites[name].lists:
                gaps = {n: np.abs(world.sites[n].vector - vector).max() for n in world.names}
                of[min(gaps, key=gaps.__getitem__)].add(vector.tobytes())
        assert all(len(vectors) == 1 for vectors in of.values())  # everybody reads the same
        read.append({name: min(vectors) for name, vectors in of.items()})
    assert sum(read[0][name] != read[1][name] for name in world.names) > 5  # one step wide
    steps = noised_steps(np.zeros(200_000), BOUND, Laplace(scale=100 * SCALE))
    assert abs(np.abs(steps).mean() / 100 - 1) < 0.02 and abs(steps.mean()) < 2


def test_o24_who_reads_which_vectors():
    world = matching(**WIDE).start()
    kept = {}
    side = world.serving["matcher"].tags._side
    match = type(side).match

    def seen(self, epoch, boxes):
        for name, box in boxes.items():
            content = self._run.open(box, "tags", epoch, self._me, name)
            kept[name] = content[-locked_bytes(WIDTH) :]
        return match(self, epoch, boxes)

    type(side).match = seen
    try:
        matched_round(world)
    finally:
        type(side).match = match
    wire = travelled(world.wire)
    vectors = [s for site in world.sites.values() for s in spellings(site.vector)]
    read = {v.tobytes(): v for site in world.sites.values() for _, v in site.lists}
    steps = [np.rint(v / SCALE).astype("<i4").tobytes() for v in read.values()]
    vectors += [s for v in list(read.values())[:3] for s in spellings(v)]
    assert found(steps, wire + b"".join(kept.values())) == 0  # neither network nor matcher
    assert found(vectors, wire) == 0
    group = held(world.context("client-1"))._client.held.group
    for name, box in kept.items():  # but the matcher, with any client
        read = unlocked(box, group, world.context(name).run, 1)
        assert np.abs(read * SCALE - world.sites[name].vector).max() < 64 * SCALE
    assert {e["cells"] for e in world.entries("client-1") if e["kind"] == "match"} == {0}


def test_an_aggregator_with_a_client_tells_whose_vector_is_read_and_says_so():
    """It says who is matched together: who stands in two cohorts is known by its vector."""
    world = matching(rounds=4, **WIDE).start()
    reader, victim, *others = world.names
    world.sites[reader].items = list(range(CAP))  # guesses, a whole quota
    read = []
    for number in (1, 2):
        members = sorted([reader, victim, *others[2 * number : 2 * number + 2]])
        world.prepare(number)
        world.pump(world.ask(number, given=Go(step=number), back=(Items,), members=members))
        rows = held(world.context(reader))._listed()
        read.append(
            {tuple(np.round(v, 2)): {i for i, w in rows if (w == v).all()} for _, v in rows}
        )
        world.aggregator.reply()
    (known,) = set(read[0]) & set(read[1])
    assert np.abs(known - world.sites[victim].vector).max() < 0.02
    assert read[0][known] | read[1][known] <= set(world.sites[victim].items)
    assert len(read[0][known] | read[1][known]) > 3
    assert "who is matched together" in LISTS and LISTS in world.plan.warnings


def test_the_plan_says_what_strangers_read_and_what_its_noise_is_worth():
    plan = match_plan(match_policy(**{k: v for k, v in WIDE.items() if k != "places"}),
                      places=CAP * 16)  # fmt: skip
    assert LISTS in plan.warnings and CELLS not in plan.warnings
    up = plan.item("expand.up.MATCH")
    assert up.unsafe and up.guards[-1] == "unsafe_clear" and up.guards[1].startswith("laplace(")
    assert "single vectors" in plan.item("expand.match.told").learns["client"]
    assert [m.name for m in plan.item("learn.down").messages][-1] == Listed.__name__
    ids = {item.id for item in plan.items}
    assert "expand.match.taken" in ids and not {"expand.match.split", "expand.match.part"} & ids
    one = 2 * BOUND / SCALE
    assert f"epsilon = {one:g} per coordinate" in plan.budget
    assert f"{WIDTH * one:g} for a whole message" in plan.budget
    assert f"{3 * WIDTH * one:g} for the run" in plan.budget  # three rounds
    assert "epsilon = infinity" in plan.budget and "which items a client holds" in plan.budget
    assert not any("leaves in clear" in warning for warning in plan.warnings)
    assert CellTotals.__name__ not in {m.name for item in plan.items for m in item.messages}


LOUD = Match(form="published")


@pytest.mark.parametrize(
    "chain",
    [
        (Clip(), Quantise(), LOUD, Seal()),
        (Clip(), Quantise(), LOUD, UnsafeClear()),
        (Clip(), Laplace(), LOUD, Seal()),
        (Clip(), LOUD, UnsafeClear()),
        (Clip(norm="l2"), Laplace(), LOUD, UnsafeClear()),
        (Clip(), Laplace(how="dynamic"), LOUD, UnsafeClear()),
        (Clip(bound=1e6), Laplace(scale=1e-3), LOUD, UnsafeClear()),
        (Clip(), Laplace(), Match(), UnsafeClear()),
        (Clip(), Quantise(), Match(), UnsafeClear()),
    ],
)
def test_only_an_unsafe_chain_with_noise_publishes(chain):
    document = match_policy().document()
    rules = {**document["rules"], "MATCH": [guard.model_dump() for guard in chain]}
    with pytest.raises(ValidationError, match=r"MATCH|laplace"):
        PrivacyPolicy.model_validate({**document, "rules": rules})


def test_what_publishes_is_unsafe_has_no_budget_and_counts_colluders():
    policy = match_policy(form="published", colluders=2, minimum_cohort=9)
    assert [str(d) for d in policy.unsafe] == ["MATCH"]
    with pytest.raises(ValidationError, match="O16"):
        match_policy(form="published", budget=Budget(epsilon=1.0, delta=1e-6).model_dump())
    with pytest.raises(ValidationError, match="floor"):
        match_policy(form="published", floor=3, colluders=2)


def test_o28_sizes_tell_nothing_of_how_many_neighbours_a_client_has():
    world = matching(mode="hmac", **WIDE).start()
    matched_round(world)
    assert len({len(world.sites[name].lists) for name in world.names}) > 3
    sizes: dict[str, set[int]] = {}
    for data in world.wire:
        header = Envelope.decode(data).header
        sizes.setdefault(header.item, set()).add(len(data) - len(header.sender + header.recipient))
    told = {item: found for item, found in sizes.items() if "match" in item.lower()}
    assert len(told) == 5 and all(len(found) == 1 for found in told.values())


# --- who vanishes, who is killed, who lies --------------------------------------------------------


@pytest.mark.parametrize("step", ["expand.up.MATCH", "expand.match.taken"])
def test_a_client_that_vanishes_costs_itself_alone(step):
    world = matching(mode="hmac", **WIDE).start()
    world.lost = lambda item, sender, to: GONE in (sender, to) and item == step
    matched_round(world)
    assert [e["clients"] for e in world.entries("aggregator") if e["kind"] == "match"] == [10]
    before = () if step.endswith("taken") else (GONE,)
    for name in set(world.names) - {GONE}:
        assert named(world, name) == holders(world, name, before)
    world.lost = lambda *_: False
    matched_round(world, 2)
    assert all(named(world, name) == holders(world, name) for name in world.names)


@pytest.mark.parametrize("step", ["expand.match.compare", "expand.match.compared"])
def test_a_matcher_that_does_not_answer_costs_the_round(step):
    world = matching(mode="hmac", **WIDE).start()
    world.lost = lambda item, sender, to: "matcher" in (sender, to) and item == step
    with pytest.raises(RoundLost, match="did not answer"):
        matched_round(world)
    assert world.aggregator.state is State.READY


@pytest.mark.parametrize("mode", ["oprf", "hmac"])
def test_parties_killed_after_every_delivery_go_on(mode):
    world = matching(mode=mode, world=Killed, clients=6, **WIDE)
    world.keep()
    world.start()
    for number in (1, 2):
        matched_round(world, number)
        assert all(named(world, name) == holders(world, name) for name in world.names)
    assert world.kills > 60


def test_o8_a_client_told_of_another_canary_refuses(monkeypatch):
    world = matching(mode="hmac", **WIDE).start()
    real = Listed

    def other(canary):
        return real(canary=bytes(32))

    monkeypatch.setattr("protocols.disclosures.match.aggregator.Listed", other)
    with pytest.raises(Refused):
        matched_round(world)
    assert "another canary" in str(world.session("client-1").last_error)


@pytest.mark.parametrize("wide", [2**30, -(2**30)])
def test_a_vector_that_no_honest_client_publishes_is_left_out(wide):
    """Its client does the clipping; the others see that this one did none."""
    world = matching(mode="hmac", **WIDE).start()
    side = held(world.context(GONE))
    hand_over = side.hand_over

    def lies(box=b""):
        side._values = np.full(WIDTH, wide)
        return hand_over(box)

    side.hand_over = lies
    matched_round(world)
    for name in world.names:
        told = named(world, name)
        assert told == {
            item: who - {GONE} for item, who in holders(world, name).items() if who - {GONE}
        }
    assert any(GONE in who for n in world.names for who in holders(world, n).values())
