"""Clients as witnesses: the receipt that comes with every Ask, and the root over all heads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.errors import OutOfRange
from crypto.merkle import inclusion_proof, leaf_hash, perfect_tree, root
from protocols.errors import BadEnvelope, Refused, WrongStage
from protocols.evidence.ledger import SILENT, Spoken, check_place, proof_bytes, received, tree
from protocols.sessions.part import State
from protocols.wire.envelope import Envelope
from tests.protocols.toys import changed_policy
from tests.protocols.wire import World

NAMES = tuple(f"client-{number}" for number in range(1, 8))
ITEMS = ("pair.rows", "train.up.SUM", "train.vote", "train.shares")
LINE = received(SILENT, 3, "train.vote", "ab" * 32, "cd" * 32)


def test_a_perfect_tree_is_the_tree_of_the_rfc():
    leaves = [leaf_hash(bytes([n])) for n in range(8)]
    found, proofs = perfect_tree(leaves)
    assert found == root(leaves)
    assert proofs == [inclusion_proof(leaves, n) for n in range(8)]
    for size in (0, 3, 6):
        with pytest.raises(OutOfRange):
            perfect_tree(leaves[:size])


@pytest.mark.parametrize("clients", [1, 2, 4, 5, 7])
def test_every_line_stands_under_the_root(clients):
    names = NAMES[:clients]
    found, proofs = tree(names, {names[0]: LINE})
    for name in names:
        assert len(proofs[name]) == proof_bytes(clients)
        check_place(name, names, LINE if name == names[0] else SILENT, proofs[name], found)


@given(st.sampled_from(NAMES), st.integers(0, 7))
def test_no_other_line_place_or_path_stands_under_it(name, bit):
    found, proofs = tree(NAMES, dict.fromkeys(NAMES, LINE))
    path = proofs[name]
    said = ("ab" * 32, "cd" * 32)
    others = [{"train.up.SUM": said}, {"train.vote": ("cd" * 32, "ab" * 32)}, {}]
    both = {"train.vote": said, "train.shares": said}
    for other in ((4, LINE[1]), SILENT, *((3, found) for found in (*others, both))):
        with pytest.raises(BadEnvelope):
            check_place(name, NAMES, other, path, found)
    spoilt = bytes([path[0] ^ (1 << bit)]) + path[1:]
    for wrong in (spoilt, path[32:], path + bytes(32), b""):
        with pytest.raises(BadEnvelope):
            check_place(name, NAMES, LINE, wrong, found)
    with pytest.raises(BadEnvelope):
        check_place(NAMES[(NAMES.index(name) + 1) % 7], NAMES, LINE, path, found)


def test_a_receipt_is_for_what_was_sent():
    spoken = Spoken(ITEMS)
    assert spoken.line(0, 0) == (SILENT, False)
    for exchange, word in ((1, 1), (1, 0), (0, 1)):
        with pytest.raises(BadEnvelope):
            spoken.line(exchange, word)
    for item in ITEMS[1:]:
        spoken.add(1, item, item, "head")
    assert spoken.line(1, 0b1110) == ((1, {i: (i, "head") for i in ITEMS[1:]}), False)
    assert spoken.line(1, 0b1010) == ((1, {i: (i, "head") for i in ITEMS[1::2]}), True)  # a gap
    assert spoken.line(0, 0) == (SILENT, True)
    for word in (0b1111, 0b0001, 0b11110):
        with pytest.raises(BadEnvelope):
            spoken.line(1, word)


def test_however_long_a_client_is_not_received_no_receipt_is_too_old():
    spoken = Spoken(ITEMS)
    for exchange in range(1, 30):
        spoken.add(exchange, ITEMS[1], f"{exchange}", "head")
    assert spoken.line(1, 2) == ((1, {ITEMS[1]: ("1", "head")}), True)
    assert spoken.line(20, 2)[1]
    with pytest.raises(BadEnvelope):
        spoken.line(19, 2)  # a later one was acknowledged: this is an old story
    assert spoken.line(29, 2) == ((29, {ITEMS[1]: ("29", "head")}), False)


def told(world: World, party: str) -> list[dict]:
    return [entry for entry in world.entries(party) if entry["kind"] == "heads"]


@pytest.mark.parametrize("policy", ["masks", "he", "unsafe_plaintext"])
def test_every_client_notes_the_same_root_with_every_ask(policy):
    world = World(policy=policy).start()
    for number in (1, 2):
        world.round(number)
    world.pump(world.aggregator.farewell())
    assert world.aggregator.state is State.PARTED
    roots = [(entry["exchange"], entry["root"]) for entry in told(world, "aggregator")]
    assert len(roots) == len(set(roots)) == 3
    for name in world.names:
        assert [(e["exchange"], e["root"]) for e in told(world, name)] == roots
        assert [e["missing"] for e in told(world, name)] == [0, 0, 0]


def test_a_root_covers_the_heads_before_the_last_answers():
    world = World(policy="unsafe_plaintext").start()
    world.round(1)
    before = {n: world.clients[n].ledger.head for n in world.names}
    heads = {}
    for delivery in world.ask(2):
        (answer,) = world.deliver(delivery)
        heads[delivery.to] = Envelope.decode(answer.data).header.head
    assert set(heads) == set(before)
    assert all(heads[n] != before[n] for n in before)  # an answer's head holds the root's entry


@pytest.mark.parametrize(
    "lie",
    ["another commitment", "another head", "an envelope that never was", "another exchange"],
)
def test_a_client_refuses_a_receipt_for_what_it_did_not_send(lie):
    world = World(policy="masks").start()
    world.round(1)
    victim, received_of = world.names[1], world.aggregator.heads._received
    exchange, said = received_of[victim]
    item, (commitment, head) = next(iter(said.items()))
    changed = {
        "another commitment": (exchange, {**said, item: ("0" * 64, head)}),
        "another head": (exchange, {**said, item: (commitment, "0" * 64)}),
        "an envelope that never was": (exchange, {**said, "heads.ack": (commitment, head)}),
        "another exchange": (7, said),
    }
    received_of[victim] = changed[lie]
    with pytest.raises(Refused) as caught:
        world.round(2)
    assert caught.value.sender == victim


def test_a_stale_receipt_is_refused():
    world = World(policy="unsafe_plaintext", rounds=4).start()
    world.round(1)
    stale = dict(world.aggregator.heads._received)
    world.round(2)
    world.round(3)
    world.aggregator.heads._received = stale
    with pytest.raises(Refused):
        world.round(4)


def test_o7_lost_shares_before_the_next_epochs_keys_end_no_run():
    """Keys of an epoch carry the number of the Ask before them, so what is lost leaves a gap."""
    policy = changed_policy("masks", rekey_rounds=1)
    world = World(policy=policy, rounds=3, clients=6).start()
    victim = world.names[1]
    outgoing = world.pump(world.ask(1), until=".all_here")
    for delivery in outgoing:
        (answer,) = world.deliver(delivery)
        if delivery.to != victim:
            world.aggregator.receive(answer.data)
    world.pump(world.aggregator.advance())
    world.round(2)
    assert [e["missing"] for e in told(world, victim)] == [0, 1]
    world.round(3)
    assert [e["missing"] for e in told(world, victim)] == [0, 1, 0]


def test_a_receipt_that_is_left_out_is_written_down():
    world = World(policy="unsafe_plaintext").start()
    world.round(1)
    world.aggregator.heads._received[world.names[2]] = SILENT
    world.round(2)
    assert [e["missing"] for e in told(world, world.names[2])] == [0, 1]
    assert [e["missing"] for e in told(world, world.names[1])] == [0, 0]


def test_after_a_farewell_nothing_is_asked():
    world = World(policy="masks").start()
    world.round(1)
    world.pump(world.aggregator.farewell())
    with pytest.raises(WrongStage):
        world.ask(2)


def test_who_vanished_in_the_last_round_gets_no_farewell():
    world = World(policy="masks", rounds=1, clients=6).start()
    world.aggregator.survivors._vanished = (1, frozenset({world.names[0]}))
    asked = [delivery.to for delivery in world.aggregator.farewell()]
    assert asked == list(world.names[1:])


@pytest.mark.parametrize("answer", ["nothing", "a refusal", "rubbish"])
def test_whatever_a_client_says_to_the_farewell_the_run_is_done(answer):
    world = World(policy="masks").start()
    world.round(1)
    one = world.names[0]
    if answer == "a refusal":
        world.aggregator.heads._received[one] = (9, {})
    for delivery in world.aggregator.farewell():
        (reply,) = world.deliver(delivery)
        data = b"rubbish" if answer == "rubbish" else reply.data
        if delivery.to != one or answer != "nothing":
            world.aggregator.receive(data)
    assert world.aggregator.advance() == [] and world.aggregator.state is State.PARTED
    assert told(world, one)[-1]["exchange"] == (1 if answer == "a refusal" else 2)
