"""O9: keys and pair secrets live for one epoch; nothing made under an old one is taken."""

from __future__ import annotations

import numpy as np
import pytest

from crypto.errors import InvalidKey
from protocols.errors import (
    BadEnvelope,
    LocalProtocolError,
    RemoteProtocolError,
    Replay,
    WrongStage,
)
from protocols.keys.groups import epoch_of, epochs, slots
from protocols.policy.policy import PrivacyPolicy
from protocols.sessions.part import State
from protocols.wire.codec import encode
from protocols.wire.control import PairCall
from protocols.wire.envelope import Envelope, Where
from tests.protocols.matched import matching
from tests.protocols.toys import Update, changed_policy, maskless
from tests.protocols.wire import World, headers_of, refused, unplaced, uploads, where_of


def rekeyed(name, every, rounds=4):
    chosen = maskless() if name == "maskless" else PrivacyPolicy.preset(name)
    document = {**chosen.document(), "rekey_rounds": every}
    return World(policy=PrivacyPolicy.model_validate(document), rounds=rounds)


def secrets_of(world):
    """Return all pair secrets of the epoch."""
    return {
        secret
        for client in world.clients.values()
        for row in client.context.pairs._pair.values()
        for secret in row.values()
    }


@pytest.mark.parametrize(("every", "keys"), [(1, 4), (2, 2), (3, 2), (4, 1)])
def test_o9_every_epoch_has_a_key_and_secrets_of_its_own(every, keys):
    world, ids, secrets, held = rekeyed("he", every).start(), [], [], []
    plain = World(rounds=4).start()
    for number in range(1, 5):
        world.prepare(number)
        ids.append(world.authority.context.he_key.key_id)
        secrets.append(frozenset(secrets_of(world)))
        held.append(world.authority.keys.held.get("SUM"))
        assert all(c.context.he_key.key_id == ids[-1] for c in world.clients.values())
        total = world.round(number).total(Update)
        assert total.count == 20
        assert np.array_equal(total.delta, plain.round(number).total(Update).delta)
    assert len(set(ids)) == keys
    assert [ids[n] == ids[n - 1] for n in (1, 2, 3)] == [n % every != 0 for n in (1, 2, 3)]
    for number in (1, 2, 3):
        if ids[number] != ids[number - 1]:
            assert not secrets[number] & secrets[number - 1]
    for old in held[:-1]:
        if old is not held[-1]:
            with pytest.raises(InvalidKey):
                world.scheme.decrypt(old, bytes(world.scheme.ciphertext_bytes))


def test_o9_a_key_is_destroyed_on_record_before_the_next_one_is_made():
    world = rekeyed("he", 1, rounds=3).start()
    for number in (1, 2, 3):
        world.round(number)
    world.authority.close()
    facts = [e for e in world.entries("key-authority") if e["kind"] == "key"]
    assert [e["event"] for e in facts] == ["made", "destroyed"] * 3
    assert [facts[i]["key"] == facts[i + 1]["key"] for i in (0, 2, 4)] == [True] * 3
    assert len({e["key"] for e in facts}) == 3
    received = [e["key"] for e in world.entries("client-1") if e["kind"] == "key"]
    assert received == [e["key"] for e in facts[::2]]


def test_o9_within_an_epoch_nothing_is_agreed_anew():
    world = rekeyed("he", 2).start()
    for number, sent in ((1, 0), (2, 0), (3, 1), (4, 0)):
        outgoing = world.aggregator.prepare(number)
        assert len(outgoing) == sent
        world.pump(outgoing)
        world.round(number)


@pytest.mark.parametrize("policy", ["masks", "he", "maskless"])
def test_o9_an_ask_of_a_new_epoch_waits_for_its_keys(policy):
    world = rekeyed(policy, 1).start()
    world.round(1)
    if policy != "maskless":
        with pytest.raises(LocalProtocolError, match="come before"):
            world.ask(2)
    client, early = world.clients["client-1"], world.evil_ask("client-1", round=2, exchange=2)
    if policy == "masks":
        assert refused(client.receive(early)) and isinstance(client.last_error, BadEnvelope)
    else:  # keys that come without a receipt may be late
        with pytest.raises(WrongStage, match="epoch"):
            client.receive(early)
    assert world.sites["client-1"].asked == 1


@pytest.mark.parametrize("policy", ["masks", "he", "maskless"])
def test_o9_an_ask_of_an_old_epoch_is_over(policy):
    world = rekeyed(policy, 1).start()
    world.round(1)
    world.prepare(2)
    client, old = world.clients["client-1"], world.evil_ask("client-1", round=1, exchange=5)
    late = (Replay, "over") if policy != "maskless" else (WrongStage, "epoch")
    with pytest.raises(late[0], match=late[1]):
        client.receive(old)
    assert client.state is State.READY and world.sites["client-1"].asked == 1
    unplaced(client)
    if policy == "masks":
        assert refused(client.receive(old)) and "epoch" in client.last_error.what
    else:
        with pytest.raises(WrongStage, match="epoch"):
            client.receive(old)
    assert world.sites["client-1"].asked == 1


def test_o9_an_epoch_may_pass_without_an_ask():
    world = rekeyed("he", 1).start()
    world.prepare(2)
    assert world.round(2).total(Update).count == 20


