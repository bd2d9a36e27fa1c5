"""O5: rounds go only forward, so nothing of a round is opened knowing what came after it."""

from __future__ import annotations

import pytest

from protocols.errors import BadEnvelope, Replay, WrongStage
from protocols.plan.steps import Service, Step
from protocols.sessions.engine import Progress
from protocols.sessions.heads import Receipts
from protocols.sessions.part import State
from protocols.sessions.survivors import Openings
from protocols.wire.codec import encode
from protocols.wire.control import Farewell
from protocols.wire.envelope import Envelope
from protocols.wire.inbox import Inbox
from protocols.wire.roster import given_digest
from tests.protocols.test_results_resume import Killed
from tests.protocols.unveiling import haul, is_sum_of, show, unveil
from tests.protocols.wire import World, headers_of, refused, unplaced, where_of

ROUNDS = 3


def world_of(policy):
    return World(policy=policy, clients=5, rounds=ROUNDS).start()


def farewell(world, client, round, exchange, attempt=1):
    """Return a farewell of an aggregator that says it never heard anybody, of any round."""
    heads, place = world.silence(client)
    context = world.context("aggregator")
    item = context.find("", Service.HEADS, Step.DOWN)
    dims, said = context.dims(item), Farewell(nonce=bytes(16), heads=heads)
    given = given_digest([said], dims)
    where = world.where((), round=round, exchange=exchange, attempt=attempt, given=given)
    return world.forge("aggregator", item.id, client, encode([said, place], dims), where)


def two_rounds(world):
    """Play two rounds; in the first one nobody is shown a list. Return what that one brought."""
    first = haul(world, lambda name: None, round=1, exchange=1)
    second = haul(world, lambda name: world.names, round=2, exchange=2)
    assert is_sum_of(world, unveil(world, second, world.names), world.names)
    return first


def late(world, first):
    """Show all clients but one a list of the first round, without that one."""
    four = world.names[:4]
    show(world, first, lambda name: four if name in four else None)
    return four


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_o5_a_farewell_moves_no_client_back(policy):
    world = world_of(policy)
    first = two_rounds(world)
    for name in world.names:
        back = farewell(world, name, 0, 3)
        with pytest.raises(Replay):
            world.clients[name].receive(back)
        unplaced(world.clients[name])
        assert refused(world.clients[name].receive(back))
    late(world, first)
    assert not first.given


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_o5_control_a_client_that_goes_back_lets_a_round_be_opened_that_is_over(
    policy, monkeypatch
):
    def believing(part, incoming):
        header = incoming.header
        part._progress.exchange, part._progress.round = header.exchange, header.round
        return []

    opened = Inbox.open

    def forgetful(inbox, data, **more):
        inbox._newest.clear()
        return opened(inbox, data, **more)

    monkeypatch.setattr(Inbox, "open", forgetful)
    monkeypatch.setattr(Receipts, "_take_leave", believing)
    world = world_of(policy)
    first = two_rounds(world)
    for name in world.names:
        assert world.clients[name].receive(farewell(world, name, 0, 3)) == []
    four = late(world, first)
    assert is_sum_of(world, unveil(world, first, four), four)


@pytest.mark.parametrize(
    ("place", "taken"),
    [((ROUNDS,), True), ((ROUNDS, 2), False), ((2,), False), ((ROUNDS + 1,), False)],
)
def test_o5_a_client_takes_no_farewell_before_the_end(place, taken):
    world = world_of("masks")
    round, *attempt = place
    client = world.clients["client-1"]
    assert not refused(client.receive(world.evil_ask("client-1", round=2, exchange=1)))
    said = client.receive(farewell(world, "client-1", round, 2, *attempt))
    assert refused(said) is not taken
    assert client.state is (State.PARTED if taken else State.DEAD)
    if not taken:
        assert isinstance(client.last_error, BadEnvelope)


@pytest.mark.parametrize("what", ["ask", "list", "farewell"])
def test_o5_after_the_farewell_a_client_answers_nothing_more(what):
    world = world_of("masks")
    found = haul(world, lambda name: None, round=ROUNDS)
    client = world.clients["client-1"]
    bye = farewell(world, "client-1", ROUNDS, 2)
    answer = client.receive(bye)
    assert not refused(answer) and client.receive(bye) == answer
    if what == "ask":
        assert refused(client.receive(world.evil_ask("client-1", round=ROUNDS, exchange=3)))
    elif what == "list":
        unplaced(client)
        show(world, found, lambda name: world.names if name == "client-1" else None)
        assert found.refused == {"client-1"}
    else:
        assert refused(client.receive(farewell(world, "client-1", ROUNDS, 3)))
    assert isinstance(client.last_error, WrongStage)
    assert client.context.pairs is None


def test_o5_what_was_reached_goes_only_forward():
    progress = Progress(world_of("masks").clients["client-1"])
    progress.reached(4, 2)
    for exchange, round in ((3, 2), (4, 1), (5, 1)):
        with pytest.raises(Replay):
            progress.reached(exchange, round)
    progress.reached(4, 3)
    assert (progress.exchange, progress.round) == (4, 3)


def opens(world, round):
    """Ask the key authority to open the sum of a round; tell whether it does."""
    uploads = [
        world.clients[name].receive(world.evil_ask(name, round=round, exchange=round))[0].data
        for name in world.names
    ]
    return world.evil_open(headers_of(uploads), where_of(uploads[0], world.names))


def test_o5_a_key_authority_opens_no_round_after_a_later_one(monkeypatch):
    world = world_of("he")
    first, second = opens(world, 1), opens(world, 2)
    assert not refused(world.authority.receive(second))
    with pytest.raises(Replay):
        world.authority.receive(first)
    unplaced(world.authority)
    assert refused(world.authority.receive(first))
    assert isinstance(world.authority.last_error, Replay)

    forgetful = property(lambda part: {}, lambda part, value: None)
    monkeypatch.setattr(Openings, "opened", forgetful, raising=False)
    world = world_of("he")  # control: it remembers nothing
    first, second = opens(world, 1), opens(world, 2)
    for request in (second, first):
        unplaced(world.authority)
        assert not refused(world.authority.receive(request))


def test_a_client_that_is_killed_at_the_farewell_says_the_same_again_and_no_more():
    world = Killed(policy="masks", rounds=ROUNDS)
    world.keep()
    world.start()
    world.round(1)
    outgoing = world.aggregator.farewell()
    for delivery in outgoing:
        (answer,) = world.deliver(delivery)
        assert Envelope.decode(answer.data).header.item == "heads.ack"
        assert world.clients[delivery.to].state is State.PARTED
        assert world.deliver(delivery) == [answer]
        world.aggregator.receive(answer.data)
    assert world.aggregator.advance() == [] and world.aggregator.state is State.PARTED
    for name in world.names:
        with pytest.raises(Replay):
            world.clients[name].receive(world.evil_ask(name, round=ROUNDS, exchange=1))
        assert refused(world.clients[name].receive(world.evil_ask(name, round=3, exchange=9)))
