"""O5: one set of survivors per round; no two sums of a round differ by one client."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from protocols.disclosures.sum.messages import Shares, Votes
from protocols.disclosures.sum.parties import ShareHolding
from protocols.errors import BadEnvelope, CohortTooSmall, Replay
from protocols.sessions.part import State
from protocols.wire.envelope import Where
from tests.protocols.toys import TWICE
from tests.protocols.unveiling import Haul, haul, is_sum_of, show, tell, unveil
from tests.protocols.wire import World, refused, unplaced

STEP = 5.0 / (2**15 - 1)


def two_sums(world):
    """Ask twice in one round, and list one client less the second time."""
    all_, without = world.names, world.names[1:]
    first = haul(world, lambda name: all_, exchange=1)
    second = haul(world, lambda name: without if name in without else None, exchange=2, slot=1)
    return first, second


@pytest.fixture
def world():
    return World(TWICE, "masks", clients=6).start()


def test_o5_two_sums_of_a_round_never_differ_by_one_client(world):
    first, second = two_sums(world)
    assert is_sum_of(world, unveil(world, first, world.names), world.names)
    assert second.refused == set(world.names[1:]) and not second.votes


def test_o5_control_a_client_that_serves_both_gives_one_vector_away(world, monkeypatch):
    monkeypatch.setattr(ShareHolding, "_one_list", lambda *_: None)
    first, second = two_sums(world)
    one = unveil(world, first, world.names)
    other = unveil(world, second, world.names[1:])
    stolen, truth = one.delta - other.delta, world.sites[world.names[0]].delta
    assert np.max(np.abs(stolen - truth)) <= 12 * STEP
    assert one.count - other.count == world.sites[world.names[0]].count


def test_o5_the_same_survivors_may_be_summed_twice(world):
    for exchange in (1, 2):
        found = haul(world, lambda name: world.names, exchange=exchange, slot=exchange - 1)
        assert is_sum_of(world, unveil(world, found, world.names), world.names)


def test_o5_a_second_list_for_one_sum_is_a_replay_and_changes_nothing(world):
    found = haul(world, lambda name: world.names)
    for survivors in (world.names, world.names[1:], world.names[:5]):
        with pytest.raises(Replay):
            show(world, found, lambda name, listed=survivors: listed)
    assert all(client.state is State.READY for client in world.clients.values())


def test_o5_a_client_is_summed_with_one_cohort_in_a_round():
    for second, served in ((slice(0, 6), True), (slice(0, 5), False)):
        world = World(TWICE, "masks", clients=6).start()
        one = world.clients[world.names[0]]
        assert not refused(one.receive(world.evil_ask(one.name, exchange=1)))
        ask = world.evil_ask(one.name, world.names[second], exchange=2, slot=1)
        assert refused(one.receive(ask)) is not served


def test_o5_after_a_list_only_its_survivors_are_summed_again(world):
    left = world.names[1:]
    haul(world, lambda name: left if name in left else None)
    for members, served in ((left, True), (world.names[2:], False)):
        client = world.clients[world.names[3 if served else 4]]
        ask = world.evil_ask(client.name, members, exchange=2, slot=1)
        assert refused(client.receive(ask)) is not served


def asked(world, exchange=1):
    """Return a haul of round 1 whose lists were not shown yet."""
    return haul(world, lambda name: None, exchange=exchange)


CRAFTED = {
    "too few survivors": dict(survivors=slice(0, 3), error=CohortTooSmall),
    "without the client that uploaded": dict(survivors=slice(1, 6)),
    "without it, of another exchange": dict(survivors=slice(1, 6), exchange=0),
    "another cohort than was asked": dict(
        members=slice(0, 5), survivors=slice(0, 5), says="does not fit"
    ),
    "another slot": dict(slot=1, says="does not fit"),
    "another model": dict(given="ab" * 32, says="does not fit"),
    "another attempt": dict(attempt=2),
    "a round that is over": dict(round=0),
    "a round of another epoch": dict(round=51, exchange=9),
    "an exchange that never was": dict(exchange=9, says="did not send"),
}


@pytest.mark.parametrize("name", CRAFTED)
def test_o5_a_client_serves_no_list_that_does_not_fit_its_upload(world, name):
    facts = dict(CRAFTED[name])
    error, says = facts.pop("error", BadEnvelope), facts.pop("says", "")
    found, client = asked(world), world.clients[world.names[0]]
    survivors = world.names[facts.pop("survivors", slice(0, 6))]
    where = found.where[client.name]
    places = {**where.__dict__, **facts, "members": world.names[facts.pop("members", slice(0, 6))]}
    told = Where(**places)
    if (told.round, told.exchange) < (where.round, where.exchange):  # turned down before it is read
        with pytest.raises(Replay):
            show(world, found, lambda n: survivors if n == client.name else None, told)
        assert client.state is State.READY
        unplaced(client)
    show(world, found, lambda n: survivors if n == client.name else None, told)
    assert found.refused == {client.name} and not found.votes
    assert client.state is State.DEAD and isinstance(client.last_error, error)
    assert says in client.last_error.what
    assert client.context.pairs is None


def test_o5_a_list_that_names_strangers_to_its_cohort_is_not_served():
    world = World(TWICE, "masks", clients=8).start()
    found = haul(world, lambda name: None, members=world.names[:6])
    show(world, found, lambda n: world.names[:7] if n == world.names[7] else None)
    assert found.refused == {world.names[7]} and not found.votes
    assert "outside its cohort" in world.clients[world.names[7]].last_error.what


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({}, ""),
        ({"attempt": 2}, "another epoch or attempt"),
        ({"round": 51}, "another epoch or attempt"),
        ({"round": 2}, "did not upload in this sum"),
    ],
)
def test_o5_who_was_not_asked_serves_lists_of_this_epoch_and_attempt_only(facts, says):
    world = World(TWICE, "masks", clients=7).start()
    found, outsider = haul(world, lambda name: None, members=world.names[:6]), world.names[6]
    where = replace(found.where[world.names[0]], **facts)
    show(world, found, lambda n: world.names[:6] if n == outsider else None, where)
    assert (outsider in found.votes) is not bool(says)
    if says:
        assert says in world.clients[outsider].last_error.what


def test_o5_who_did_not_upload_is_never_a_survivor(world):
    found = asked(world)
    other = Haul(found.slot, {}, {})
    outside = Where(1, 9, world.names, "ab" * 32, 1, 1)
    show(world, other, lambda n: world.names if n == world.names[0] else None, outside)
    assert other.refused == {world.names[0]} and not other.votes


def test_o5_a_list_is_on_record_before_anything_is_said_about_it(world):
    haul(world, lambda name: world.names)
    kinds = world.kinds(world.names[0])
    assert kinds.index("survivors") == len(kinds) - 1 - kinds[::-1].index("survivors")
    place = kinds.index("survivors")
    assert kinds[place - 1 : place + 2] == ["receipt", "survivors", "release"]
    entry = world.entries(world.names[0])[place]
    assert (entry["members"], entry["survivors"], entry["round"]) == (6, 6, 1)


def test_o5_votes_for_nothing_are_refused(world):
    """Shares follow a list that the client itself has seen, once."""
    found = asked(world)
    votes = Votes(signatures=np.zeros((6, 64), np.uint8))
    where = found.where[world.names[0]]
    assert tell(world, "votes", world.names[0], votes, where, Shares) is None
    assert isinstance(world.clients[world.names[0]].last_error, BadEnvelope)
