"""Clients vanish, at every step: the total is that of who is left, or nothing is opened at all."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.disclosures.sum.masks import Unmasking
from protocols.errors import RemoteProtocolError, RoundLost
from protocols.forms import Exchange, Form
from protocols.sessions.part import State
from tests.protocols.toys import GIFTS, TWICE, Gift, Start, Update, changed_policy, first, maskless
from tests.protocols.unveiling import is_sum_of
from tests.protocols.wire import World
from tests.thinned import thinned

# What a client that vanishes at a step neither gets nor gets through any more, by item.
STEPS = ("before the ask", "before the upload", "before the list", "before the vote",
         "before the votes", "before the shares")  # fmt: skip
ITEMS = {"train.down": 0, "train.up.SUM": 1, "train.survivors": 2, "train.vote": 3,
         "train.votes": 4, "train.shares": 5,
         # Where nobody is missing at the list, vote and shares leave together.
         "train.all_here": 2, "train.self_shares": 5}  # fmt: skip
UPLOADED = 2  # from this step on, the upload of who vanishes is in the total


def vanish(world: World, when: dict[str, int]) -> None:
    """Lose what each client would send or get from its step on; other items are not touched."""

    def lost(item: str, sender: str, to: str) -> bool:
        client = sender if sender in world.names else to
        return item in ITEMS and ITEMS[item] >= when.get(client, 99)

    world.lost = lost


def left(world: World, when: dict[str, int]) -> list[str] | None:
    """Return whose sum is opened, None for a round that is lost."""
    group, steps = world.aggregator.keys.agreed.group, [when.get(name, 99) for name in world.names]
    there = [n for n, step in zip(world.names, steps, strict=True) if step >= UPLOADED]
    enough = [
        len(there) >= world.policy.smallest_cohort,
        sum(step > (3 if len(there) < len(steps) else 5) for step in steps) >= group.quorum,
        sum(step > 5 for step in steps) >= group.threshold,
    ]
    return there if all(enough) else None


def play(world: World, round: int, when: dict[str, int], rebuilt: list[Any]) -> None:
    """Play one round with these drop-outs and compare it with what must come of it."""
    expected, openings = left(world, when), openings_of(world)
    rebuilt.clear()
    vanish(world, when)
    try:
        total = world.round(round).total(Update)
    except RoundLost:
        assert expected is None
        assert world.aggregator.state is State.READY
        assert openings_of(world) == openings
        assert not rebuilt  # no seed of anybody was rebuilt
        with pytest.raises(RemoteProtocolError):
            world.aggregator.reply()
    else:
        assert expected is not None
        assert is_sum_of(world, total, expected)
        assert openings_of(world) == openings + 1
    assert all(client.state is State.READY for client in world.clients.values())


def openings_of(world: World) -> int:
    """Return how many sums were opened, by the authority or, without one, by the aggregator."""
    return sum(store.lines.count(b'"kind":"open"') for store in world.stores.values())


@pytest.fixture
def rebuilt(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Seeds that an aggregator rebuilds, as it does so."""
    found: list[Any] = []
    real = Unmasking._seeds

    def watched(self: Unmasking) -> Any:
        seeds = real(self)
        found.append(seeds)
        return seeds

    monkeypatch.setattr(Unmasking, "_seeds", watched)
    return found


