"""A minimum cohort on a sparse graph: every holder counts a list before it gives shares."""

from __future__ import annotations

import pytest

from crypto.graph import _circle
from protocols.groups import Group
from tests.protocols.test_graph import NEIGHBOURS, QUORUM, THRESHOLD, WINDOW, not_in, sparse
from tests.protocols.toys import PULL, Update, changed_policy, names_of, toy_plan
from tests.protocols.unveiling import haul, is_sum_of, unveil
from tests.protocols.wire import World


def counted(monkeypatch: pytest.MonkeyPatch, others: int) -> tuple[World, list[str]]:
    """Forty clients on a sparse graph, and whom a list may leave out without cutting the graph."""
    monkeypatch.setattr("protocols.groups.COMPLETE_BELOW", 20)
    monkeypatch.setattr("crypto.graph.COMPLETE_BELOW", 20)
    policy = sparse(0.05).model_copy(update={"minimum_cohort": others})
    world = World(policy=policy, clients=40, rounds=1).start()
    group = world.aggregator._agreed.group
    found = (group.degree, group.threshold, group.window, group.quorum)
    assert found == (NEIGHBOURS, THRESHOLD, WINDOW, QUORUM)
    order = [group.called[i] for i in _circle(40, group.degree, group._seed)]
    return world, order[::4]


def test_o10_a_minimum_above_the_threshold_of_a_sparse_graph_is_every_holders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The graph would stay in one piece; 30 clients are too few for a policy of 32."""
    world, gone = counted(monkeypatch, 32)
    left = not_in(world, gone)
    assert len(left) == 30 and world.aggregator._agreed.group.thinnest(left) >= WINDOW
    found = haul(world, lambda name: left, asked=left)
    assert found.refused == set(world.names) and not found.votes
    # Control: the same list is served where it is long enough.
    world, gone = counted(monkeypatch, 29)
    left = not_in(world, gone)
    found = haul(world, lambda name: left, asked=left)
    assert not found.refused and is_sum_of(world, unveil(world, found, left), left)


def test_o10_drop_outs_down_to_such_a_minimum_lose_no_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, gone = counted(monkeypatch, 32)
    world.lost = lambda item, sender, _: item.startswith("train") and sender in gone[:7]
    assert is_sum_of(world, world.round(1).total(Update), not_in(world, gone[:7]))


@pytest.mark.parametrize(("others", "colluders"), [(54, 0), (500, 90)])
def test_o18_noise_counts_on_the_minimum_of_a_sparse_graph(others: int, colluders: int) -> None:
    """Of 943 clients 75 hold a client's shares, and 54 of these rebuild a seed."""
    policy = changed_policy("calibrated", minimum_cohort=others, colluders=colluders)
    plan = toy_plan(PULL, policy, clients=names_of(943), bfv=None)
    assert {item.noise.honest for item in plan.items if item.noise} == {others + 1}
    group = Group.of("r" * 32, 0, names_of(943), policy)
    assert (group.degree, group.threshold, group.quorum) == (74, 54, 55)
