"""O8: clients that were given different models are not summed, whoever holds which key."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crypto.errors import OutOfRange
from protocols.disclosures.sum.parties import ShareHolding
from protocols.errors import BadEnvelope
from protocols.wire.envelope import NONE, Envelope
from protocols.wire.run_context import RunContext
from tests.protocols.unveiling import (
    NotEnough,
    haul,
    is_sum_of,
    looks_uniform,
    modulus_of,
    stripped,
    unveil,
)
from tests.protocols.wire import World, uploads

D = 4000


def models(world, crafted):
    """One model for the victim, another one for everybody else if `crafted`."""
    victim = world.names[2]
    return {
        name: np.full(world.d, 9.0 if crafted and name != victim else 0.0, np.float32)
        for name in world.names
    }


@pytest.mark.parametrize("policy", ["masks", "he"])
@pytest.mark.parametrize("crafted", [False, True])
def test_o8_a_sum_over_different_models_is_not_opened(policy, crafted):
    world = World(policy=policy).start()
    found = haul(world, lambda name: world.names, weights=models(world, crafted))
    if not crafted:
        assert is_sum_of(world, unveil(world, found, world.names), world.names)
        return
    with pytest.raises((NotEnough, OutOfRange)):
        unveil(world, found, world.names)


@pytest.mark.parametrize("bound", [True, False])
def test_o8_masks_of_different_models_do_not_cancel_even_if_everybody_gives_shares(
    bound, monkeypatch
):
    """The control: masks that are not bound to what was given cancel over a crafted model."""
    monkeypatch.setattr(ShareHolding, "_check_votes", lambda *_: None)
    monkeypatch.setattr(ShareHolding, "_check_evidence", lambda *_: None)
    if not bound:
        real = RunContext.mask_label
        monkeypatch.setattr(
            RunContext,
            "mask_label",
            lambda self, item, where, *rest: real(self, item, replace(where, given=NONE), *rest),
        )
    world = World(policy="masks", d=D).start()
    try:
        found = haul(world, lambda name: world.names, weights=models(world, True))
        total = stripped(world, found, world.names)
    except NotEnough:
        assert bound
        return
    assert looks_uniform(total, modulus_of(world)) is bound


def test_o8_the_aggregator_takes_no_upload_made_from_another_model():
    world = World(policy="masks").start()
    world.ask(1)
    odd = world.evil_ask(world.names[2], weights=np.ones(world.d, np.float32))
    (upload,) = world.clients[world.names[2]].receive(odd)
    with pytest.raises(BadEnvelope, match="something else"):
        world.aggregator.receive(upload.data)


def test_o8_one_model_for_all_is_what_every_header_says():
    world = World(policy="masks").start()
    given = {Envelope.decode(data).header.given for data in uploads(world, world.ask(1)).values()}
    assert len(given) == 1 and given != {"0" * 64}
