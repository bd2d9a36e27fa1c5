"""Envelopes that come late, twice or before their time: no session ends of that (O5, O8)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from protocols.errors import BadEnvelope, RemoteProtocolError, Replay, WrongStage
from protocols.forms import Exchange, Form
from protocols.sessions.epoch_keys import PublicKeys
from protocols.sessions.part import Delivery, State
from protocols.wire.envelope import Envelope
from tests.protocols.test_results_resume import Killed
from tests.protocols.toys import TRAIN, Seed, Update, changed_policy, deliver
from tests.protocols.wire import World, unplaced

ONE = "client-1"


def held_back(world: World, item: str) -> list[Delivery]:
    """Keep one item from one client, in whatever round it comes; return what was kept."""
    found: list[Delivery] = []
    gone = world._gone

    def keeping(delivery: Delivery) -> bool:
        name = Envelope.decode(delivery.data).header.item
        if name == item and delivery.to == ONE and not found:
            found.append(delivery)
            return True
        return gone(delivery)

    world._gone = keeping  # type: ignore[method-assign]
    return found


@pytest.mark.parametrize("policy", ["masks", "he"])
@pytest.mark.parametrize("item", ["train.down", "train.all_here", "train.survivors"])
def test_o5_what_comes_after_a_newer_envelope_changes_nothing(policy: str, item: str) -> None:
    """And without the mark the same envelope ends the session (the control)."""
    world = World(policy=policy, clients=6).start()
    client = world.clients[ONE]
    if item == "train.survivors":  # where one is missing, lists are voted on
        world.lost = lambda name, sender, to: name == "train.down" and to == "client-2"
    kept = held_back(world, item)
    world.round(1)
    world.lost = lambda *_: False
    (late,) = kept
    world.round(2)
    size = client.ledger.size
    for _ in range(2):
        with pytest.raises(Replay):
            client.receive(late.data)
    assert (client.state, client.ledger.size, client.last_error) == (State.READY, size, None)
    total = world.round(3).total(Update)
    assert total.count == world.count()
    unplaced(client)
    client.receive(late.data)
    assert client.state is State.DEAD


@pytest.mark.parametrize("policy", ["he", "pilot"])
def test_o9_a_client_whose_public_key_stalls_is_as_one_that_vanished(policy: str) -> None:
    """It answers again once the key came: nobody waits for a receipt of it."""
    world = World(policy=policy, clients=6)
    client, kept = world.clients[ONE], held_back(world, "key.offer")
    world.start()
    early: list[Any] = []
    deliver = world.deliver

    def carried(delivery: Delivery) -> list[Delivery]:
        try:
            return deliver(delivery)
        except RemoteProtocolError as error:  # its relay tells a code, and no envelope comes
            early.append(error)
            return []

    world.deliver = carried  # type: ignore[method-assign]
    there = [name for name in world.names if name != ONE]
    assert world.round(1).total(Update).count == world.count(there)
    assert [type(error) for error in early] == [WrongStage]
    assert client.state is not State.DEAD and world.sites[ONE].asked == 0
    (offer,) = kept
    client.receive(offer.data)
    assert world.round(2).total(Update).count == world.count()
    assert len(early) == 1


TOLD = Form(
    "told", TRAIN.round, (*TRAIN.exchanges, Exchange("tell", (Seed,), (), deliver, per_round=1))
)


def told(policy: str, **facts: Any) -> tuple[World, list[Delivery]]:
    """A client without its public key answers an Ask that rests on none."""
    world = World(TOLD, policy=changed_policy(policy, **facts), clients=6, rounds=3)
    kept = held_back(world, "key.offer")
    world.start().round(1, given=Seed(seed=1), back=())
    assert len(world.sites[ONE].got) == 1 and world.clients[ONE].keys.epoch == -1
    return world, kept


@pytest.mark.parametrize("policy", ["he", "pilot"])
def test_o9_a_public_key_that_comes_after_an_ask_that_rests_on_none_is_taken(policy: str) -> None:
    world, (offer,) = told(policy, rekey_rounds=4)
    assert world.clients[ONE].receive(offer.data) == []
    assert world.clients[ONE].last_error is None
    assert world.round(2).total(Update).count == world.count()


def test_o9_a_public_key_of_an_epoch_that_is_over_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A second key of one epoch is a lie and ends the session, as before (the control)."""
    world, (offer,) = told("pilot", rekey_rounds=1)
    client = world.clients[ONE]
    world.lost = lambda item, _, to: item == "key.offer" and to == ONE
    world.prepare(2)
    world.pump(world.ask(2, given=Seed(seed=2), back=()))
    size = client.ledger.size
    with pytest.raises(Replay):
        client.receive(offer.data)
    assert (client.state, client.ledger.size, client.last_error) == (State.READY, size, None)
    world.lost = lambda *_: False
    assert world.round(3).total(Update).count == world.count()
    monkeypatch.setattr(PublicKeys, "check_time", lambda *_: None)
    unplaced(client)
    client.receive(offer.data)
    assert client.state is State.DEAD and isinstance(client.last_error, BadEnvelope)


