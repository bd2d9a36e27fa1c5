"""A dishonest key authority: keys with secrets, other keys, totals of garbage."""

import numpy as np
import pytest

from protocols.errors import BadEnvelope, RemoteProtocolError, WrongStage
from protocols.sessions.part import State
from protocols.wire.envelope import Where
from tests.protocols.toys import Update, maskless
from tests.protocols.wire import World, refused, uploads, where_of


def called(**facts):
    """A world whose authority was called but has not answered."""
    world = World(**facts)
    world.aggregator.start()
    return world


def offer(world, raw, recipient="roster", **where):
    return world.forge("key-authority", "key.offer", recipient, raw, Where(**where))


def secret_lookalike(size):
    """Bytes that begin as SEAL's own files do: they may hold a secret key."""
    return b"\x5e\xa1" + bytes(size - 2)


@pytest.mark.parametrize("kind", ["secret", "zeros", "garbage"])
def test_a_key_that_is_no_public_key_is_refused_for_good(kind):
    world = called()
    size = world.plan.item("key.offer").body
    raw = {"secret": secret_lookalike(size), "zeros": bytes(size), "garbage": b"\xff" * size}[kind]
    with pytest.raises(BadEnvelope):
        world.aggregator.receive(offer(world, raw))
    assert world.aggregator.state is State.DEAD
    assert world.aggregator.context.he_key is None
    assert refused(world.clients["client-1"].receive(offer(world, raw)))
    assert world.clients["client-1"].context.he_key is None
    assert world.clients["client-1"].state is State.DEAD


def test_a_key_of_another_size_is_refused():
    world = called()
    for size in (0, world.plan.item("key.offer").body - 1):
        for session in (world.aggregator, world.clients["client-1"]):
            before = session.state
            with pytest.raises(BadEnvelope):
                session.receive(offer(world, secret_lookalike(size) if size else b""))
            assert session.state is before
            assert session.context.he_key is None


def test_a_second_key_never_replaces_the_first():
    world = World().start()
    other, _ = world.scheme.keygen()
    for session in (world.aggregator, world.clients["client-1"]):
        before = session.context.he_key.key_id
        try:
            answers = session.receive(offer(world, other.raw, exchange=1))
        except WrongStage:
            assert session.state is State.READY
        else:
            assert refused(answers)
        assert session.context.he_key.key_id == before
    assert world.aggregator.advance() == []


def test_another_key_for_one_client_is_found_out_before_anything_is_added():
    world = called(policy=maskless())
    first, _ = world.scheme.keygen()
    second, _ = world.scheme.keygen()
    world.aggregator.receive(offer(world, first.raw))
    for delivery in world.aggregator.advance():
        data = offer(world, second.raw) if delivery.to == "client-2" else delivery.data
        assert world.clients[delivery.to].receive(data) == []
    assert world.aggregator.advance() == []
    sent = uploads(world, world.ask(1))
    with pytest.raises(BadEnvelope, match="key"):
        world.aggregator.receive(sent["client-2"])
    for name, data in sent.items():
        if name != "client-2":
            world.aggregator.receive(data)
    (request,) = world.aggregator.advance()  # the other four are summed without it
    left = [name for name in world.names if name != "client-2"]
    assert request.to == "key-authority"
    assert world.aggregator.asked._collection.survivors == tuple(left)


def opened_body(world, request, values):
    where = where_of(request.data, world.names)
    body = np.asarray(values, dtype="<u8").tobytes()
    return world.forge("key-authority", "train.opened", "aggregator", body, where)


def test_a_key_for_one_client_alone_is_refused():
    world = called()
    public, _ = world.scheme.keygen()
    with pytest.raises(BadEnvelope):
        world.clients["client-2"].receive(offer(world, public.raw, "client-2"))
    assert world.clients["client-2"].state is State.NEW


@pytest.mark.parametrize("kind", ["zeros", "large", "random", "shifted"])
def test_a_total_of_garbage_is_not_believed(kind):
    world = World().start()
    request = world.until_open(1)
    size = world.plan.item("train.opened").body // 8
    rng = np.random.default_rng(1)
    values = {
        "zeros": np.zeros(size),
        "large": np.full(size, 2**64 - 1, dtype=np.uint64),
        "random": rng.integers(0, world.scheme.plain_modulus, size),
        "shifted": np.full(size, world.scheme.plain_modulus, dtype=np.uint64),
    }[kind]
    with pytest.raises(RemoteProtocolError):
        world.aggregator.receive(opened_body(world, request, values))
    assert world.aggregator.state is State.DEAD


def test_totals_of_another_place_are_refused_and_the_true_one_is_taken():
    world = World().start()
    request = world.until_open(1)
    body = bytes(world.plan.item("train.opened").body)
    where = where_of(request.data, world.names)
    moved = [
        world.where(given=where.given, exchange=2),
        world.where(given=where.given, round=2, exchange=4),
        world.where(given=where.given, attempt=2),
        world.where(world.names[:4], given=where.given, exchange=3),
    ]
    for place in moved:
        with pytest.raises(RemoteProtocolError):
            data = world.forge("key-authority", "train.opened", "aggregator", body, place)
            world.aggregator.receive(data)
        assert world.aggregator.sums.stage == "opening"
    (answer,) = world.deliver(request)
    world.aggregator.receive(answer.data)
    assert world.aggregator.reply().total(Update).count == 20


def test_a_total_that_nobody_asked_for_is_refused():
    world = World().start()
    body = bytes(world.plan.item("train.opened").body)
    early = world.where(exchange=9)
    data = world.forge("key-authority", "train.opened", "aggregator", body, early)
    with pytest.raises(WrongStage):
        world.aggregator.receive(data)
    assert world.round(1).total(Update).count == 20


def test_the_authority_cannot_ask_a_client_anything():
    world = World().start()
    for item in ("train.down", "train.opened", "refusal.key_authority"):
        body = bytes(world.plan.item(item).body)
        client = world.clients["client-1"]
        data = world.forge("key-authority", item, "client-1", body, world.where())
        try:
            assert refused(client.receive(data))
        except BadEnvelope:
            assert client.state is State.READY
    assert world.sites["client-1"].asked == 0
