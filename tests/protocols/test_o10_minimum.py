"""A minimum cohort on a sparse graph: every holder counts a list before it gives shares."""

from __future__ import annotations

import numpy as np
import pytest

from crypto.graph import _circle
from protocols.errors import PolicyError, RoundLost
from protocols.keys.groups import Group
from tests.protocols.test_graph import NEIGHBOURS, QUORUM, THRESHOLD, WINDOW, not_in, sparse
from tests.protocols.toys import PULL, Update, changed_policy, names_of, toy_plan
from tests.protocols.unveiling import haul, is_sum_of, unveil
from tests.protocols.wire import World


def counted(monkeypatch: pytest.MonkeyPatch, others: int) -> tuple[World, list[str]]:
    """Forty clients on a sparse graph, and whom a list may leave out without cutting the graph."""
    monkeypatch.setattr("protocols.keys.groups.COMPLETE_BELOW", 20)
    monkeypatch.setattr("crypto.graph.COMPLETE_BELOW", 20)
    policy = sparse(0.05).model_copy(update={"minimum_cohort": others})
    world = World(policy=policy, clients=40, rounds=1).start()
    group = world.aggregator.keys.agreed.group
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
    assert len(left) == 30 and world.aggregator.keys.agreed.group.thinnest(left) >= WINDOW
    found = haul(world, lambda name: left, asked=left)
    assert found.refused == set(world.names) and not found.votes
    # Control: the same list is served where it is long enough.
    world, gone = counted(monkeypatch, 27)
    left = not_in(world, gone)
    found = haul(world, lambda name: left, asked=left)
    assert not found.refused and is_sum_of(world, unveil(world, found, left), left)


def test_o10_drop_outs_down_to_such_a_minimum_lose_no_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, gone = counted(monkeypatch, 32)
    some = gone[:5]  # 32 others, one, and two that may be corrupt are left
    world.lost = lambda item, sender, _: item.startswith("train") and sender in some
    assert is_sum_of(world, world.round(1).total(Update), not_in(world, some))


def test_o10_the_aggregator_skips_a_round_of_too_few_beside_the_corrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, gone = counted(monkeypatch, 32)
    some = gone[:6]
    world.lost = lambda item, sender, _: item.startswith("train") and sender in some
    with pytest.raises(RoundLost, match="beside those who may be corrupt"):
        world.round(1)
    assert not any(kind == "survivors" for name in world.names for kind in world.kinds(name))


def test_o10_a_minimum_that_no_list_can_hold_is_refused_by_the_plan() -> None:
    """Of 943 clients 94 may be corrupt."""
    for others in (848, 849):
        policy = changed_policy("masks", minimum_cohort=others)
        if others == 848:
            assert toy_plan(policy=policy, clients=names_of(943), bfv=None)
            continue
        with pytest.raises(PolicyError, match="94 that may be corrupt"):
            toy_plan(policy=policy, clients=names_of(943), bfv=None)


def test_o10_a_list_on_a_sparse_graph_holds_the_minimum_beside_the_corrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The guard's `corrupt`, two of forty here, may be more than `colluders`."""
    world, gone = counted(monkeypatch, 29)
    left = not_in(world, gone)
    assert len(left) == 30 and world.policy.colluders == 0
    honest = left[2:]
    assert len(honest) < world.policy.minimum_cohort + 1
    found = haul(world, lambda name: left, asked=left)
    assert found.refused == set(world.names) and not found.votes


@pytest.mark.parametrize(("others", "colluders"), [(54, 0), (500, 90)])
def test_o18_noise_counts_on_the_minimum_of_a_sparse_graph(others: int, colluders: int) -> None:
    """Of 943 clients 75 hold a client's shares, and 54 of these rebuild a seed."""
    policy = changed_policy("calibrated", minimum_cohort=others, colluders=colluders)
    plan = toy_plan(PULL, policy, clients=names_of(943), bfv=None)
    assert {item.noise.honest for item in plan.items if item.noise} == {others + 1}
    group = Group.of("r" * 32, 0, names_of(943), policy)
    assert (group.degree, group.threshold, group.quorum) == (74, 54, 55)


# --- three clients --------------------------------------------------------------------------------


def three(policy: str) -> World:
    return World(policy=changed_policy(policy, minimum_cohort=2), clients=3)


@pytest.mark.parametrize("policy", ["masks", "pilot"])
def test_o10_three_clients_run_where_a_policy_says_so_and_two_read_the_third(policy: str) -> None:
    """What the plan warns of is what is read: the total less what two sent is the third's."""
    world = three(policy)
    (warned,) = [text for text in world.plan.warnings if "a total may be of three" in text]
    assert "any two clients that pool" in warned and warned.endswith("exactly")
    total = world.start().round(1).total(Update)
    assert is_sum_of(world, total, world.names)
    *pooling, third = (world.sites[name] for name in world.names)
    rest = total.delta - sum(site.delta for site in pooling)
    assert total.count - sum(site.count for site in pooling) == third.count
    assert np.max(np.abs(rest - third.delta)) <= 3 * 5.0 / (2**15 - 1)


def test_o10_control_by_default_no_total_of_three_is_opened() -> None:
    world = World(policy="masks", clients=4).start()
    left = world.names[:3]
    assert not [text for text in world.plan.warnings if "a total may be of three" in text]
    found = haul(world, lambda name: left, asked=left)
    assert found.refused == set(world.names) and not found.votes


@pytest.mark.parametrize("policy", ["masks", "pilot"])
def test_o10_of_three_clients_none_is_left_out(policy: str) -> None:
    world = three(policy).start()
    world.lost = lambda item, sender, _: item.startswith("train") and sender == world.names[0]
    with pytest.raises(RoundLost):
        world.round(1)


def test_o10_noise_stands_between_two_of_three() -> None:
    policy = changed_policy("calibrated", minimum_cohort=2)
    plan = toy_plan(PULL, policy, clients=names_of(3), bfv=None)
    (warned,) = [text for text in plan.warnings if "a total may be of three" in text]
    assert warned.endswith("under the noise of the total")


def test_o10_in_clear_nothing_hides_and_nothing_is_warned_of() -> None:
    plan = toy_plan(policy=changed_policy("unsafe_plaintext"), clients=names_of(3), bfv=None)
    assert plan.smallest_cohort == 3
    assert not [text for text in plan.warnings if "a total may be of three" in text]