def test_o9_an_upload_under_an_old_key_is_neither_added_nor_opened():
    world = rekeyed("he", 1).start()
    old = world.context("aggregator").he_key.key_id[:16]
    world.round(1)
    world.prepare(2)
    sent = uploads(world, world.ask(2))
    where = where_of(sent["client-1"], world.names)
    body = bytes(world.plan.item("train.up.SUM").body)
    forged = {
        n: world.forge(n, "train.up.SUM", "aggregator", body, where, key=old) for n in world.names
    }
    with pytest.raises(BadEnvelope, match="another key"):
        world.aggregator.receive(forged["client-1"])
    mixed = [*list(sent.values())[:4], forged["client-5"]]
    for envelopes in (mixed, list(forged.values())):
        if world.authority.state is State.READY:
            assert refused(world.authority.receive(world.evil_open(headers_of(envelopes), where)))
    assert isinstance(world.authority.last_error, BadEnvelope)
    assert world.kinds("key-authority").count("open") == 1  # of round 1


@pytest.mark.parametrize("round", [0, 1, 2])
def test_o9_a_second_key_of_an_epoch_is_not_made(round):
    world = rekeyed("he", 2).start()
    call = world.forge("aggregator", "key.call", "key-authority", b"", Where(round, 9))
    assert refused(world.authority.receive(call))
    assert world.authority.keys.held.get("SUM") is None  # for good: who asks twice is out of step


@pytest.mark.parametrize("item", ["pair.call", "pair.down", "key.offer"])
@pytest.mark.parametrize("round", [0, 1, 2])
def test_o9_a_client_takes_no_second_keys_of_an_epoch(item, round):
    world = rekeyed("he", 2).start()
    client = world.clients["client-1"]
    where, sender = Where(round, 9), "aggregator"
    if item == "pair.call":
        body = encode([PairCall(members=world.roster.mask(world.names))], world.plan.dims)
    elif item == "key.offer":
        body, sender = world.scheme.keygen()[0].raw, "key-authority"
    else:
        body = world.roster.mask(world.names) + bytes(world.plan.item(item).body - 1)
    to = "roster" if item == "key.offer" else client.name
    assert refused(client.receive(world.forge(sender, item, to, body, where)))
    assert client.state is State.DEAD and client.context.pairs is None


def test_o9_keys_of_an_earlier_epoch_are_refused():
    world = rekeyed("masks", 1).start()
    world.round(1)
    world.prepare(3)
    client = world.clients["client-1"]
    body = encode([PairCall(members=world.roster.mask(world.names))], world.plan.dims)
    data = world.forge("aggregator", "pair.call", "client-1", body, Where(2, 5))
    with pytest.raises(Replay):
        client.receive(data)
    unplaced(client)
    assert refused(client.receive(data))
    assert isinstance(client.last_error, BadEnvelope)


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_o9_what_travelled_in_one_epoch_is_a_replay_in_the_next(policy):
    world = rekeyed(policy, 1, rounds=2).start()
    world.round(1)
    world.prepare(2)
    sizes = {name: world.session(name).ledger.size for name in world.stores}
    for data in list(world.wire):
        to = Envelope.decode(data).header.recipient
        for target in world.names if to == "roster" else (to,):
            try:
                answers = world.session(target).receive(data)
            except RemoteProtocolError:
                continue
            assert all(answer.data in world.wire for answer in answers or [])
    assert {name: world.session(name).ledger.size for name in world.stores} == sizes
    assert world.round(2).total(Update).count == 20


def test_o7_a_call_for_keys_names_everybody_or_is_refused():
    everybody = tuple(f"client-{i}" for i in range(1, 6))
    for names in (everybody[1:], everybody[:2], everybody[:4]):
        world = World(policy="masks")
        body = encode([PairCall(members=world.roster.mask(names))], world.plan.dims)
        data = world.forge("aggregator", "pair.call", "client-1", body, Where(0, 0))
        assert refused(world.clients["client-1"].receive(data))
        assert world.clients["client-1"].context.pairs is None


def test_o9_epochs_and_slots_are_what_the_policy_says():
    policy = changed_policy("masks", rekey_rounds=3)
    world = World(policy=policy, rounds=7)
    assert [epoch_of(n, policy) for n in range(8)] == [0, 0, 0, 0, 1, 1, 1, 2]
    assert epochs(7, policy) == 3 and epochs(0, policy) == 1
    found = [slots(world.plan.items, 7, policy, epoch) for epoch in range(3)]
    assert [[slot.round for slot in row] for row in found] == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert world.plan.item("pair.call").times == 3
    assert PrivacyPolicy.preset("he").rekey_rounds == 50


def end(session, how: str) -> None:
    """End a session, by an error or as its run does."""
    session.die(RuntimeError()) if how == "an error" else session.close()


@pytest.mark.parametrize("how", ["an error", "the run's end"])
@pytest.mark.parametrize("policy", ["masks", "he"])
def test_o9_an_aggregator_whose_session_is_over_holds_no_locked_rows(policy, how):
    world = World(policy=policy).start()
    world.round(1)
    assert world.aggregator.keys.agreed._rows  # control: they were there
    end(world.aggregator, how)
    assert world.aggregator.keys.fresh
    assert world.aggregator.kept()["parts"]["keys"]["_setup"] is None


@pytest.mark.parametrize("how", ["an error", "the run's end"])
def test_o9_a_client_whose_session_is_over_holds_no_key_of_tags(how):
    world = matching(mode="hmac", clients=6).start()
    client = world.clients["client-1"]
    assert client.context.tag_key and client.context.held  # control: they were there
    end(client, how)
    assert client.context.tag_key is None and not client.context.held
