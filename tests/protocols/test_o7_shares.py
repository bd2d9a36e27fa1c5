"""O7: shares are given once, of one kind, and only for a survivor list that most clients signed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocols.disclosures.sum.consistency import vote_text_of
from protocols.errors import BadEnvelope, LocalProtocolError, RoundLost
from protocols.keys.groups import Group, slot_of
from protocols.policy.policy import PrivacyPolicy
from protocols.wire.envelope import Envelope
from tests.protocols.toys import Update, changed_policy
from tests.protocols.unveiling import ITEM, NotEnough, certify, haul, is_sum_of, unveil
from tests.protocols.wire import World


def vote_texts(world, found, survivors):
    """Return everybody's true vote for one list."""
    context, votes = world.context("aggregator"), {}
    pairs = world.aggregator.keys.agreed.agreement(found.slot)
    for name in world.names:
        vote_text = vote_text_of(context, "train", found.where[name], survivors, pairs)
        votes[name] = world.identities[name].signing.sign("survivors", vote_text)
    return votes


def voted(world):
    """Return a haul whose lists were shown, and nothing else."""
    shown = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.protocols.unveiling.certify", lambda *facts: shown.append(facts))
        found = haul(world, lambda name: world.names)
    return found, dict(shown[0][3])


VOTES = {
    "all": (lambda w, v: v, True),
    "a quorum": (lambda w, v: dict(list(v.items())[:4]), True),
    "one less": (lambda w, v: dict(list(v.items())[:3]), False),
    "none": (lambda w, v: {}, False),
    "one of them forged": (lambda w, v: {**v, w.names[1]: b"\1" * 64}, False),
    "one of another's": (lambda w, v: {**v, w.names[1]: v[w.names[3]]}, False),
    "a quorum with one forged": (
        lambda w, v: dict(list(v.items())[:3]) | {w.names[4]: b"7" * 64},
        False,
    ),
    "for another list": (lambda w, v: v | {"list": w.names[:4]}, False),
}


@pytest.mark.parametrize("name", VOTES)
def test_o7_shares_follow_a_quorum_of_votes_for_the_very_list(name):
    world = World(policy="masks").start()
    found, votes = voted(world)
    assert votes == vote_texts(world, found, world.names)
    change, served = VOTES[name]
    changed = change(world, votes)
    if changed.pop("list", None):
        changed = vote_texts(world, found, world.names[:4])
    holder = world.names[0]
    certify(world, found, holder, changed, None, frozenset(world.names))
    assert (holder in found.given) is served
    if not served:
        assert isinstance(world.clients[holder].last_error, BadEnvelope)
        assert world.clients[holder].context.pairs is None


def test_o7_votes_open_the_door_once():
    world = World(policy="masks").start()
    found, votes = voted(world)
    certify(world, found, world.names[0], votes, None, frozenset(world.names))
    with pytest.raises(Exception, match="came before"):
        certify(world, found, world.names[0], votes, None, frozenset(world.names))


def one_away(world):
    """Lose everything of one client's first round, so that there is a list, votes and shares."""
    world.lost = lambda _, sender, to: world.names[-1] in (sender, to)


def test_o7_the_aggregator_takes_no_vote_for_another_list():
    world = World(policy="masks").start()
    one_away(world)
    outgoing = world.pump(world.ask(1), until=".survivors")
    (vote,) = world.deliver(outgoing[0])
    where = world.aggregator.asked.answers.where
    pairs = world.aggregator.keys.agreed.agreement(world.aggregator.sums._unmasking.slot)
    wrong = vote_text_of(world.context("aggregator"), "train", where, world.names, pairs)
    body = world.identities[outgoing[1].to].signing.sign("survivors", wrong)
    forged = world.forge(outgoing[1].to, "train.vote", "aggregator", body, where)
    with pytest.raises(BadEnvelope, match="another survivor list"):
        world.aggregator.receive(forged)
    world.aggregator.receive(vote.data)


# --- shares ---------------------------------------------------------------------------------------


def pairs_of(world, name):
    return world.clients[name].context.pairs


