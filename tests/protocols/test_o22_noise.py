"""What mixtures carry: noise, rounding, clipped records; bodies that are none (O14, O15, O22)."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from crypto.samplers import Stream
from protocols.disclosures.mixed import layout as mix_layout
from protocols.disclosures.mixed.guards import Blur
from protocols.disclosures.mixed.layout import MixLayout
from protocols.disclosures.mixed.mixing import Mixer
from protocols.disclosures.names import Disclosure
from protocols.errors import BadEnvelope
from protocols.policy.guards import UnsafeClear
from tests.protocols.mix import (
    CLASSES,
    FLOOR,
    MEMBERS,
    PLACES,
    WIDTH,
    Go,
    Mashed,
    asked,
    chain,
    fill,
    layout,
    mixing,
    mixing_plan,
    mixing_policy,
)
from tests.protocols.toys import names_of
from tests.protocols.wire import World

# --- noise --------------------------------------------------------------------------------------


def noised(multiplier: float, bits: int = 16) -> tuple[np.ndarray, np.ndarray]:
    """Return the noise of 200 releases of the same mixtures, features and labels, in steps."""

    class Site:
        pass

    site, found = Site(), []
    fill(site, np.random.default_rng(2), MEMBERS)
    policy = mixing_policy(chain(Blur(multiplier=multiplier), bits=bits))
    how = MixLayout(Mashed, policy.rules[Disclosure.MIXED], mixing_plan(policy).dims)
    mixer = Mixer()
    for _ in range(200):
        message = Mashed.unmixed(table=site.table, index=site.index, label=site.label)
        body, *_ = mixer.mixed(message, how, bytes(32))
        found.append(how.decode(body))
    features = np.stack([m.features for m in found])
    labels = np.stack([m.label for m in found])
    return features - features.mean(axis=0), labels - labels.mean(axis=0)


def noise_on_labels(multiplier: float) -> np.ndarray:
    """Return the noise on the labels of 200 runs: theirs is drawn once in each."""

    class Site:
        pass

    site, found = Site(), []
    fill(site, np.random.default_rng(2), MEMBERS)
    policy = mixing_policy(chain(Blur(multiplier=multiplier)))
    how = MixLayout(Mashed, policy.rules[Disclosure.MIXED], mixing_plan(policy).dims)
    for _ in range(200):
        message, mixer = (
            Mashed.unmixed(table=site.table, index=site.index, label=site.label),
            Mixer(),
        )
        body, *_ = mixer.mixed(message, how, bytes(32))
        said = how.decode(body).label
        onehot = np.eye(said.shape[1])[site.label]
        exact = [onehot[mixer.groups == group].mean(axis=0) for group in range(len(said))]
        found.append((said - np.array(exact)).ravel())
    return np.concatenate(found)


def test_o14_noise_covers_features_and_labels_in_the_unit_of_one_record():
    features, same = noised(0.5)
    labels = noise_on_labels(0.5)
    # Drawn anew in each run of this test: 24,000 and 3,000 draws, seven standard errors or more.
    assert features.std() == pytest.approx(0.5 * 16.0 / FLOOR, rel=0.04)
    assert labels.std() == pytest.approx(0.5 * 1.0 / FLOOR, rel=0.1)
    assert np.abs(labels.mean()) < 0.14 * labels.std()
    assert np.abs(same).max() < 1e-9  # within a run labels are the same bytes


def test_o15_noise_and_rounding_are_fresh_in_every_release():
    features, _ = noised(0.5)
    flat = features.reshape(200, -1)
    shared = np.corrcoef(flat)[np.triu_indices(200, 1)]
    assert np.abs(shared).max() < 0.5 and len(np.unique(flat, axis=0)) == 200


def test_o15_under_noise_rounding_comes_from_the_operating_system(monkeypatch):
    class Silent:
        largest = 0

        def sample(self, stream, count):
            return np.zeros(count, dtype=np.int64)

    monkeypatch.setattr(mix_layout, "sampler", lambda law, steps: Silent())
    world = mixing(chain(Blur(multiplier=1.0)))
    site = world.sites["client-1"]
    message = Mashed.unmixed(table=site.table, index=site.index, label=site.label)
    mixer = Mixer()
    bodies = [mixer.mixed(message, layout(world), bytes(32))[0] for _ in range(2)]
    assert bodies[0] != bodies[1]


def test_without_noise_rounding_repeats_so_that_runs_without_chance_do():
    world = mixing()
    how, site = layout(world), world.sites["client-1"]
    message = Mashed.unmixed(table=site.table, index=site.index, label=site.label)
    mixer = Mixer()
    bodies = [mixer.mixed(message, how, bytes(32))[0] for _ in range(2)]
    assert bodies[0] == bodies[1]
    assert mixer.mixed(message, how, bytes([1] * 32))[0] != bodies[0]


def test_o14_records_are_clipped_before_they_are_mixed():
    world = mixing(chain(bound=1.0))
    for site in world.sites.values():
        site.table = 100 * site.table
    (first, *_) = asked(world).each(Mashed)
    assert np.linalg.norm(first.features, axis=2).max() <= 1.0
    told = [
        e["clipped"]
        for e in world.entries("client-1")
        if e["kind"] == "release" and e["item"] == "mash.up.MIXED"
    ]
    assert told == [True]
    # One huge record moves a mixture by no more than the bound over the floor.
    site, mixer = world.sites["client-1"], Mixer()
    message = Mashed.unmixed(table=site.table, index=site.index, label=site.label)
    before = layout(world).decode(mixer.mixed(message, layout(world), bytes(32))[0])
    site.table = np.concatenate([1e300 * np.ones((1, WIDTH)), site.table[1:]])
    message = Mashed.unmixed(table=site.table, index=site.index, label=site.label)
    after = layout(world).decode(mixer.mixed(message, layout(world), bytes(32))[0])
    moved = np.linalg.norm(after.features - before.features, axis=2)
    assert 0 < moved.max() <= 2 / FLOOR + 1e-3


def test_o14_a_record_just_beyond_the_bound_is_clipped_too():
    """The grid alone would let it through: not one of its numbers is as large as the bound."""
    world = mixing(chain(bound=1.0))
    for number, site in enumerate(world.sites.values()):
        alike = 1.0 + 0.1 * np.random.default_rng(number).random(site.table.shape)
        site.table = 1.5 * alike / np.linalg.norm(alike, axis=1, keepdims=True)
        assert np.abs(site.table).max() < 1.0
    for message in asked(world).each(Mashed):
        lengths = np.linalg.norm(message.features, axis=2)
        assert lengths.min() > 0.99 and lengths.max() < 1.001


# --- what a dishonest client sends ----------------------------------------------------------------


def wrong_bodies() -> dict[str, bytes]:
    world = mixing()
    how, site = layout(world), world.sites["client-1"]
    message = Mashed.unmixed(table=site.table, index=site.index, label=site.label)
    good, *_ = Mixer().mixed(message, how, bytes(32))
    assert how.decode(good).features.shape == (5, PLACES, WIDTH)
    return {
        "none_and_some": struct.pack("<Q", 0) + good[8:],
        "too_many": struct.pack("<Q", how.most + 1) + good[8:],
        "huge": struct.pack("<Q", 2**63) + good[8:],
        "behind": struct.pack("<Q", 4) + good[8:],
        "short": good[:-1],
        "long": good + b"\0",
        "off_grid": good[:8] + struct.pack("<h", -32768) + good[10:],
    }


@pytest.mark.parametrize("name", sorted(wrong_bodies()))
def test_a_body_that_is_no_mixtures_is_refused(name):
    world = mixing()
    with pytest.raises(BadEnvelope):
        layout(world).decode(wrong_bodies()[name])
    if name in ("short", "long"):
        return  # the inbox refuses these before
    world.prepare(1)
    deliveries = world.ask(given=Go(step=1), back=(Mashed,))
    for delivery in deliveries:
        (answer,) = world.deliver(delivery)
        data = answer.data
        if delivery.to == "client-4":
            data = spoilt(world, data, wrong_bodies()[name])
        world.aggregator.receive(data)
    with pytest.raises(BadEnvelope):
        world.aggregator.advance()


def spoilt(world: World, honest: bytes, body: bytes) -> bytes:
    """Return the same upload with another body, under the client's own signature."""
    from protocols.wire.envelope import Envelope
    from tests.protocols.wire import where_of

    header = Envelope.decode(honest).header
    where = where_of(honest, names_of(5))
    return world.forge(header.sender, header.item, header.recipient, body, where, head=header.head)


def test_not_finite_values_are_refused_in_clear_too():
    policy = mixing_policy((UnsafeClear(),))
    how = MixLayout(Mashed, policy.rules[Disclosure.MIXED], mixing_plan(policy, mixtures=1).dims)
    ready = {
        "features": np.ones((1, PLACES, WIDTH)),
        "label": np.ones((1, CLASSES)),
    }
    body = how.encode(ready, Stream(bytes(32)), Stream(bytes(32)))
    assert how.decode(body).features.sum() == PLACES * WIDTH
    with pytest.raises(BadEnvelope):
        how.decode(body[:8] + struct.pack("<d", np.nan) + body[16:])
