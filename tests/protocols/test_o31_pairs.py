"""O31: pair secrets rest on X25519 and ML-KEM-768 together; who relays them cannot meddle."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import pytest

from crypto.hpke import KEY_BYTES, SEAL_OVERHEAD
from protocols.errors import BadEnvelope
from protocols.keys.groups import planned_degree
from protocols.keys.pairs import open_box, pair_box_bytes
from protocols.policy.policy import PrivacyPolicy
from protocols.sessions.part import State
from protocols.wire.codec import encode
from protocols.wire.control import PairDown
from protocols.wire.envelope import Envelope, Where
from tests.protocols.wire import World, refused

MLKEM, X25519, TAG, SIGNATURE = 1088, 32, 16, 64  # FIPS 203, RFC 7748, SP 800-38D, RFC 8032


@pytest.fixture
def world():
    return World(policy=PrivacyPolicy.preset("masks"))  # 50 rounds in an epoch


def downs_of(world):
    """Run the agreement up to the boxes' delivery; return what goes to each client."""
    return world.pump(world.aggregator.start(), until="pair.down")


def test_o31_a_box_is_hybrid_and_of_the_planned_size(world):
    assert SEAL_OVERHEAD == MLKEM + X25519 + TAG
    assert KEY_BYTES == 1184 + X25519
    slots = 50
    size = 32 + 33 + 2 * 32 * slots + SIGNATURE + MLKEM + X25519 + TAG
    assert pair_box_bytes(slots) == size
    downs_of(world)
    boxes = world.aggregator.keys.agreed._boxes
    assert {len(data) for data in boxes.values()} == {4 * size}
    assert planned_degree(5, world.policy) == 4
    assert world.plan.item("pair.boxes").body == 4 * size


def box_for(world, sender, addressee):
    group, size = world.aggregator.keys.agreed.group, pair_box_bytes(50)
    place = group.neighbours(sender).index(addressee)
    return world.aggregator.keys.agreed._boxes[sender][place * size : (place + 1) * size]


@pytest.mark.parametrize("place", [0, MLKEM - 1, MLKEM, MLKEM + X25519 - 1, MLKEM + X25519, -1])
def test_o31_both_halves_of_the_key_exchange_count(world, place):
    downs_of(world)
    one, other = world.names[:2]
    box, info = box_for(world, one, other), world.clients[one].context.pairs._info(one, other)
    me, sender = world.identities[other], world.roster.party(one)
    assert len(open_box(box, me, sender, info)) == 32 + 33 + 64 * 50
    altered = bytearray(box)
    altered[place] ^= 1
    with pytest.raises(BadEnvelope):
        open_box(bytes(altered), me, sender, info)


def test_o31_nobody_but_the_addressee_opens_a_box(world):
    downs_of(world)
    one, other = world.names[:2]
    box, info = box_for(world, one, other), world.clients[one].context.pairs._info(one, other)
    for name, identity in world.identities.items():
        if name != other:
            with pytest.raises(BadEnvelope):
                open_box(box, identity, world.roster.party(one), info)


def tampered(world, change):
    """Deliver to the victim what the relay made of its boxes; return the victim's session."""
    downs_of(world)
    setup = world.aggregator.keys.agreed
    change(setup._boxes, world.names)
    victim = world.names[4]
    world.aggregator.state = State.KEYING
    message = PairDown(members=world.roster.mask(setup.boxed), boxes=setup.boxes_for(victim))
    dims = world.context(victim).dims(world.plan.item("pair.down"))
    body = encode([message], dims)
    data = world.forge("aggregator", "pair.down", victim, body, Where(0, 0))
    answers = world.clients[victim].receive(data)
    return world.clients[victim], answers


def swapped(boxes, names):
    boxes[names[0]], boxes[names[1]] = boxes[names[1]], boxes[names[0]]


def garbage(boxes, names):
    boxes[names[0]] = bytes(len(boxes[names[0]]))


def own(boxes, names):
    boxes[names[0]] = boxes[names[4]]


@pytest.mark.parametrize("change", [swapped, garbage, own], ids=lambda f: f.__name__)
def test_the_relay_cannot_exchange_or_make_boxes(world, change):
    victim, answers = tampered(world, change)
    assert refused(answers) and victim.state is State.DEAD and victim.context.pairs is None
    assert isinstance(victim.last_error, BadEnvelope)


def test_the_relay_that_changes_nothing_is_answered(world):
    victim, answers = tampered(world, lambda *_: None)
    assert [Envelope.decode(a.data).header.item for a in answers] == ["pair.rows"]
    assert victim.context.pairs is not None


def test_boxes_of_another_run_or_epoch_are_not_taken():
    one = World(policy=PrivacyPolicy.preset("masks"))
    other = World(policy=PrivacyPolicy.preset("masks"), identities=one.identities)
    downs_of(other)
    downs_of(one)
    a, b = one.names[:2]
    box, info = box_for(other, a, b), one.clients[a].context.pairs._info(a, b)
    with pytest.raises(BadEnvelope):
        open_box(box, one.identities[b], one.roster.party(a), info)


@pytest.mark.parametrize("of", ["nothing", "run", "epoch", "called"])
def test_boxes_are_bound_to_run_epoch_and_who_was_called(world, of):
    """Two stories about any of them do not open."""
    downs_of(world)
    a, b = world.names[:2]
    pairs = world.clients[a].context.pairs
    box, group = box_for(world, a, b), pairs.group
    changes = {
        "nothing": {},
        "run": {"run": "0" * len(group.run)},
        "epoch": {"epoch": group.epoch + 1},
        "called": {"called": group.called[:-1]},
    }
    pairs.group = replace(group, **changes[of])
    expected = contextlib.nullcontext() if of == "nothing" else pytest.raises(BadEnvelope)
    with expected:
        open_box(box, world.identities[b], world.roster.party(a), pairs._info(a, b))


@pytest.mark.parametrize("forgetful", [None, 0, 1])
def test_o31_a_secret_rests_on_the_halves_of_both(world, forgetful):
    """Whoever has another half of its own than it sealed for its neighbour shares no secret."""
    downs_of(world)
    setup, names, found = world.aggregator.keys.agreed, world.names[:2], []
    for place, (name, peer) in enumerate(zip(names, reversed(names), strict=True)):
        pairs = world.clients[name].context.pairs
        if place == forgetful:
            pairs._halves[peer] = bytes(32)
        pairs.take(setup.boxes_for(name), setup.boxed)
        found.append(pairs._pair[pairs.slots[0]][peer])
    assert (found[0] == found[1]) is (forgetful is None)
