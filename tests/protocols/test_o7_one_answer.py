"""O5, O7: a list that lacks nobody is served in one answer, and no other list of its slot is.

Each attack is run to the end, for every way to share holders out between the two paths. Where the
rule that stops it is left out, it reads a vector (ADR 0035).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from protocols.disclosures.sum.consistency import vote_text_of
from protocols.disclosures.sum.messages import AllHere, SelfShares, Survivors, Vote
from protocols.disclosures.sum.parties import ShareHolding
from protocols.errors import BadEnvelope, NotInPlan, Replay, RoundLost
from protocols.keys import groups
from protocols.keys.groups import Group, one_answer, planned_one_answer
from protocols.keys.pairs import Pairs
from protocols.plan.plan import Plan, drift
from protocols.sessions.part import State
from protocols.wire.envelope import Envelope
from tests.protocols.killed import Killed
from tests.protocols.toys import TWICE, Update, changed_policy, names_of, toy_plan
from tests.protocols.unveiling import (
    NotEnough,
    all_here,
    certify,
    evidence_for,
    haul,
    is_sum_of,
    place_of,
    seed,
    show,
    tell,
    unveil,
)
from tests.protocols.wire import World, unplaced

CLIENTS = 8


def uploaded(world, **places):
    """Return everybody's uploads; no holder was told anything yet."""
    return haul(world, lambda _: None, **places)


def rows_of(world, found, holder):
    """Return both kinds of shares that a holder has of everybody, as one who works with others."""
    held = world.clients[holder].context.pairs._held[found.slot]
    table = np.frombuffer(held, np.uint8).reshape(-1, 64)
    return table[:, :32].copy(), table[:, 32:].copy()


def corrupt(world, found, names):
    """Let these holders give all that they have, of both kinds."""
    both = {name: rows_of(world, found, name) for name in names}
    for kind, told in enumerate((frozenset(world.names), frozenset())):
        given = {name: rows[kind] for name, rows in both.items()}
        found.beside.append((dict.fromkeys(names, told), given))


def short_list(world, found, holder, listed):
    """Show one holder a list; return its vote, None for a refusal."""
    place = place_of(found, holder)
    message = Survivors(
        members=world.roster.mask(place.members),
        survivors=world.roster.mask(listed),
        slot=place.slot,
        evidence=evidence_for(world, found, holder),
    )
    vote = tell(world, "survivors", holder, message, place, Vote)
    if vote is None:
        found.refused.add(holder)
    return vote


def two_steps(world, found, holders, listed, liars=()):
    """Show a shorter list to holders, then all votes that there are; liars sign anything."""
    votes = {holder: short_list(world, found, holder, listed) for holder in holders}
    signed = {holder: vote.signature for holder, vote in votes.items() if vote is not None}
    voters, pairs = list(signed), world.aggregator.keys.agreed.agreement(found.slot)
    place = place_of(found, world.names[0])
    text = vote_text_of(world.context("aggregator"), "train", place, listed, pairs)
    for name in liars:
        signed[name] = world.identities[name].signing.sign("survivors", text)
    for holder in voters:
        certify(world, found, holder, signed, None, frozenset(listed))


def opens(world, found, members):
    """Tell whether what was given opens the sum of these clients."""
    try:
        return is_sum_of(world, unveil(world, found, members), members)
    except NotEnough:
        return False


def both_seeds(world, found):
    """Return the clients of which self-mask and row are both rebuilt."""

    def rebuilt(name, kind):
        try:
            return bool(seed(world, found, name, kind))
        except NotEnough:
            return False

    return {name for name in world.names if rebuilt(name, "b") and rebuilt(name, "e")}


def split_view(world, told_all, liars=(), *, lists_first=False, again=False):
    """Tell some that nobody is missing, and others that the first client vanished.

    Args:
        world: started.
        told_all: how many honest holders are told that nobody is missing, the victim first.
        liars: the last clients, which give everything both ways.
        lists_first: show the shorter list before.
        again: ask the honest for both.

    Returns:
        What was given; whether it opens everybody's sum; whether it opens that without the victim.
    """
    honest = [name for name in world.names if name not in liars]
    found, without = uploaded(world), world.names[1:]
    corrupt(world, found, liars)
    told, listed = honest[:told_all], honest[told_all:]
    if again and lists_first:
        told = honest
    elif again:
        listed = honest

    def lists():
        two_steps(world, found, [name for name in listed if name in without], without, liars)

    for step in (lists, all_here) if lists_first else (all_here, lists):
        step(world, found, told) if step is all_here else step()
    return found, opens(world, found, world.names), opens(world, found, without)


