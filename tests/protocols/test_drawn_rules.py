"""What holds for cohorts drawn by lot from their size, turns and epochs (ADR 0045)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from protocols.errors import CohortChanged
from protocols.plan.cohorts import DrawnPlan, turn
from tests.protocols.toys import TRAIN, Update, changed_policy
from tests.protocols.wire import World, refused

DRAWN = replace(TRAIN, drawn=5)


def test_o10_a_drawn_cohort_is_never_smaller_than_the_policy_s_smallest():
    """Of many colluders no cohort holds all; verification asks for the policy's smallest at least.

    The control: without the policy's smallest cohort, x alone would plan for fewer.
    """
    policy = changed_policy("masks", colluders=20)
    planned = DrawnPlan.of(24, 96, policy)
    assert planned.within == 18 and policy.minimum_cohort + 1 + planned.within == 22
    assert planned.least == policy.smallest_cohort == 24


@pytest.mark.parametrize("drawn", [50, 0])
def test_o5_under_floor_no_totals_tell_of_as_few_as_may_be_corrupt(drawn):
    """Five clients where ten may be corrupt, in a drawn cohort or among all: it may be one's."""
    form, facts = replace(TRAIN, drawn=drawn), {"cohort_changes": "floor"}
    world = World(form, changed_policy("masks", **facts), clients=100)
    cohort, client = world.names[: drawn or 100], world.clients[world.names[0]]
    assert any("differ by fewer than 14 clients" in text for text in world.plan.warnings)
    assert world.policy.smallest_cohort == 4 <= 10  # to hold to this would be to hold to nothing
    for history in (client.history, world.aggregator.parts["history"]):
        history.serve(cohort)
        with pytest.raises(CohortChanged, match="fewer than 14"):
            history.serve(cohort[:-5])
        history.serve(cohort[:-14])  # the control: so many may stand out


def test_o5_a_client_answers_no_round_that_is_another_cohort_s():
    """Else one cohort can be asked in every round, and more totals of it be told than planned."""
    world = World(DRAWN, changed_policy("masks", rekey_rounds=4), clients=12).start()
    first, second = world.aggregator.drawn.cohorts
    assert [turn((first, second), number) for number in (1, 2, 3)] == [first, second, first]
    told = world.ask(1, members=second)
    assert all(refused(world.deliver(delivery)) for delivery in told)
    world = World(DRAWN, changed_policy("masks", rekey_rounds=4), clients=12).start()
    first, second = world.aggregator.drawn.cohorts
    assert world.round(1, members=first).total(Update).count == world.count(first)  # the control
    assert all(refused(world.deliver(delivery)) for delivery in world.ask(2, members=first))


def test_a_client_that_what_lots_drew_does_not_reach_sits_the_run_out():
    """It opened, so the others drew with it; that it never saw the end must not end the run."""
    world, away = World(DRAWN, changed_policy("masks", rekey_rounds=1), clients=12), []
    world.lost = lambda item, _, to: item == "draw.lots" and to in away
    away.append(world.names[3])
    first, second = world.start().aggregator.drawn.cohorts
    assert world.names[3] in (*first, *second) and not world.clients[world.names[3]].drawn.cohorts
    for number, cohort in enumerate((first, second), start=1):
        left = [name for name in cohort if name not in away]
        assert world.round(number, members=cohort).total(Update).count == world.count(left)
    items = {e["item"] for e in world.entries(world.names[3]) if e["kind"] == "release"}
    assert items == {"draw.commit", "draw.lot"}  # and nothing else left