@settings(max_examples=12)
@given(st.data())
def test_o7_a_holder_gives_one_share_of_each_client_once(data):
    world = World(policy="masks", rounds=2).start()
    held = pairs_of(world, world.names[0])
    slot = slot_of(world.plan.item(ITEM), 1, 0)
    row, owners = held._held[slot], held.group.holders(world.names[0])
    both = {owner: row[64 * at : 64 * at + 64] for at, owner in enumerate(owners)}
    seen = {owner: set() for owner in world.names}
    for _ in range(4):
        members = data.draw(st.sets(st.sampled_from(world.names), min_size=1))
        survivors = data.draw(st.sets(st.sampled_from(world.names)))
        try:
            rows = held.give(slot, sorted(members), sorted(survivors))
        except LocalProtocolError:
            continue
        for owner, row in zip(held.group.holders(world.names[0]), rows, strict=True):
            if row.any():
                assert owner in members
                kind = "b" if owner in survivors else "e"
                assert row.tobytes() == both[owner][:32] if kind == "b" else both[owner][32:]
                seen[owner].add(kind)
    assert all(len(kinds) <= 1 for kinds in seen.values())


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_o7_fewer_shares_than_the_threshold_rebuild_nothing(missing):
    world = World(policy="masks").start()
    found = haul(world, lambda name: world.names)
    for name in world.names[: missing + 1]:
        del found.given[name]
    if missing == 0:
        assert is_sum_of(world, unveil(world, found, world.names), world.names)
        return
    with pytest.raises(NotEnough):
        unveil(world, found, world.names)


@pytest.mark.parametrize("asked", ["votes", "all_here"])
def test_o7_a_wrong_share_loses_the_round_and_opens_nothing(asked):
    world = World(policy="masks", clients=6).start()
    if asked == "votes":
        one_away(world)
    outgoing = world.pump(world.ask(1), until=f".{asked}")
    for delivery in outgoing:
        (answer,) = world.deliver(delivery)
        data = answer.data
        if delivery.to == world.names[0]:
            where = world.aggregator.asked.answers.where
            item = {"votes": "train.shares", "all_here": "train.self_shares"}[asked]
            body = np.full(world.plan.item(item).body, 7, np.uint8).tobytes()
            if asked == "all_here":  # its vote is true
                text = world.aggregator.sums._unmasking.vote_text
                vote = world.identities[delivery.to].signing.sign("survivors", text)
                body = vote + body[len(vote) :]
            data = world.forge(delivery.to, item, "aggregator", body, where)
            liar = world.clients[delivery.to]  # which knows what it really said
            liar.receipts.sent(Envelope.decode(data))
        world.aggregator.receive(data)
    with pytest.raises(RoundLost, match="belong together"):
        world.aggregator.advance()
    assert "open" not in world.kinds("aggregator")
    world.lost = lambda *_: False
    assert world.round(2).total(Update).count == world.count()


def test_o7_shares_come_once_and_from_holders_that_voted():
    world = World(policy="masks").start()
    one_away(world)
    outgoing = world.pump(world.ask(1), until=".votes")
    (answer,) = world.deliver(outgoing[0])
    world.aggregator.receive(answer.data)
    where = world.aggregator.asked.answers.where
    body = bytes(world.plan.item("train.shares").body)
    for sender, places in ((outgoing[0].to, {}), (outgoing[1].to, {"exchange": 9})):
        data = world.forge(sender, "train.shares", "aggregator", body, replace(where, **places))
        with pytest.raises(Exception, match=r"came before|another exchange"):
            world.aggregator.receive(data)
    for delivery in outgoing[1:]:
        world.aggregator.receive(world.deliver(delivery)[0].data)
    assert world.aggregator.advance() == []
    assert world.aggregator.reply().total(Update).count == world.count(world.names[:-1])


# --- thresholds -----------------------------------------------------------------------------------


@given(st.integers(4, 99), st.integers(0, 20))
def test_o7_threshold_and_quorum_are_an_honest_majority_and_no_less_than_the_cohort(n, colluders):
    policy = changed_policy("masks", colluders=colluders)
    if n < policy.smallest_cohort:
        return
    group = Group.of("r", 0, [f"c{i}" for i in range(n)], policy)
    for value in (group.threshold, group.quorum):
        assert policy.smallest_cohort <= value <= n
        # Two lists need 2 t answers; n clients give n, and the colluders give theirs twice.
        assert 2 * value > n + colluders or value == n
    assert group.degree == n - 1


def test_o7_a_group_below_the_minimum_is_none():
    with pytest.raises(Exception, match="too small"):
        Group.of("r", 0, ("a", "b", "c"), PrivacyPolicy.preset("masks"))
