"""An active network attacker: owns the wire, holds no key of any party."""

import contextlib

import numpy as np
import pytest

from crypto.samplers import Stream
from protocols.errors import BadEnvelope, RemoteProtocolError, Replay
from protocols.sessions.part import State
from protocols.wire.envelope import SIGNED, Envelope
from tests.protocols.toys import Update
from tests.protocols.wire import World, refused, uploads


@pytest.fixture
def world():
    return World().start()


def traffic(world):
    """Return one undelivered envelope per kind, with the session that should get it."""
    ask = world.ask(1)
    sent = uploads(world, ask)
    client = world.clients["client-1"]
    return {"answer": (world.aggregator, sent["client-1"]), "ask": (client, ask[0].data)}


def altered(data, stream, how):
    raw = bytearray(data)
    place = int(stream.uniform(len(raw), 1)[0])
    if how == "flip":
        raw[place] ^= 1 << int(stream.uniform(8, 1)[0])
    elif how == "cut":
        del raw[place:]
    elif how == "insert":
        raw[place:place] = stream.bytes(1 + int(stream.uniform(9, 1)[0]))
    else:
        raw += bytes(place)
    return bytes(raw)


@pytest.mark.parametrize("how", ["flip", "cut", "insert", "extend"])
def test_altered_bytes_are_refused_and_change_nothing(world, how):
    fresh = World().start()
    ask = fresh.ask(1)[0].data
    aggregator, answer = traffic(world)["answer"]
    stream, lines = Stream(b"\x05" * 32), world.stores["aggregator"].lines
    for session, data in ((aggregator, answer), (fresh.clients["client-1"], ask)):
        state, size = session.state, session.ledger.size
        for _ in range(150):
            with pytest.raises(BadEnvelope):
                session.receive(altered(data, stream, how))
        assert (session.state, session.ledger.size) == (state, size)
        session.receive(data)  # the true bytes are still welcome
        assert session.ledger.size > size
    assert world.stores["aggregator"].lines.startswith(lines)


@pytest.mark.parametrize("data", [b"", b"\0", b"SFGL\x01", b"SFGL\x01\xff\xff" + bytes(200)])
def test_stubs_are_refused_by_every_role(world, data):
    for session in (world.aggregator, world.authority, World().clients["client-1"]):
        with pytest.raises(BadEnvelope):
            session.receive(data)


def test_oversized_bytes_are_refused_before_they_are_parsed(world):
    for session in (world.aggregator, world.authority, world.clients["client-1"]):
        with pytest.raises(BadEnvelope, match="larger"):
            session.receive(bytes(50_000_000))


def test_everything_again_is_a_replay_or_the_same_answer(world):
    world.round(1)
    sizes = {name: world.session(name).ledger.size for name in world.stores}
    for data in list(world.wire):
        to = Envelope.decode(data).header.recipient
        targets = world.names if to == "roster" else (to,)
        for target in targets:
            session = world.session(target)
            before = session.state
            try:
                answers = session.receive(data)
            except Replay:
                answers = []
            assert all(answer.data in world.wire for answer in answers or [])
            assert session.state is before
    assert {name: world.session(name).ledger.size for name in world.stores} == sizes
    world.round(2)  # and the run goes on


def test_no_party_takes_its_own_envelopes_back(world):
    world.round(1)
    for data in list(world.wire):
        sender = Envelope.decode(data).header.sender
        session = world.session(sender)
        with pytest.raises(RemoteProtocolError):
            session.receive(data)
        assert session.state is State.READY
    world.round(2)


def test_swapped_recipients_are_refused(world):
    asks = world.ask(1)
    with pytest.raises(BadEnvelope, match="addressed"):
        world.clients["client-2"].receive(asks[0].data)
    answer = world.deliver(asks[0])[0]
    for other in (world.authority, world.clients["client-2"]):
        with pytest.raises(BadEnvelope):
            other.receive(answer.data)


def test_envelopes_of_another_run_with_the_same_parties_are_refused(world):
    other = World(identities=world.identities).start()
    assert other.run != world.run
    ask, sent = other.ask(1), None
    sent = other.deliver(ask[0])[0].data
    world.ask(1)
    with pytest.raises(BadEnvelope, match="another run"):
        world.clients["client-1"].receive(ask[0].data)
    with pytest.raises(BadEnvelope, match="another run"):
        world.aggregator.receive(sent)
    with pytest.raises(BadEnvelope, match="another run"):
        world.authority.receive(other.wire[0])


@pytest.mark.parametrize("field", ["plan", "policy", "schema"])
def test_another_plan_policy_or_schema_in_a_signed_header_is_refused(world, field):
    data = world.evil_ask("client-1", **{field: "ab" * 32})
    with pytest.raises(BadEnvelope):
        world.clients["client-1"].receive(data)


def test_a_foreign_key_signs_for_nobody(world):
    stranger = World()  # the same names, other keys
    for party, item, recipient in (
        ("aggregator", "train.down", "client-1"),
        ("client-1", "train.up.SUM", "aggregator"),
        ("aggregator", "train.open", "key-authority"),
    ):
        body = bytes(world.plan.item(item).body)
        data = stranger.forge(party, item, recipient, body, world.where(), run=world.run)
        with pytest.raises(BadEnvelope, match="not signed"):
            world.session(recipient).receive(data)


def test_a_stranger_is_nobody(world):
    data = world.forge(
        "client-1", "train.up.SUM", "aggregator", b"", world.where(), sender="client-9"
    )
    with pytest.raises(BadEnvelope):
        world.aggregator.receive(data)


def test_a_resealed_body_does_not_fit_its_signature(world):
    (session, data) = traffic(world)["answer"]
    envelope = Envelope.decode(data)
    info = envelope.header.encode(without_body=True)
    body = world.roster.party("aggregator").seal.seal(info, bytes(world.scheme.ciphertext_bytes))
    forged = Envelope(envelope.header, envelope.signature, body).encode()
    with pytest.raises(BadEnvelope, match="digest"):
        session.receive(forged)


def test_a_body_under_another_header_does_not_open(world):
    ask = world.ask(1)
    first, second = (Envelope.decode(world.deliver(p)[0].data) for p in ask[:2])
    header = second.header.of_body(bytes.fromhex(first.header.body))
    signature = world.identities["client-2"].signing.sign(SIGNED, header.encode())
    with pytest.raises(BadEnvelope, match="open"):  # client-2 steals client-1's upload
        world.aggregator.receive(Envelope(header, signature, first.body).encode())


def test_answers_in_any_order_give_the_same_total(world):
    expected = World().start().round(1).total(Update)
    sent = list(uploads(world, world.ask(1)).values())
    for data in reversed(sent):
        world.aggregator.receive(data)
    world.pump(world.aggregator.advance())
    assert np.array_equal(world.aggregator.reply().total(Update).delta, expected.delta)


def test_a_delayed_older_ask_is_never_answered(world):
    late = {p.to: p for p in world.ask(1)}
    world.aggregator.state = State.READY
    world.deliver(world.ask(2)[0])
    client = world.clients["client-1"]
    with contextlib.suppress(Replay):
        assert refused(client.receive(late["client-1"].data))
    assert world.sites["client-1"].asked == 1