def started(colluders=0, clients=CLIENTS, policy="masks"):
    return World(policy=changed_policy(policy, colluders=colluders), clients=clients).start()


SPLITS = [(0, 1), (0, 3), (0, 4), (0, 5), (0, 8), (2, 1), (2, 2), (2, 3), (2, 4), (2, 6)]


@pytest.mark.parametrize("again", [False, True], ids=["apart", "both ways"])
@pytest.mark.parametrize("lists_first", [False, True], ids=["all here first", "list first"])
@pytest.mark.parametrize(("colluders", "told_all"), SPLITS)
def test_o7_of_two_stories_on_two_paths_at_most_one_sum_opens(
    colluders, told_all, lists_first, again
):
    world = started(colluders)
    liars = world.names[CLIENTS - colluders :]
    found, whole, short = split_view(world, told_all, liars, lists_first=lists_first, again=again)
    assert not (whole and short)
    assert not both_seeds(world, found) - set(liars)
    if again and not lists_first:  # who served it all votes for no other list
        assert found.refused >= set(world.names[1:told_all])


def test_o7_both_sums_can_be_opened_one_at_a_time():
    """The attack does reach either sum, so what stops it is that it cannot reach both."""
    assert split_view(started(), 8)[1:] == (True, False)
    assert split_view(started(), 1)[1:] == (False, True)


def test_o7_control_colluders_that_the_policy_does_not_count_open_both():
    world = started(colluders=0)
    found, whole, short = split_view(world, 3, world.names[-2:])
    assert whole and short  # their difference is the victim's vector
    assert world.names[0] in both_seeds(world, found)


# --- the aggregator's organisation is a client too ------------------------------------------------

OWN_CLIENT = [(policy, clients) for policy in ("masks", "strict") for clients in (7, 9, 11)]
"""Where 2 t = n + 1, if a threshold is more than half of the holders and no more."""


def halves(clients, policy, liars, *, told_all=None, lists_first=False):
    """Tell half of the honest that all are here, and half a list without the first client.

    Returns:
        Whether everybody's sum opens, and whether that without the victim does.
    """
    world = started(clients=clients, policy=policy)
    honest = clients - liars
    told = honest // 2 if told_all is None else told_all
    names = world.names[clients - liars :]
    return split_view(world, told, names, lists_first=lists_first)[1:]


@pytest.mark.parametrize("lists_first", [False, True], ids=["all here first", "list first"])
@pytest.mark.parametrize(("policy", "clients"), OWN_CLIENT)
def test_o7_an_aggregator_with_a_client_of_its_own_opens_one_of_two_lists(
    policy, clients, lists_first
):
    assert not all(halves(clients, policy, 1, lists_first=lists_first))


@pytest.mark.parametrize(("policy", "clients"), OWN_CLIENT)
def test_o7_control_where_no_client_of_its_own_is_counted_both_open(policy, clients, monkeypatch):
    monkeypatch.setattr(groups, "LEAST_COUNTED", 0)
    assert halves(clients, policy, 1) == (True, True)  # their difference is the victim's upload


def planned(policy, clients):
    """Return the plan of a toy run with so many clients."""
    facts = {} if policy == "pilot" else {"bfv": None}
    return toy_plan(policy=changed_policy(policy), clients=names_of(clients), **facts)


@pytest.mark.parametrize("clients", range(4, 12))
def test_o7_as_many_helpers_as_the_plan_states_open_nothing(clients):
    helpers = planned("masks", clients).withstands
    assert helpers >= 1
    for told_all in range(1, clients - helpers + 1):
        assert not all(halves(clients, "masks", helpers, told_all=told_all))


@pytest.mark.parametrize("clients", range(6, 12))
def test_o7_control_one_helper_more_than_the_plan_states_opens_both(clients):
    helpers = planned("masks", clients).withstands + 1
    honest = clients - helpers
    assert any(
        all(halves(clients, "masks", helpers, told_all=told)) for told in range(1, honest + 1)
    )


@pytest.mark.parametrize("stated", [None, 1, 3])
def test_a_plan_that_states_another_number_of_helpers_is_refused(stated):
    world = World(policy="masks", clients=7)
    assert world.plan.withstands == 2
    lying = world.plan.model_copy(update={"withstands": stated})
    with pytest.raises(NotInPlan, match="withstands"):
        replace(world.context("aggregator"), plan=lying)