def subsets(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    return [some for size in range(len(names) + 1) for some in combinations(names, size)]


@pytest.mark.parametrize("step", thinned(range(6)), ids=STEPS)
def test_every_subset_of_five_at_every_step(step: int, rebuilt: list[Any]) -> None:
    world = World(policy="masks", rounds=32).start()
    for round, some in enumerate(subsets(world.names), start=1):
        play(world, round, dict.fromkeys(some, step), rebuilt)


@pytest.mark.parametrize("step", thinned(range(6)), ids=STEPS)
def test_the_smallest_cohort_stands_or_falls_whole(step: int, rebuilt: list[Any]) -> None:
    world = World(policy="masks", clients=4, rounds=16).start()
    for round, some in enumerate(subsets(world.names), start=1):
        play(world, round, dict.fromkeys(some, step), rebuilt)
        assert (left(world, dict.fromkeys(some, step)) is None) is bool(some)


@pytest.mark.parametrize("step", thinned(range(6)), ids=STEPS)
def test_o10_seven_with_an_assumed_colluder(step: int, rebuilt: list[Any]) -> None:
    policy = changed_policy("masks", colluders=1)
    world = World(policy=policy, clients=7, rounds=4).start()
    assert (world.policy.smallest_cohort, world.aggregator.keys.agreed.group.threshold) == (5, 5)
    for round, size in enumerate((1, 2, 3, 0), start=1):
        play(world, round, dict.fromkeys(world.names[7 - size :], step), rebuilt)


@pytest.mark.parametrize("policy", ["he", "ckks"])
def test_under_encryption_the_authority_opens_the_same_sums(
    policy: str, rebuilt: list[Any]
) -> None:
    world = World(policy=policy, rounds=12).start()
    for round in range(1, 13):
        step, size = divmod(round - 1, 2)
        gone = world.names[step % 5 :][: size + 1]
        play(world, round, dict.fromkeys(gone, step), rebuilt)


@pytest.mark.parametrize("policy", ["unsafe_plaintext", maskless()], ids=["clear", "maskless"])
@pytest.mark.parametrize("step", [0, 1])
def test_without_masks_a_round_is_summed_or_lost_alike(policy: Any, step: int) -> None:
    world = World(policy=policy).start()
    most = len(world.names) - world.policy.smallest_cohort
    for round, gone in enumerate((most, most + 1, 0), start=1):
        vanish(world, dict.fromkeys(world.names[:gone], step))
        if gone <= most:
            assert is_sum_of(world, world.round(round).total(Update), world.names[gone:])
        else:
            with pytest.raises(RoundLost):
                world.round(round)


fates = st.lists(st.integers(0, 12), min_size=5, max_size=5)


@settings(max_examples=5)
@given(st.lists(fates, min_size=6, max_size=6))
def test_clients_that_vanish_at_different_steps(rounds: list[list[int]]) -> None:
    world = World(policy="masks", rounds=6).start()
    for round, steps in enumerate(rounds, start=1):
        play(world, round, dict(zip(world.names, steps, strict=True)), [object()])


@pytest.mark.parametrize("policy", ["masks", "he"])
@pytest.mark.parametrize("item", ["pair.call", "pair.boxes", "pair.down", "pair.rows"])
@pytest.mark.parametrize("gone", [1, 2])
def test_who_misses_the_keys_of_an_epoch_sits_it_out(policy: str, item: str, gone: int) -> None:
    policy = changed_policy(policy, rekey_rounds=1)
    world = World(policy=policy, clients=6, rounds=2)
    away, there = world.names[:gone], world.names[gone:]
    world.lost = lambda what, sender, to: what == item and bool({sender, to} & set(away))
    world.start()
    assert world.aggregator.keys.agreed.ready == there
    assert is_sum_of(world, world.round(1).total(Update), there)
    world.lost = lambda *_: False  # they are back for the next epoch
    assert is_sum_of(world, world.round(2).total(Update), world.names)


@pytest.mark.parametrize("item", ["pair.boxes", "pair.rows"])
def test_too_few_at_the_keys_of_an_epoch_ends_the_run_and_names_them(item: str) -> None:
    world = World(policy="masks")
    world.lost = lambda what, sender, _: what == item and sender in world.names[:2]
    with pytest.raises(RemoteProtocolError, match=world.names[0]):
        world.start()
    assert world.aggregator.state is State.DEAD


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_o5_who_vanished_in_a_round_is_not_asked_again_in_it(policy: str) -> None:
    world = World(TWICE, policy, clients=6).start()
    vanish(world, {world.names[0]: 0})
    assert is_sum_of(world, world.round(1).total(Update), world.names[1:])
    world.lost = lambda *_: False
    assert is_sum_of(world, world.round(1).total(Update), world.names[1:])
    assert is_sum_of(world, world.round(2).total(Update), world.names)


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_o5_who_vanishes_between_two_sums_of_a_round_ends_it(policy: str) -> None:
    world = World(TWICE, policy, clients=6).start()
    assert is_sum_of(world, world.round(1).total(Update), world.names)
    vanish(world, {world.names[0]: 0})
    before = openings_of(world)
    with pytest.raises(RoundLost, match="between two results") as lost:
        world.round(1)
    assert "that client's vector" in (lost.value.why or "")
    assert openings_of(world) == before  # the difference of both would be one client's vector
    world.lost = lambda *_: False
    assert is_sum_of(world, world.round(2).total(Update), world.names)


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_o5_who_vanishes_before_an_ask_without_a_sum_ends_the_round_too(policy: str) -> None:
    """And not the session: clients would refuse a second sum of fewer."""
    tell = Exchange("tell", (Start,), (), lambda site, given: None)
    world = World(Form("told", TWICE.round, (*TWICE.exchanges, tell)), policy, clients=6).start()
    assert is_sum_of(world, world.round(1).total(Update), world.names)
    world.lost = lambda item, sender, _: item == "tell.ack" and sender == world.names[0]
    world.round(1, given=first(Start, world.d), back=())
    before = openings_of(world)
    with pytest.raises(RoundLost, match="between two results"):
        world.round(1)
    assert openings_of(world) == before
    assert is_sum_of(world, world.round(2).total(Update), world.names)


def test_boxes_of_a_client_that_vanished_are_empty_rows_and_it_gets_none() -> None:
    world = World(GIFTS).start()
    world.lost = lambda item, sender, _: item == "fill.up.SEALED" and sender == world.names[1]
    gifts = world.round(1).handed(Gift)
    world.lost = lambda *_: False
    world.round(1, given=gifts, back=())
    assert not world.sites[world.names[1]].got
    for place, name in enumerate(world.names):
        if place == 1:
            continue
        (got,) = world.sites[name].got
        for sender in range(5):
            expected = [0.0, 0.0] if sender == 1 else [100.0 * sender + place, -place]
            assert got.row[sender].tolist() == expected