def test_o5_everything_that_travelled_comes_again_in_any_order() -> None:
    """Old bytes among new ones, at every session, many times over: the totals stay the same."""
    plain, world = World(policy="pilot", rounds=3).start(), World(policy="pilot", rounds=3)
    stream, deliver = np.random.default_rng(11), world.deliver
    said: dict[tuple[str, bytes], list[bytes]] = {}
    past: list[Delivery] = []

    def again(delivery: Delivery) -> None:
        try:
            answers = world.session(delivery.to).receive(delivery.data)
        except Replay:
            return
        assert [a.data for a in answers] == said[delivery.to, delivery.data]  # no other answer

    def unruly(delivery: Delivery) -> list[Delivery]:
        if past and stream.random() < 0.4:
            again(past[int(stream.integers(len(past)))])
        answers = deliver(delivery)
        said[delivery.to, delivery.data] = [answer.data for answer in answers]
        past.append(delivery)
        if stream.random() < 0.4:
            again(past[int(stream.integers(len(past)))])
        return answers

    world.deliver = unruly  # type: ignore[method-assign]
    world.start()
    for number in (1, 2, 3):
        ours, theirs = (w.round(number).total(Update) for w in (world, plain))
        assert ours.count == theirs.count == world.count()
        assert np.array_equal(ours.delta, theirs.delta)
    assert len(past) > 40
    assert all(world.session(n).last_error is None for n in (*world.names, "key-authority"))


@pytest.mark.parametrize("number", [(3, 99), (1, 4_000_000_000)])
def test_o8_only_its_sender_s_own_signature_moves_the_mark(number: tuple[int, int]) -> None:
    """A number that somebody on the way writes into an envelope keeps no later one out."""
    world, stranger = World(policy="masks").start(), World(policy="masks")
    client = world.clients[ONE]
    for other in (stranger, world):
        sender = "aggregator" if other is stranger else "client-2"
        where = world.where(round=number[0], exchange=number[1])
        body = bytes(world.plan.item("train.down").body)
        data = other.forge(sender, "train.down", ONE, body, where, run=world.run)
        with pytest.raises(RemoteProtocolError):
            client.receive(data)
    assert client.state is State.READY
    assert world.round(1).total(Update).count == world.count()


def test_o5_a_session_that_is_taken_up_knows_how_far_it_was() -> None:
    world = Killed(policy="masks", rounds=3)
    world.keep()
    world.start()
    kept = held_back(world, "train.down")
    world.round(1)
    world.round(2)
    before = world.clients[ONE]._inbox._newest
    world.kill(ONE)
    client = world.clients[ONE]
    assert client._inbox._newest == before and before["aggregator"] == (2, 2)
    with pytest.raises(Replay):
        client.receive(kept[0].data)
    assert client.state is State.READY
