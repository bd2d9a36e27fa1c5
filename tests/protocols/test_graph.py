"""A hundred clients: each is paired with its neighbours of a random regular graph (Bell et al.)."""

from __future__ import annotations

from contextlib import suppress
from itertools import combinations
from typing import Any

import networkx as nx
import pytest

from crypto.graph import _circle, choose_degree
from protocols.disclosures.sum.consistency import vote_text_of
from protocols.disclosures.sum.parties import ShareHolding
from protocols.errors import BadEnvelope, RoundLost
from protocols.keys.groups import Group, slot_of
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.codec import encode
from protocols.wire.control import PairDown
from protocols.wire.envelope import NONE, Where
from protocols.wire.roster import AGGREGATOR_NAME
from tests.protocols.toys import D, Update, changed_policy, names_of
from tests.protocols.unveiling import (
    ITEM,
    Haul,
    NotEnough,
    certify,
    haul,
    is_sum_of,
    seed,
    unveil,
)
from tests.protocols.wire import World, refused

CLIENTS, NEIGHBOURS, THRESHOLD, WINDOW, QUORUM = 100, 10, 7, 3, 8


def sparse(share: float = 0.02, dropped: float | None = None) -> PrivacyPolicy:
    """Masks among neighbours; two of a hundred may collude, two vanish."""
    document = changed_policy("masks", rekey_rounds=1).document()
    for guard in document["rules"]["SUM"]:
        if guard["guard"] == "mask":
            guard.update(corrupt=share, dropped=share if dropped is None else dropped)
    return PrivacyPolicy.model_validate({**document, "name": "sparse"})


@pytest.fixture(scope="module")
def world() -> World:
    return World(policy=sparse(), clients=CLIENTS, rounds=3, d=D).start()


def test_the_graph_is_what_the_tables_say(world: World) -> None:
    group = world.aggregator.keys.agreed.group
    found = (group.degree, group.threshold, group.window, group.quorum)
    assert found == (NEIGHBOURS, THRESHOLD, WINDOW, QUORUM)
    for name in world.names:
        peers = group.neighbours(name)
        assert len(peers) == NEIGHBOURS and name not in peers
        assert all(name in group.neighbours(peer) for peer in peers)
        assert set(group.holders(name)) == {name, *peers}


def test_every_epoch_draws_another_graph(world: World) -> None:
    one, other = (
        Group.of(world.run, epoch, world.names, world.policy).neighbours(world.names[0])
        for epoch in (0, 1)
    )
    assert one != other


def test_drop_outs_at_every_step_of_a_round_of_a_hundred(world: World) -> None:
    asked, uploaded, voted = world.names[:1], world.names[30:31], world.names[60:62]

    def lost(item: str, sender: str, to: str) -> bool:
        return (
            (item == "train.down" and to in asked)
            or (item != "train.down" and item.startswith("train") and {sender, to} & set(uploaded))
            or (item == "train.shares" and sender in voted)
        )

    world.lost = lambda *facts: bool(lost(*facts))
    left = [name for name in world.names if name not in (*asked, *uploaded)]
    assert is_sum_of(world, world.round(1).total(Update), left)
    world.lost = lambda *_: False


# --- a list that is the same for everybody, and cuts one client off -------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> World:
    """Forty clients on a graph of the same degree, to be quick; no keys are agreed on yet."""
    monkeypatch.setattr("protocols.keys.groups.COMPLETE_BELOW", 20)
    monkeypatch.setattr("crypto.graph.COMPLETE_BELOW", 20)
    world = World(policy=sparse(0.05), clients=40, rounds=1)
    group = Group.of(world.run, 0, world.names, world.policy)
    assert (group.degree, group.threshold, group.window) == (NEIGHBOURS, THRESHOLD, WINDOW)
    return world


