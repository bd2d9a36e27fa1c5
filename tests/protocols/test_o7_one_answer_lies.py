"""What a second hostile reading of ADR 0035 tried: poisoned evidence, and both ways of one sum."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest

from protocols.disclosures.sum.messages import Vote
from protocols.errors import BadEnvelope, LocalProtocolError, SecureFglError
from protocols.sessions.part import State
from protocols.wire.envelope import SIGNED, Envelope
from protocols.wire.roster import AGGREGATOR_NAME
from tests.protocols.test_o7_one_answer import started, uploaded
from tests.protocols.unveiling import all_here, place_of
from tests.protocols.wire import World

# --- evidence that no holder makes out again ------------------------------------------------------

ANOTHER_KEY = {"key": "f" * 16}
"""A header's other facts are bound to the run, or digests that have one way to be written."""


def with_header(world: World, upload: bytes, **facts: str) -> bytes:
    """Return a client's upload under another header, sealed and signed by that client."""
    envelope = Envelope.decode(upload)
    before, header = envelope.header, replace(envelope.header, **facts)
    opening = world.aggregator.context.me.opening
    body = opening.open(before.encode(without_body=True), envelope.body)
    seal = world.roster.party(AGGREGATOR_NAME).seal
    sealed = seal.seal(header.encode(without_body=True), bytes(body))
    header = header.of_body(hashlib.sha256(sealed).digest())
    signing = world.identities[header.sender].signing
    return Envelope(header, signing.sign(SIGNED, header.encode()), sealed).encode()


def poisoned(world: World, facts: dict[str, str]) -> list[Exception]:
    """Play a round in which the last client's upload has this header; return what was refused."""
    met: list[Exception] = []
    outgoing = world.ask(1)
    while outgoing:
        for delivery in outgoing:
            for answer in world.deliver(delivery):
                data = answer.data
                if facts and Envelope.decode(data).header.item.endswith(".up.SUM"):
                    last = delivery.to == world.names[-1]
                    data = with_header(world, data, **facts) if last else data
                try:
                    world.aggregator.receive(data)
                except SecureFglError as error:
                    met.append(error)
        if world.aggregator.state is State.DEAD:
            break
        outgoing = world.aggregator.advance()
    return met


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_o7_one_clients_header_does_not_make_every_holder_refuse(policy: str) -> None:
    """Holders make headers out again from what may differ: anything else would blame others."""
    world = started(clients=6, policy=policy)
    (met,) = poisoned(world, ANOTHER_KEY)
    assert isinstance(met, BadEnvelope) and "upload" in met.what.lower()
    assert {world.clients[holder].state for holder in world.names} == {State.READY}


@pytest.mark.parametrize("policy", ["masks", "he"])
def test_o7_control_a_header_sealed_and_signed_again_is_taken(policy: str) -> None:
    world = started(clients=6, policy=policy)
    facts = {"nonce": "ab" * 16}
    assert not poisoned(world, facts)
    assert world.aggregator.reply() is not None


# --- both ways of one sum -------------------------------------------------------------------------


def test_o7_the_gateway_lets_one_sum_leave_one_way_where_clusters_allow_several_sums() -> None:
    """Counts alone do not see to it: eight clients may be two clusters, with a sum each a round."""
    world = started(clients=8)
    assert world.plan.item("train.vote").per_round > 1
    found, (served, other) = uploaded(world), world.names[:2]
    all_here(world, found, [served])
    place, vote = place_of(found, served), Vote(signature=bytes(64))

    def release(holder: str, **facts: Any) -> None:
        gateway = world.clients[holder]._gateway
        gateway.release("train.vote", [vote], AGGREGATOR_NAME, replace(place, **facts))

    with pytest.raises(LocalProtocolError, match="in this exchange"):
        release(served)
    # The control: the other cluster's sum, and whoever has not answered yet.
    release(served, exchange=2)
    release(other)
