"""O4: masks inside the ciphertext cancel over the exact survivors of the exact cohort only.

The attacks of test_o4_control are the controls: there they read an upload, here they read noise.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from crypto.errors import OutOfRange
from crypto.homomorphic.bfv import DEGREE, PLAIN_MODULUS
from crypto.masks import masked
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.disclosure import ACTIVE_AGGREGATOR, KEY_THEFT
from protocols.disclosures.sum.guards import Ckks, Mask, Noise
from protocols.disclosures.sum.masks import Unmasking
from protocols.disclosures.sum.view import Summands
from protocols.errors import PolicyError
from protocols.policy.guards import Clip, Quantise, Seal, UnsafeClear
from protocols.policy.policy import PrivacyPolicy
from tests.protocols.test_o4_control import asked, decrypted, opening, stolen_key, upload_of
from tests.protocols.toys import Update, maskless
from tests.protocols.unveiling import (
    haul,
    is_sum_of,
    looks_uniform,
    modulus_of,
    plain,
    stripped,
    unveil,
)
from tests.protocols.wire import World, uploads

D = 4000  # enough entries for the statistic where nothing is padded
POLICIES = ["masks", "he", "ckks"]


@pytest.fixture
def world() -> World:
    return World(policy="he").start()


def plains(world):
    """Return what every upload of round 1 holds inside its encryption, with the key at hand."""
    sent = uploads(world, world.ask(1))
    return {name: plain(world, upload_of(world, data)) for name, data in sent.items()}


@pytest.mark.parametrize("policy", POLICIES)
def test_o4_uploads_and_their_partial_sums_are_uniform_whoever_holds_the_key(policy):
    world = World(policy=policy, d=D).start()
    inside, modulus = plains(world), modulus_of(world)
    for size in (1, 2, 4, 5):  # all five still carry their self-masks
        for some in combinations(world.names, size):
            total = sum(inside[name].astype(object) for name in some) % modulus
            assert looks_uniform(total, modulus)
    one, other = (inside[name].astype(object) for name in world.names[:2])
    assert looks_uniform((one - other) % modulus, modulus)


@pytest.mark.parametrize("policy", ["unsafe_plaintext", maskless()], ids=["clear", "maskless"])
def test_o4_without_masks_the_same_statistic_sees_the_data(policy):
    world = World(policy=policy, d=D).start()
    modulus = modulus_of(world)
    assert not any(looks_uniform(values, modulus) for values in plains(world).values())


@pytest.mark.parametrize("policy", POLICIES)
def test_o4_after_the_shares_only_the_sum_of_the_survivors_is_not_uniform(policy, monkeypatch):
    """The aggregator has honest shares of everybody, and the authority's key on top."""
    world = World(policy=policy, d=D).start()
    left = world.names[:4]
    found = haul(world, lambda name: left if name in left else None)
    modulus = modulus_of(world)
    assert is_sum_of(world, unveil(world, found, left), left)
    for size in (1, 2, 3):
        for some in combinations(left, size):  # the most that can be taken off them
            assert looks_uniform(stripped(world, found, some, pairs=False), modulus)
    # The fifth upload was there, and listed as vanished: its pairs' masks come off, its own stays.
    assert looks_uniform(stripped(world, found, world.names[4:], selves=False), modulus)
    bare = World(policy=policy, d=D).start()
    monkeypatch.setattr("protocols.keys.pairs.self_key", lambda seed, label: bytes(32))
    found = haul(bare, lambda name: left if name in left else None)
    late = stripped(bare, found, world.names[4:], selves=False)
    late = masked(late, modulus, [], [bytes(32)])
    assert not looks_uniform(late, modulus)  # the control: a self-mask that everybody knows


@pytest.mark.parametrize("policy", ["he", "ckks"])
def test_o4_a_single_upload_opens_to_noise(policy):
    """The attack of an active aggregator, through an honest authority."""
    world = World(policy=policy).start()
    envelopes = asked(world)
    total = world.scheme.accumulator(world.context("aggregator").he_key)
    total.add(upload_of(world, envelopes[0]))
    seen = opening(world, envelopes, total.to_bytes())
    assert looks_uniform(seen, world.scheme.plain_modulus)


def test_o4_a_stolen_key_reads_noise(world):
    envelopes = asked(world)
    key = stolen_key(world, envelopes)  # taking the key out still works ...
    bodies = [upload_of(world, envelope) for envelope in envelopes[:2]]
    inside = [decrypted(world, body, key) for body in bodies]
    assert np.array_equal(inside[0], plain(world, bodies[0]))
    assert all(looks_uniform(values, PLAIN_MODULUS) for values in inside)  # ... and opens nothing


def test_the_total_is_the_same_as_without_masks(world):
    bare = World(policy=maskless()).start()
    for number in (1, 2):
        one, other = world.round(number).total(Update), bare.round(number).total(Update)
        assert one.count == other.count == 20
        assert np.array_equal(one.delta, other.delta)


def test_the_plan_says_what_masks_change(world):
    assert not {ACTIVE_AGGREGATOR, KEY_THEFT} & set(world.plan.warnings)
    items = {item.id for item in world.plan.items}
    assert {"pair.call", "pair.boxes", "pair.down", "pair.rows"} <= items
    assert {"train.survivors", "train.shares", "train.all_here", "train.self_shares"} <= items
    assert any(guard.startswith("mask") for guard in world.plan.item("train.up.SUM").guards)
    assert not items & {
        item.id for item in World(policy=maskless()).plan.items if "pair" in item.id
    }


@pytest.mark.parametrize(
    "chain",
    [
        (Clip(), Quantise(), Mask(), UnsafeClear()),
        (Clip(), Quantise(), Mask(), Mask(), Seal()),
        (Clip(), Mask(), Quantise(), Seal()),
        (Clip(), Quantise(), Ckks(), Seal()),  # CKKS shows how often a sum passed t
        (Clip(norm="l2"), Quantise(), Mask(), Noise(epsilon=1.0, delta=1e-6), Seal()),
        (Clip(), Quantise(), Mask()),
    ],
)
def test_masks_stand_behind_the_integers_and_inside_the_ciphertext(chain):
    policy = PrivacyPolicy.preset("he")
    policy.rules[Disclosure.SUM] = chain
    with pytest.raises(PolicyError):
        policy.checked()


def test_a_total_whose_padding_did_not_cancel_is_refused(world):
    world.until_open(1)
    collection = world.aggregator.asked.answers.of(Disclosure.SUM, Summands)
    noise = world.scheme.blind(bytes(range(32)), DEGREE)
    used = collection._blind.copy()
    used[-1] = (used[-1] + noise[-1]) % PLAIN_MODULUS  # only the padding is off
    with pytest.raises(OutOfRange, match="not the total of the cohort"):
        collection.opened(used.astype("<u8").tobytes())


@pytest.mark.parametrize("policy", POLICIES)
def test_a_total_that_still_carries_a_mask_is_refused(policy, monkeypatch):
    real = Unmasking.keys

    def forgetful(self, rows, width):
        plus, minus = real(self, rows, width)
        return plus, minus[:-1]

    monkeypatch.setattr(Unmasking, "keys", forgetful)
    world = World(policy=policy).start()
    with pytest.raises(Exception, match=r"cannot be added up|no total of this cohort"):
        world.round(1)
