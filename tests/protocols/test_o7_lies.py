"""O7 against an aggregator that lies about who is there.

Each attack is run to the end. Against clients that skip the step that stops it, it reads a vector.
"""

from __future__ import annotations

import pytest

from protocols.disclosures.sum.parties import ShareHolding
from protocols.keys import groups
from protocols.wire.envelope import Envelope, Where
from tests.protocols.unveiling import (
    NotEnough,
    evidence,
    haul,
    is_sum_of,
    seed,
    show,
    unveil,
)
from tests.protocols.wire import World, unplaced


def credulous(monkeypatch):
    """Make clients that give their shares whatever the votes say."""
    monkeypatch.setattr(ShareHolding, "_check_votes", lambda *_: None)


# --- every holder gets a list of its own ----------------------------------------------------------


def own_lists(world):
    """Mark as vanished, at every holder, others than at the next: t times everybody but one."""
    group, least = world.aggregator.keys.agreed.group, world.policy.smallest_cohort
    need, lists = dict.fromkeys(world.names[1:], group.threshold), {}
    for holder in (*world.names[1:], world.names[0]):
        others = [name for name in world.names[1:] if name != holder]
        gone = sorted(others, key=lambda name: -need[name])[: len(world.names) - least]
        need.update({name: need[name] - 1 for name in gone})
        lists[holder] = [name for name in world.names if name not in gone]
    return lists


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_o7_lists_of_ones_own_get_shares_from_nobody(policy):
    world = World(policy=policy, clients=10).start()
    lists = own_lists(world)
    found = haul(world, lambda name: lists[name])
    assert found.refused == set(world.names) and not found.given


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_o7_control_without_votes_lists_of_ones_own_open_a_single_upload(policy, monkeypatch):
    credulous(monkeypatch)
    world = World(policy=policy, clients=10).start()
    lists = own_lists(world)
    found = haul(world, lambda name: lists[name])
    victim = world.names[:1]
    assert is_sum_of(world, unveil(world, found, victim), victim)


# --- one list to some, another to the others ------------------------------------------------------


def two_lists(world, told_all):
    """Tell `told_all` holders that all are there, and the others that the victim vanished."""
    victim, without = world.names[0], world.names[1:]
    first = world.names[:told_all]  # the victim knows better
    return haul(world, lambda name: world.names if name in {victim, *first} else without)


def stolen(world, found):
    """Return the victim's vector from b and e, if the shares reach both."""
    seed(world, found, world.names[0], "b")
    return unveil(world, found, world.names[:1])


@pytest.mark.parametrize("told_all", [0, 1, 3, 4, 5, 6, 8])
def test_o7_no_two_lists_rebuild_both_seeds_even_without_votes(told_all, monkeypatch):
    credulous(monkeypatch)
    world = World(policy="masks", clients=8).start()
    assert world.aggregator.keys.agreed.group.threshold == 5
    with pytest.raises(NotEnough):
        stolen(world, two_lists(world, told_all))


def test_o7_control_half_of_the_shares_as_threshold_give_a_vector_away(monkeypatch):
    credulous(monkeypatch)
    monkeypatch.setattr(groups, "honest_majority", lambda holders, corrupt: holders // 2)
    world = World(policy="masks", clients=8).start()
    assert world.aggregator.keys.agreed.group.threshold == 4
    assert is_sum_of(world, stolen(world, two_lists(world, 4)), world.names[:1])


@pytest.mark.parametrize("told_all", [0, 1, 3, 4, 5, 6, 8])
def test_o7_votes_leave_at_most_one_list(told_all):
    world = World(policy="masks", clients=8).start()
    found = two_lists(world, told_all)
    assert len(set(found.told.values())) <= 1
    assert len(found.given) in (0, *range(5, 9))  # all that saw the one list, or none


# --- lists of sums that never were ----------------------------------------------------------------


def of_no_sum(world, voters):
    """Four upload; a list for another cohort calls one of them and three strangers survivors."""
    asked, decoys, others = world.names[:4], world.names[4:7], world.names[7:]
    found = haul(world, lambda name: None, members=asked)
    fake = Where(1, 2, world.names[:7], "ab" * 32)
    told = {asked[0], *decoys}
    shown = {*others, *(asked[1:] if voters != "outsiders" else ())}
    show(world, found, lambda name: told if name in shown else None, fake)
    return found


def of_another_sum(world):
    """The second sum is real, but the client it calls a survivor was never asked for it."""
    found = haul(world, lambda name: None, members=world.names[:4])
    second, where = world.names[:8], None
    for name in second[4:]:
        ask = world.evil_ask(name, second, exchange=2)
        (upload,) = world.clients[name].receive(ask)
        given = Envelope.decode(upload.data).header.given
        where = found.where[name] = Where(1, 2, second, given)
        found.evidence[name] = evidence(upload.data)
    told = {world.names[0], *second[4:]}
    show(world, found, lambda name: None if name == world.names[0] else told, where)
    return found


FORGED = {
    "no sum, n = 10": (10, lambda world: of_no_sum(world, "those it lists as vanished")),
    "no sum, n = 20": (20, lambda world: of_no_sum(world, "those it lists as vanished")),
    "no sum, outsiders vote": (20, lambda world: of_no_sum(world, "outsiders")),
    "another sum": (12, of_another_sum),
}


@pytest.mark.parametrize("name", FORGED)
def test_o7_a_list_of_another_sum_or_of_none_opens_nothing(name):
    clients, attack = FORGED[name]
    world = World(policy="masks", clients=clients).start()
    found = attack(world)
    assert not found.votes
    with pytest.raises(NotEnough):
        unveil(world, found, world.names[:1])


@pytest.mark.parametrize("name", FORGED)
def test_o7_control_without_evidence_it_reads_one_upload(name, monkeypatch):
    monkeypatch.setattr(ShareHolding, "_check_evidence", lambda *_: None)
    clients, attack = FORGED[name]
    world = World(policy="masks", clients=clients).start()
    assert is_sum_of(world, unveil(world, attack(world), world.names[:1]), world.names[:1])


@pytest.mark.parametrize("change", ["another's", "another round's", "none", "its own"])
def test_o7_a_survivor_is_who_signed_an_upload_in_this_very_sum(change):
    world = World(policy="masks").start()
    found = haul(world, lambda name: None)
    one, other = world.names[1:3]
    if change == "another's":
        found.evidence[one] = found.evidence[other]
    elif change == "another round's":
        (later,) = world.clients[one].receive(world.evil_ask(one, round=2, exchange=2))
        found.evidence[one] = evidence(later.data)
        unplaced(world.clients[one])
    elif change == "none":
        found.evidence[one] = bytes(144)
    show(world, found, lambda name: world.names)
    refused = set() if change == "its own" else set(world.names) - {one}
    assert found.refused >= refused and (not found.given) is bool(refused)