def test_o7_too_many_lost_neighbours_lose_the_round_and_open_nothing(small: World) -> None:
    small.start()
    gone = set(small.aggregator.keys.agreed.group.neighbours(small.names[0])[:5])
    small.lost = lambda item, sender, _: item == "train.shares" and sender in gone
    openings = small.kinds("aggregator").count("open")
    with pytest.raises(RoundLost, match="a share of one client's seed"):
        small.round(1)
    assert small.kinds("aggregator").count("open") == openings
    small.lost = lambda *_: False


def cut_off(world: World) -> tuple[Any, str]:
    """Never ask one client's neighbours, and say, truly, that they did not upload."""
    victim = world.names[0]
    gone = set(world.aggregator.keys.agreed.group.neighbours(victim))
    left = [name for name in world.names if name not in gone]
    return haul(world, lambda name: left, asked=left), victim


def test_o7_a_list_that_cuts_a_client_off_is_served_by_nobody(small: World) -> None:
    found, victim = cut_off(small.start())
    assert found.refused == set(small.names) and not found.votes
    with pytest.raises(NotEnough):
        unveil(small, found, [victim])


def test_o7_control_without_the_window_one_list_reads_one_upload(
    small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Group, "thinnest", lambda *_: CLIENTS)
    found, victim = cut_off(small.start())
    assert is_sum_of(small, unveil(small, found, [victim]), [victim])


# --- votes: a quorum around every client ----------------------------------------------------------


def own_lists(world: World) -> dict[str, set[str]]:
    """Tell every holder that of all that it holds shares of only the first client is there."""
    group, victim, lists = world.aggregator.keys.agreed.group, world.names[0], {}
    for holder in world.names:
        strangers = not_in(world, {victim, *group.holders(holder)})
        lists[holder] = {victim, holder, *strangers[: group.least - 1]}
    return lists


def test_o7_lists_of_ones_own_get_shares_from_nobody_on_a_graph(
    small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Group, "thinnest", lambda *_: CLIENTS)
    lists = own_lists(small.start())
    found = haul(small, lambda name: lists[name])
    assert found.refused == set(small.names) and not found.given


def test_o7_control_without_votes_lists_of_ones_own_read_one_upload_on_a_graph(
    small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Group, "thinnest", lambda *_: CLIENTS)
    monkeypatch.setattr(ShareHolding, "_check_votes", lambda *_: None)
    lists = own_lists(small.start())
    found = haul(small, lambda name: lists[name])
    victim = small.names[:1]
    assert is_sum_of(small, unveil(small, found, victim), victim)


