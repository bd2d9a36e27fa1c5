"""Cohorts drawn by lot (ADR 0045): how they are cut, how large they are, and who may be asked."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crypto.graph import partition
from protocols.errors import PolicyError
from protocols.plan.drawn import DrawnPlan
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.envelope import Envelope
from protocols.wire.roster import AGGREGATOR_NAME
from tests.protocols.toys import TRAIN, Update, changed_policy, toy_plan
from tests.protocols.wire import World, refused

DRAWN = replace(TRAIN, drawn=5)


def test_a_partition_holds_everybody_once_and_follows_from_its_seed():
    parts = partition(53, 5, b"s" * 32)
    assert sorted(place for part in parts for place in part) == list(range(53))
    assert {len(part) for part in parts} == {10, 11}
    assert parts == partition(53, 5, b"s" * 32) != partition(53, 5, b"t" * 32)


def test_a_run_in_clear_draws_its_cohorts_from_the_public_seed():
    world, again = (World(DRAWN, "unsafe_plaintext", clients=12).start() for _ in range(2))
    cohorts = world.aggregator.drawn.cohorts
    assert sorted(map(len, cohorts)) == [6, 6] and cohorts == again.aggregator.drawn.cohorts
    assert {n for cohort in cohorts for n in cohort} == set(world.names)
    for number, members in enumerate((*cohorts, cohorts[0]), start=1):
        assert world.round(number, members=members).total(Update).count == world.count(members)


def test_a_client_refuses_to_answer_with_clients_of_another_cohort():
    world = World(DRAWN, "unsafe_plaintext", clients=12).start()
    first, second = world.aggregator.drawn.cohorts
    mixed = (*first[:5], second[0])
    assert refused(world.clients[first[0]].receive(world.evil_ask(first[0], sorted(mixed))))
    # The control: a form that draws nothing answers the very same Ask.
    world = World(TRAIN, "unsafe_plaintext", clients=12).start()
    assert not refused(world.clients[first[0]].receive(world.evil_ask(first[0], sorted(mixed))))


def test_cohorts_that_could_hold_too_many_colluders_are_refused_with_the_nearest_size():
    policy = changed_policy("masks", colluders=2)
    assert DrawnPlan.of(6, 12, policy).within == 2  # both may fall into one of two
    with pytest.raises(PolicyError, match="asks for 6") as error:
        DrawnPlan.of(5, 50, policy)
    assert error.value.fix == "draw cohorts of 6 clients or more"
    assert DrawnPlan.of(6, 50, policy).least == 6
    many = DrawnPlan.of(128, 943, PrivacyPolicy.preset("masks"))
    assert (many.cohorts, many.smallest, many.largest, many.colluders) == (7, 134, 135, 94)
    assert 13 < many.within < 60 and many.least == 4 + many.within
    names = [f"c{place:02}" for place in range(12)]
    plan = toy_plan(DRAWN, PrivacyPolicy.preset("masks"), clients=names, bfv=None)
    assert plan.smallest_cohort == 4


def masked(policy: str = "masks", clients: int = 12, **facts: int) -> World:
    chosen = changed_policy(policy, rekey_rounds=4, **facts)
    return World(DRAWN, chosen, clients=clients).start()


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_masked_totals_of_drawn_cohorts_equal_those_in_clear(policy):
    world, clear = masked(policy), World(DRAWN, "unsafe_plaintext", clients=12).start()
    cohorts = world.aggregator.drawn.cohorts
    assert all(c.drawn.cohorts == cohorts for c in world.clients.values())
    clear.aggregator.drawn._seed = world.aggregator.drawn._seed
    for client in clear.clients.values():
        client.drawn._seed = world.aggregator.drawn._seed
    for number, members in enumerate((*cohorts, cohorts[0]), start=1):
        found, bare = (w.round(number, members=members).total(Update) for w in (world, clear))
        assert np.array_equal(found.delta, bare.delta) and found.count == bare.count
        asked = [Envelope.decode(data).header for data in world.wire]
        busy = {h.sender for h in asked if h.exchange == number} - {AGGREGATOR_NAME}
        assert busy - {"key-authority"} == set(members)  # nobody else is needed
