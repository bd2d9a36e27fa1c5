"""Clients as witnesses: the receipt that comes with every Ask, and the root over all heads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crypto.errors import OutOfRange
from crypto.merkle import inclusion_proof, leaf_hash, perfect_tree, root
from protocols.envelope import Envelope
from protocols.errors import BadEnvelope, Refused, WrongStage
from protocols.heads import SILENT, Spoken, check_place, heard, proof_bytes, tree
from protocols.sessions.table import State
from tests.protocols.wire import World

NAMES = tuple(f"client-{number}" for number in range(1, 8))
LINE = heard(SILENT, 3, "ab" * 32, "cd" * 32)


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
    for other in ((4, 1, LINE[2]), (3, 2, LINE[2]), (3, 1, "00" * 32), SILENT):
        with pytest.raises(BadEnvelope):
            check_place(name, NAMES, other, path, found)
    spoilt = bytes([path[0] ^ (1 << bit)]) + path[1:]
    for wrong in (spoilt, path[32:], path + bytes(32), b""):
        with pytest.raises(BadEnvelope):
            check_place(name, NAMES, LINE, wrong, found)
    with pytest.raises(BadEnvelope):
        check_place(NAMES[(NAMES.index(name) + 1) % 7], NAMES, LINE, path, found)


def test_a_receipt_is_for_what_was_sent():
    spoken = Spoken()
    assert spoken.line(0, 0) == (SILENT, False)
    for exchange, number in ((1, 1), (1, 0), (0, 1)):
        with pytest.raises(BadEnvelope):
            spoken.line(exchange, number)
    for commitment in ("aa", "bb"):
        spoken.add(1, commitment, "head")
    first = heard(SILENT, 1, "aa", "head")
    assert spoken.line(1, 1) == (first, True)  # the second is missing
    assert spoken.line(1, 2) == (heard(first, 1, "bb", "head"), False)
    assert spoken.line(0, 0) == (SILENT, True)
    with pytest.raises(BadEnvelope):
        spoken.line(1, 3)
    for exchange in range(2, 2 + Spoken.KEPT):
        spoken.add(exchange, "cc", "head")
    with pytest.raises(BadEnvelope):
        spoken.line(1, 2)  # too long ago to vouch for


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
    for parcel in world.ask(2):
        (answer,) = world.deliver(parcel)
        heads[parcel.to] = Envelope.decode(answer.data).header.head
    assert set(heads) == set(before)
    assert all(heads[n] != before[n] for n in before)  # an answer's head holds the root's entry


@pytest.mark.parametrize("lie", ["another digest", "an envelope that never was", "a stale one"])
def test_a_client_refuses_a_receipt_for_what_it_did_not_send(lie):
    world = World(policy="masks").start()
    world.round(1)
    victim, heard_of = world.names[1], world.aggregator._heard
    exchange, number, digest = heard_of[victim]
    if lie == "another digest":
        heard_of[victim] = (exchange, number, "0" * 64)
    elif lie == "an envelope that never was":
        heard_of[victim] = (exchange, number + 1, digest)
    else:
        heard_of[victim] = (exchange - 1 or 7, number, digest)
    with pytest.raises(Refused) as caught:
        world.round(2)
    assert caught.value.sender == victim


def test_a_receipt_that_is_left_out_is_written_down():
    world = World(policy="unsafe_plaintext").start()
    world.round(1)
    world.aggregator._heard[world.names[2]] = SILENT
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
    world.aggregator._vanished = (1, frozenset({world.names[0]}))
    asked = [parcel.to for parcel in world.aggregator.farewell()]
    assert asked == list(world.names[1:])