@pytest.mark.parametrize("less", [0, 1])
def test_o7_a_holder_wants_a_quorum_among_the_holders_of_each_client(
    small: World, less: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All votes but some of one window, at the edge of what the holder sees."""
    shown: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr("tests.protocols.unveiling.certify", lambda *facts: shown.append(facts))
        found = haul(small.start(), lambda name: small.names)
    group, holder = small.aggregator.keys.agreed.group, small.names[0]
    assert len(group.voters(holder)) == 2 * NEIGHBOURS + 1
    # Of the clients it holds shares of, the one whose holders it knows least of.
    owner = min(group.holders(holder), key=lambda o: len(set(group.holders(o)) & near(group)))
    spare = len(group.holders(owner)) - group.quorum + less
    away = [name for name in group.holders(owner) if name not in near(group)][:spare]
    assert len(away) == spare
    votes = {name: row for name, row in shown[0][3].items() if name not in away}
    certify(small, found, holder, votes, None, frozenset(small.names))
    assert (holder in found.given) is not less


def near(group: Group) -> set[str]:
    return set(group.holders(sorted(group.called)[0]))


@pytest.mark.parametrize("corrupt", [0.02, 0.1, 0.2, 0.33])
@pytest.mark.parametrize(
    ("count", "dropped"),
    [(100, 0.05), (100, 0.25), (200, 0.3), (400, 0.05), (943, 0.05), (6040, 0.05)],
)
def test_o7_what_the_proof_for_votes_around_a_client_asks_for(
    count: int, dropped: float, corrupt: float
) -> None:
    chosen = choose_degree(count, corrupt=corrupt, dropped=dropped, lying=True)
    policy = sparse(corrupt, dropped)
    group = Group.of("r" * 32, 0, names_of(count), policy)
    assert (group.degree, group.threshold) == (chosen.neighbours, chosen.threshold)
    if group.degree == count - 1:
        assert chosen.corrupt == int(corrupt * count)
        assert 2 * group.quorum > count + chosen.corrupt
        # Beside the corrupt clients a list holds an honest one and the honest others (O10).
        assert group.window == chosen.corrupt + 1 + policy.minimum_cohort
        assert group.thinnest(group.called[: chosen.corrupt + 1]) < group.window
        return
    # Two lists of one window: its corrupt clients, its own among them, vote twice.
    assert 2 * group.quorum > group.degree + 1 + chosen.corrupt + 1
    # The honest who serve one client and the next meet, however far apart a list lets them be.
    assert 2 * (group.threshold - chosen.corrupt) - 2 >= group.degree // 2


# --- two lists for two halves of the circle -------------------------------------------------------


def two_halves(monkeypatch: pytest.MonkeyPatch) -> tuple[World, Haul, list[str]]:
    """Name everybody to one half of the circle, and all but four to the other.

    Either list leaves the graph in one piece, and three of the four have their holders among those
    who are told that they are there. Returns the order of the circle, too.
    """
    monkeypatch.setattr("protocols.keys.groups.COMPLETE_BELOW", 20)
    monkeypatch.setattr("crypto.graph.COMPLETE_BELOW", 20)
    names = names_of(60)
    world = World(policy=sparse(0.034), clients=tuple(sorted(names)), rounds=1).start()
    group = world.aggregator.keys.agreed.group
    found = (group.degree, group.threshold, group.window, group.quorum)
    assert found == (NEIGHBOURS, THRESHOLD, WINDOW, QUORUM)
    order = [world.names[i] for i in _circle(60, group.degree, group._seed)]
    left = not_in(world, {order[place] for place in (2, 4, 28, 57)})
    assert group.thinnest(left) >= group.window
    first = set(order[:30])
    return world, haul(world, lambda name: world.names if name in first else left), order


def rebuilt(world: World, found: Haul, kind: str) -> set[str]:
    """Return whose seed of a kind the shares rebuild."""
    whose = set()
    for name in world.names:
        with suppress(NotEnough):
            seed(world, found, name, kind)
            whose.add(name)
    return whose


def test_o7_two_lists_for_two_arcs_open_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world, found, order = two_halves(monkeypatch)
    # Far from the seams there is a quorum around every client: shares are given, to no avail.
    assert {*order[10:20], *order[40:50]} <= set(found.given)
    assert {*order[:5], *order[25:35], *order[55:]} <= found.refused
    one, other = (rebuilt(world, found, kind) for kind in "be")
    assert one and not other
    # No pair's secret is known, and not everybody's self-mask: the graph is one piece.
    pairs = nx.Graph(
        (n, p) for n in order for p in world.aggregator.keys.agreed.group.neighbours(n)
    )
    assert nx.is_connected(pairs) and not set(order) <= one


def test_o7_control_without_votes_two_lists_open_a_sum_of_neither(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ShareHolding, "_check_votes", lambda *_: None)
    world, found, order = two_halves(monkeypatch)
    left = not_in(world, order[57:58])  # the first list names all, the second three fewer
    assert is_sum_of(world, unveil(world, found, left), left)


# --- a complete graph ---------------------------------------------------------------------------


@pytest.mark.parametrize("honest", [1, 3, 4])
def test_o10_a_complete_graph_above_the_limit_serves_no_list_of_one_honest_client(
    honest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where no sparse graph will do: the corrupt clients can subtract what they sent."""
    monkeypatch.setattr("protocols.keys.groups.COMPLETE_BELOW", 20)
    monkeypatch.setattr("crypto.graph.COMPLETE_BELOW", 20)
    world = World(policy=sparse(0.33, 0.25), clients=40, rounds=1).start()
    assert world.aggregator.keys.agreed.group.degree == 39 and world.policy.colluders == 0
    corrupt = 13  # a third of 40
    left = list(world.names[: honest + corrupt])
    found = haul(world, lambda name: left, asked=left)
    if honest > world.policy.minimum_cohort:
        assert not found.refused and is_sum_of(world, unveil(world, found, left), left)
        return
    assert found.refused == set(world.names) and not found.votes
    with pytest.raises(NotEnough):
        unveil(world, found, left)


# --- a client that is told that neighbours of its are away ----------------------------------------


def told_apart(world: World, shown: int) -> tuple[list[str], str, list[str]]:
    """Let one client pair with some neighbours only."""
    outgoing = world.pump(world.aggregator.start(), until="pair.down")
    setup, victim = world.aggregator.keys.agreed, world.names[0]
    group, neighbours = setup.group, setup.group.neighbours(victim)
    kept = next(
        some
        for some in combinations(neighbours, shown)
        if shown < 6 or group.thinnest(not_in(world, set(neighbours) - set(some))) >= WINDOW
    )
    there = not_in(world, set(neighbours) - set(kept))
    message = PairDown(members=world.roster.mask(there), boxes=setup.boxes_for(victim))
    dims = world.context(victim).dims(world.plan.item("pair.down"))
    lie = world.forge(AGGREGATOR_NAME, "pair.down", victim, encode([message], dims), Where(0, 0))
    for delivery in outgoing:
        data = lie if delivery.to == victim else delivery.data
        (answer,) = world.clients[delivery.to].receive(data)
        if not refused([answer]):
            world.aggregator.receive(answer.data)
    return there, victim, list(kept)


def not_in(world: World, some: Any) -> list[str]:
    return [name for name in world.names if name not in some]


def summed(world: World, there: list[str], victim: str, kept: list[str], left: list[str]) -> Any:
    slot = slot_of(world.plan.item(ITEM), 1, 0)
    agreed = world.clients[victim].context.pairs.agreement(slot)
    found = haul(world, lambda name: left, members=there, asked=left)
    found.paired[victim], found.agreed[victim] = kept, agreed
    return found


def test_o7_a_client_with_too_few_neighbours_takes_no_part(small: World) -> None:
    _, victim, _ = told_apart(small, 3)
    assert small.clients[victim].context.pairs is None
    assert isinstance(small.clients[victim].last_error, BadEnvelope)


def test_o7_a_client_is_not_summed_with_who_it_was_told_is_away(small: World) -> None:
    _, victim, _ = told_apart(small, 6)
    assert refused(small.clients[victim].receive(small.evil_ask(victim)))


def test_o7_who_was_told_another_story_signed_another_upload(small: World) -> None:
    there, victim, kept = told_apart(small, 6)
    found = summed(small, there, victim, kept, there)
    holders = small.aggregator.keys.agreed.group.holders(victim)
    assert (set(holders) & set(there)) - {victim} <= found.refused
    with pytest.raises(NotEnough):
        unveil(small, found, [victim])


def test_o7_control_without_these_checks_its_vector_is_read(
    small: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Group, "thinnest", lambda *_: CLIENTS)
    monkeypatch.setattr(ShareHolding, "_check_evidence", lambda *_: None)
    monkeypatch.setattr("protocols.disclosures.sum.parties.vote_text_of", one_vote_text)
    there, victim, kept = told_apart(small, 3)
    left = [name for name in there if name not in kept]
    found = summed(small, there, victim, kept, left)
    assert is_sum_of(small, unveil(small, found, [victim]), [victim])


def one_vote_text(context: Any, name: str, where: Any, survivors: Any, pairs: str) -> bytes:
    return vote_text_of(context, name, where, survivors, NONE)


def test_below_a_hundred_everybody_is_paired_with_everybody() -> None:
    for count, degree in ((4, 3), (99, 98), (100, NEIGHBOURS)):
        assert Group.of("r", 0, names_of(count), sparse()).degree == degree