@pytest.mark.parametrize(
    ("policy", "clients", "stated"),
    [("masks", 4, 2), ("pilot", 8, 1), ("unsafe_plaintext", 8, None), ("masks", 943, 94)],
)
def test_a_plan_says_how_many_helpers_its_policy_withstands(policy, clients, stated):
    plan = planned(policy, clients)
    assert plan.withstands == stated
    assert (f"up to {stated} of {clients}" in plan.withstands_words) == (stated is not None)


def test_fewer_helpers_than_were_approved_are_a_drift():
    plan = planned("masks", 7)
    for stated, drifts in ((1, True), (None, True), (3, False), (2, False)):
        wanted = plan.model_copy(update={"withstands": stated})
        assert any("withstands" in line for line in drift(plan, wanted)) is drifts
    assert not drift(plan.model_copy(update={"withstands": None}), plan)


def test_o7_control_with_half_of_the_holders_as_threshold_both_open(monkeypatch):
    monkeypatch.setattr(groups, "honest_majority", lambda holders, corrupt: holders // 2)
    monkeypatch.setattr("protocols.disclosures.sum.parties.one_answer", lambda *_: True)
    assert split_view(started(), 4)[1:] == (True, True)


def test_o7_with_half_of_the_holders_as_threshold_nobody_serves_in_one_answer(monkeypatch):
    monkeypatch.setattr(groups, "honest_majority", lambda holders, corrupt: holders // 2)
    world = started()
    found, whole, _ = split_view(world, 4)
    assert not whole and set(world.names[:4]) <= found.refused
    assert "only votes keep" in world.clients[world.names[0]].last_error.what


def forgetful(monkeypatch):
    """Make holders that do not remember on which path they gave what."""
    real = Pairs.give

    def give(self, *facts):
        held = dict(self._held)
        rows = real(self, *facts)
        self._held, self._given = held, {}
        return rows

    monkeypatch.setattr(Pairs, "give", give)
    monkeypatch.setattr(ShareHolding, "_one_list", lambda *_: None)


def test_o7_the_gateway_remembers_the_path_if_a_holder_does_not(monkeypatch):
    forgetful(monkeypatch)
    assert split_view(started(), 8, again=True)[1:] == (True, False)


def test_o7_control_holders_that_forget_the_path_they_took_open_both(monkeypatch):
    forgetful(monkeypatch)
    monkeypatch.setattr(Plan, "instead_of", lambda *_: [])  # and so does the gateway
    assert split_view(started(), 8, again=True)[1:] == (True, True)


# --- without votes --------------------------------------------------------------------------------


def lists_of_ones_own(world):
    """Serve the victim alone in one answer; mark others as vanished at every other holder."""
    victim, others = world.names[0], world.names[1:]
    group = world.aggregator.keys.agreed.group
    stay, lists = group.least - 2, {}  # beside the victim and the holder itself
    for place, holder in enumerate(others):
        near = (others * 2)[place + 1 : place + 1 + stay]
        lists[holder] = sorted((victim, holder, *near))
    found = uploaded(world)
    all_here(world, found, [victim])
    show(world, found, lists.get)
    return found


def test_o7_lists_of_ones_own_beside_one_answer_open_nothing():
    world = started(clients=10)
    found = lists_of_ones_own(world)
    assert not found.given and found.beside[0][1]
    assert not opens(world, found, world.names[:1])


def test_o7_control_with_the_vote_left_out_they_open_a_single_upload(monkeypatch):
    monkeypatch.setattr(ShareHolding, "_check_votes", lambda *_: None)
    world = started(clients=10)
    assert opens(world, lists_of_ones_own(world), world.names[:1])


# --- two sums of one round ------------------------------------------------------------------------


def two_sums(told_all, marked=False):
    """Serve the first sum with everybody at some, the second without one client at the others.

    What is told of the first comes after uploads of the second; holders that go by the `marked`
    newest exchange turn it down unread.
    """
    world = World(TWICE, "masks", clients=CLIENTS).start()
    first = uploaded(world)
    second = uploaded(world, exchange=2, slot=1)
    for client in world.clients.values() if not marked else ():
        unplaced(client)
    all_here(world, first, world.names[:told_all])
    two_steps(world, second, world.names[1:], world.names[1:])
    return opens(world, first, world.names), opens(world, second, world.names[1:])


@pytest.mark.parametrize("told_all", [1, 3, 4, 5, 8])
def test_o5_two_sums_of_one_round_are_not_opened_over_two_lists(told_all):
    assert not all(two_sums(told_all))


def test_o5_a_sum_is_served_in_no_way_once_the_next_was_asked():
    with pytest.raises(Replay):
        two_sums(1, marked=True)


def test_o5_control_holders_that_look_at_slots_alone_open_both(monkeypatch):
    real = ShareHolding._one_list

    def slots_only(self, place, *sets):
        if not place.startswith("round "):
            real(self, place, *sets)

    monkeypatch.setattr(ShareHolding, "_one_list", slots_only)
    assert two_sums(8) == (True, True)


# --- what one holder says -------------------------------------------------------------------------


def message_for(world, found, holder, **facts):
    place = place_of(found, holder)
    said = {
        "members": world.roster.mask(place.members),
        "slot": place.slot,
        "evidence": evidence_for(world, found, holder),
    }
    return AllHere(**{**said, **facts})


def test_o7_no_share_of_a_row_leaves_in_one_answer_and_none_is_left():
    world = started()
    found, holder = uploaded(world), world.names[0]
    selves, rows = rows_of(world, found, holder)
    all_here(world, found, [holder])
    assert np.array_equal(found.beside[0][1][holder], selves)
    assert not np.array_equal(selves, rows) and rows.any()
    for kind in rows_of(world, found, holder):
        assert not kind.any()


CRAFTED = {
    "another slot": {"slot": 1},
    "fewer members": {"members": slice(0, 7)},
    "evidence left out": {"evidence": 0},
    "another round": {"round": 2},
    "a round of another epoch": {"round": 51, "exchange": 9},
    "another attempt": {"attempt": 2},
    "another model": {"given": "ab" * 32},
    "an exchange that never was": {"exchange": 9},
}


@pytest.mark.parametrize("name", CRAFTED)
def test_o7_all_here_must_fit_what_a_client_sent_and_every_upload(name):
    world = World(TWICE, "masks", clients=CLIENTS).start()
    facts, found, holder = dict(CRAFTED[name]), uploaded(world), world.names[0]
    if facts.pop("evidence", None) is not None:
        found.evidence[world.names[3]] = bytes(144)
    if "members" in facts:
        facts["members"] = world.names[facts["members"]]
    where = replace(place_of(found, holder), **facts)
    places = {"slot": where.slot, "members": world.roster.mask(where.members)}
    message = message_for(world, found, holder, **places)
    assert tell(world, "all_here", holder, message, where, SelfShares) is None
    assert world.clients[holder].state is State.DEAD
    assert isinstance(world.clients[holder].last_error, BadEnvelope)
    assert world.clients[holder].context.pairs is None


def test_o7_members_that_are_not_the_headers_cohort_are_refused():
    world = started()
    found, holder = uploaded(world), world.names[0]
    message = message_for(world, found, holder, members=world.roster.mask(world.names[:7]))
    assert tell(world, "all_here", holder, message, place_of(found, holder), SelfShares) is None


def test_o7_all_here_is_served_once():
    world = started()
    found, holder = uploaded(world), world.names[0]
    all_here(world, found, [holder])
    with pytest.raises(Exception, match="came before"):
        all_here(world, found, [holder])


def test_o7_the_aggregator_takes_one_answer_for_its_own_list_alone():
    world = started(clients=5)
    outgoing = world.pump(world.ask(1), until=".all_here")
    (answer,) = world.deliver(outgoing[0])
    where = world.aggregator.asked.answers.where
    wrong = world.identities[outgoing[1].to].signing.sign("survivors", b"another")
    body = wrong + bytes(world.plan.item("train.self_shares").body - 64)
    forged = world.forge(outgoing[1].to, "train.self_shares", "aggregator", body, where)
    with pytest.raises(BadEnvelope, match="another survivor list"):
        world.aggregator.receive(forged)
    world.aggregator.receive(answer.data)
    with pytest.raises(RoundLost, match="confirmed the survivor list"):
        world.aggregator.advance()  # one holder of four


def test_o7_the_gateway_counts_both_ways_of_a_sum_together():
    world = started(clients=5)
    found, (served, other) = uploaded(world), world.names[:2]
    all_here(world, found, [served])
    vote, gate = Vote(signature=bytes(64)), "train.vote"
    with pytest.raises(NotInPlan, match="in this round as often as planned"):
        world.clients[served]._gateway.release(gate, [vote], "aggregator", place_of(found, served))
    # The control: whoever has not answered yet may go the other way.
    world.clients[other]._gateway.release(gate, [vote], "aggregator", place_of(found, other))


TWO_STEPS = {"train.survivors", "train.vote", "train.votes", "train.shares"}
AT_ONCE = {"train.all_here", "train.self_shares"}


def items_of(world):
    return {Envelope.decode(data).header.item for data in world.wire}


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_where_nobody_is_missing_one_answer_takes_the_masks_off(policy):
    world = started(clients=5, policy=policy)
    assert is_sum_of(world, world.round(1).total(Update), world.names)
    assert items_of(world) >= AT_ONCE and not items_of(world) & TWO_STEPS


def test_a_list_that_lacks_anybody_goes_two_steps():
    world = started(clients=5)
    world.lost = lambda item, sender, _: item == "train.up.SUM" and sender == world.names[0]
    assert is_sum_of(world, world.round(1).total(Update), world.names[1:])
    assert items_of(world) >= TWO_STEPS and not items_of(world) & AT_ONCE


# --- kills ----------------------------------------------------------------------------------------


def killed(policy="masks"):
    world = Killed(policy=policy, clients=5).start()
    world.keep()
    return world


def test_o7_a_holder_that_is_taken_up_again_serves_no_other_list():
    world = killed()
    found, holder = uploaded(world), world.names[1]
    for name in world.names:
        world.clients[name].commit()
        world.kill(name)
    all_here(world, found, [holder])
    world.kill(holder)
    assert not any(kind.any() for kind in rows_of(world, found, holder))
    assert short_list(world, found, holder, world.names[1:]) is None
    assert "shares were given" in world.clients[holder].last_error.what


def test_o7_a_holder_that_voted_and_is_taken_up_again_does_not_serve_all():
    world = killed()
    found, holder = uploaded(world), world.names[1]
    assert short_list(world, found, holder, world.names[1:]) is not None
    world.kill(holder)
    all_here(world, found, [holder])
    assert holder in found.refused
    assert "after another list" in world.clients[holder].last_error.what


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_o7_parties_killed_after_every_delivery_go_on_and_say_the_same(policy):
    world = killed(policy)
    outgoing = world.ask(1)
    while outgoing:
        world.kill("aggregator")
        outgoing = world.aggregator.go_on()
        for delivery in outgoing:
            answers = world.deliver(delivery)
            assert [a.data for a in world.deliver(delivery)] == [a.data for a in answers]
            for answer in answers:
                world.aggregator.receive(answer.data)
        outgoing = world.aggregator.advance()
    assert is_sum_of(world, world.aggregator.reply().total(Update), world.names)
    assert world.kills > 20


# --- where it is allowed --------------------------------------------------------------------------


def group_of(clients, policy):
    return Group.of("r", 0, [f"c{i}" for i in range(clients)], policy)


@settings(max_examples=40)
@given(st.integers(4, 99), st.integers(0, 12))
@example(20, 8)
def test_o7_counts_that_one_answer_rests_on(clients, colluders):
    policy = changed_policy("masks", colluders=colluders)
    if clients < max(policy.smallest_cohort, policy.minimum_cohort + 1 + colluders):
        return
    group = group_of(clients, policy)
    honest, quorum = clients - colluders, group.quorum
    assert one_answer(group, policy) and planned_one_answer(clients, policy)
    for fewer in range(1, group.threshold + 1):
        weaker = replace(group, threshold=fewer)
        both = [
            served
            for served in range(honest + 1)
            if served + colluders >= fewer and honest - served + colluders >= max(quorum, fewer)
        ]  # so many serve everybody, and the others a shorter list
        assert not (both and one_answer(weaker, policy))


def test_o7_on_a_sparse_graph_lists_go_two_steps():
    policy = changed_policy("masks", rekey_rounds=2)
    group = group_of(200, policy)
    assert not group.complete and not one_answer(group, policy)
    names = [f"client-{i}" for i in range(200)]
    steps = {item.id for item in toy_plan(TWICE, policy, clients=names, bfv=None).items}
    assert steps >= TWO_STEPS and not AT_ONCE & steps
