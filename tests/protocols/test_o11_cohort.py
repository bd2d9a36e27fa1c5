"""O11: a total that the cohort reads and the aggregator does not, as even rows of weights."""

from __future__ import annotations

import struct
from itertools import pairwise

import numpy as np
import pytest

from protocols.disclosures._evaluated.ciphers import shape_of
from protocols.disclosures._evaluated.uploads import opened_message, row_info
from protocols.disclosures.sum.view import TotalView
from protocols.errors import BadEnvelope
from protocols.keys.pairs import open_box
from protocols.rounds import Reply
from protocols.sessions.store.state_keeper import state_codec
from tests.protocols.pub import (
    GRID,
    Model,
    even,
    hand_out,
    models,
    pub,
    received,
    sent,
    swapped,
    trained,
)


def aggregators_state(world) -> bytes:
    """Return everything that the aggregator's session holds, replies included, as it is kept."""
    session = world.aggregator
    codec = state_codec(session.context, world.form, None, session.ledger, bytes(32))
    return codec.pack([session.kept(), session.asked.reply, session.outcome])


def traces(state: bytes, numbers: np.ndarray) -> int:
    """Return how many of these numbers stand in the state, as floats or as levels of the grid.

    Of short floats two neighbours are looked for: among 240 kB of ciphertexts four bytes of one are
    found by chance once in 18,000 looks, and eight once in 10^13.
    """
    levels = np.rint(numbers / GRID).astype(int) + 2**14 - 1
    floats = sum(struct.pack("<d", x) in state for x in numbers)
    floats += sum(struct.pack("<ff", *two) in state for two in pairwise(numbers))
    row = levels.astype("<u2").tobytes() in state or levels.astype("<u8").tobytes() in state
    return floats + row


def test_o11_every_client_reads_the_mean_and_the_aggregator_none_of_it():
    world = pub(clients=8, d=12)
    reply = trained(world)
    token = reply.weighted(Model, even(8))
    hand_out(world, token)
    mean = models(world).mean(axis=0)
    assert np.abs(received(world) - mean).max() < GRID
    assert len(np.unique(received(world), axis=0)) == 1  # bit for bit the same at all clients
    state = aggregators_state(world)
    assert traces(state, received(world)[0]) == traces(state, models(world)[0][:-1]) == 0
    assert repr(token) == "<Sealed Model>" and token._deliveries == {}
    for verb in ("total", "each", "similarity"):
        with pytest.raises(TypeError):
            getattr(reply, verb)(Model)


def test_o11_control_a_reply_that_holds_the_mean_is_found():
    """A reply is kept as a piece of its own, so whoever looks at the parts alone misses it."""
    world = pub(clients=8, d=12)
    hand_out(world, trained(world).weighted(Model, even(8)))
    mean = received(world)[0]
    leak = Reply({Model: TotalView(Model(weights=mean[:-1], bias=mean[-1]))}, 8)
    for owner, name in ((world.aggregator.asked, "_reply"), (world.aggregator, "outcome")):
        with swapped(owner, name, leak):
            assert traces(aggregators_state(world), mean) > 0
        assert traces(aggregators_state(world), mean) == 0


def test_o11_what_keeps_it_from_the_aggregator_is_the_box_alone():
    """The aggregator knows every blind: with a receiver's key it would read the total."""
    world = pub(clients=8, d=12)
    hand_out(world, trained(world).weighted(Model, even(8)))
    down = next(e for e in sent(world, "receive.down") if e.header.recipient == "client-1")
    me = world.identities["client-1"]
    body = me.opening.open(down.header.encode(without_body=True), bytes(down.body))
    size = world.plan.item("receive.down").dims["row_box"]
    box, seed = body[-32 - size : -32], body[-32:]
    # Both came from the aggregator: it drew the seed and was handed the box.
    info = row_info(world.run, down.header.exchange, "receive", "client-1")
    authority = world.roster.party("key-authority")
    with pytest.raises(BadEnvelope):
        open_box(box, world.context("aggregator").me, authority, info)
    shape = shape_of((Model,), world.policy, world.plan.dims)
    row = opened_message(Model, shape, open_box(box, me, authority, info), seed)
    told = np.array([*row.weights, row.bias])
    assert np.abs(told - models(world).mean(axis=0)).max() < GRID
