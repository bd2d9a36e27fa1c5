"""A world whose mixtures pass through a relay, and what its parties can make of envelopes."""

from __future__ import annotations

from protocols.disclosures._relayed.messages import Batch
from protocols.policy.guards import Relay
from protocols.sessions.part import State
from protocols.wire.envelope import Envelope, signed_header
from tests.protocols.mix import (
    Go,
    Mashed,
    chain,
    mixing,
)

UP, BATCH, POOL = "mash.up.MIXED", "mash.relay.MIXED", "mash.relayed.MIXED"


def relayed(*more, **facts):
    """Return a started world whose mixtures pass through a relay."""
    return mixing(chain(*more, Relay()), **facts)


def sent(world, item):
    return [e for e in map(Envelope.decode, world.wire) if e.header.item == item]


def box_bytes(world) -> int:
    return world.plan.item(UP).body // world.plan.dims["mixtures"]


def batch(world, uploads=None, members=None, exchange=1, number=1, given=None, said=None):
    """Return an aggregator's request over any uploads, from a gateway that remembers nothing."""
    uploads = sent(world, UP) if uploads is None else uploads
    dims = world.plan.item(BATCH).dims
    chosen = world.names if members is None else members
    message = Batch(
        members=world.roster.mask(chosen),
        headers=b"".join(map(signed_header, uploads)).ljust(dims["batch_headers"], b"\0"),
        bodies=b"".join(bytes(e.body) for e in uploads).ljust(dims["batch"], b"\0"),
    )
    given = uploads[0].header.given if given is None else given
    where = world.where(said or chosen, exchange=exchange, round=number, given=given)
    return world.twin("aggregator").release(BATCH, [message], "relay", where).encode()


def answers(world, number=1):
    """Deliver an Ask and keep every client's answer from the aggregator."""
    world.prepare(number)
    return [
        world.deliver(delivery)[0] for delivery in world.ask(number, Go(step=number), (Mashed,))
    ]


def refuses(world, data, why):
    """Tell that the relay refuses a request for this reason and opened nothing."""
    before = world.kinds("relay").count("relay")
    (answer,) = world.relay.receive(data)
    assert Envelope.decode(answer.data).header.item == "refusal.relay"
    assert why in str(world.relay.last_error) and world.relay.state is State.DEAD
    assert world.kinds("relay").count("relay") == before
    return type(world.relay.last_error)


def opened_by(world, name, envelope):
    """Return what a party reads of an envelope."""
    info = envelope.header.encode(without_body=True)
    return world.identities[name].opening.open(info, bytes(envelope.body))


class world_without:
    """Lose everything from and to a client."""

    def __init__(self, world, client):
        self.world, self.client = world, client

    def __enter__(self):
        self.world.lost = lambda item, sender, to: self.client in (sender, to)

    def __exit__(self, *_):
        self.world.lost = lambda *_: False
