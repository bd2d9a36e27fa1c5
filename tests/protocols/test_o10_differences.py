"""Sums of two rounds at one model: their difference is exact, and what keeps it from being one's.

LIMITATIONS.md, "Differences between rounds". No guard but noise covers a difference; what bounds it
is who may be missing in a total.
"""

from __future__ import annotations

import numpy as np
import pytest

from protocols.errors import CohortTooSmall, RoundLost
from tests.protocols.toys import Update, changed_policy
from tests.protocols.wire import World, refused

STEP = 5.0 / (2**15 - 1)  # of the grid, as policies in this test have it
POLICIES = ["he", "masks", "unsafe_plaintext"]


def totals(world: World, missing: str, how: str) -> tuple[Update, Update]:
    """Return the totals of two rounds at one model, the second one without a client."""
    whole = world.round(1).total(Update)
    if how == "not asked":
        left = [name for name in world.names if name != missing]
        return whole, world.round(2, members=left).total(Update)
    world.lost = lambda item, sender, to: item.startswith("train") and missing in (sender, to)
    return whole, world.round(2).total(Update)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("how", ["not asked", "said to have vanished"])
def test_a_client_that_is_missing_once_is_read_to_the_grid(policy: str, how: str) -> None:
    world = World(policy=policy).start()
    missing = world.names[2]
    whole, rest = totals(world, missing, how)
    assert whole.count - rest.count == world.sites[missing].count
    found, truth = whole.delta - rest.delta, world.sites[missing].delta
    assert np.max(np.abs(found - truth)) <= (2 * len(world.names) - 1) * STEP
    assert np.max(np.abs(truth)) > 100 * STEP  # far more than rounding


@pytest.mark.parametrize("policy", ["he", "masks"])
def test_where_the_minimum_is_all_others_nothing_differs(policy: str) -> None:
    """With `minimum_cohort` one less than there are clients each total is everybody's."""
    world = World(policy=changed_policy(policy, minimum_cohort=4)).start()
    first, missing = world.round(1).total(Update), world.names[2]
    assert first.count == world.count()
    world.lost = lambda item, sender, to: item.startswith("train") and missing in (sender, to)
    with pytest.raises(RoundLost):
        world.round(2)
    world.lost = lambda *_: False
    assert world.round(3).total(Update).count == world.count()
    world = World(policy=changed_policy(policy, minimum_cohort=4)).start()
    world.prepare(1)
    with pytest.raises(CohortTooSmall):  # an honest aggregator does not even ask
        world.ask(1, members=[name for name in world.names if name != missing])


@pytest.mark.parametrize("policy", ["he", "masks"])
def test_a_dishonest_aggregator_gets_no_answer_for_fewer(policy: str) -> None:
    for others, accepted in ((3, True), (4, False)):
        world = World(policy=changed_policy(policy, minimum_cohort=others)).start()
        world.round(1)
        world.prepare(2)
        client = world.names[0]
        ask = world.evil_ask(client, world.names[:4], round=2, exchange=50)
        assert refused(world.clients[client].receive(ask)) is not accepted
