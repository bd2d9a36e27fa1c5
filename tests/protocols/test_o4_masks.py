"""O4: masks inside the ciphertext cancel over the exact cohort, and only there.

The attacks of test_o4_control are the controls: there they read an upload, here they read noise.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from crypto.bfv_sealapi import DEGREE, PLAIN_MODULUS
from crypto.errors import OutOfRange
from crypto.masks import masked
from protocols.disclosures import Disclosure
from protocols.errors import BadEnvelope, PolicyError, RemoteProtocolError
from protocols.guards import Clip, He, Mask, Quantise, Seal, UnsafeClear
from protocols.learns import ACTIVE_AGGREGATOR, KEY_THEFT
from protocols.papers import Where
from protocols.policy import PrivacyPolicy
from protocols.sessions.client import ClientSession
from protocols.sessions.table import State
from tests.protocols.test_o4_control import asked, decrypted, opening, stolen_key, upload_of
from tests.protocols.toys import TRAIN, Update
from tests.protocols.wire import World, refused

LEVEL = 1e-6  # false alarms


def masking() -> PrivacyPolicy:
    policy = PrivacyPolicy.preset("he").document()
    chain = [guard.model_dump() for guard in (Clip(), Quantise(), Mask(), He(), Seal())]
    policy["rules"][str(Disclosure.SUM)] = chain
    return PrivacyPolicy.model_validate({**policy, "name": "masked"})


def looks_uniform(values) -> bool:
    cells = (values * 64 // PLAIN_MODULUS if values.dtype == object else values >> 38).astype(int)
    low = (values % 64).astype(int)
    pvalues = [stats.chisquare(np.bincount(c, minlength=64)).pvalue for c in (cells, low)]
    return bool(min(pvalues) > LEVEL)


@pytest.fixture
def world() -> World:
    return World(policy=masking()).start()


def test_the_total_is_the_same_as_without_masks(world):
    plain = World().start()
    for number in (1, 2):
        one, other = world.round(number).total(Update), plain.round(number).total(Update)
        assert one.count == other.count == 20
        assert np.array_equal(one.delta, other.delta)


def test_o4_a_stolen_key_reads_noise(world):
    envelopes = asked(world)
    key = stolen_key(world, envelopes)  # taking the key out still works ...
    uploads = [upload_of(world, envelope) for envelope in envelopes]
    plains = [decrypted(upload, key) for upload in uploads]
    assert all(looks_uniform(plain) for plain in plains)  # ... and opens nothing
    together = sum(plain.astype(object) for plain in plains) % PLAIN_MODULUS
    assert (together == 0).sum() > DEGREE // 2  # the control: only the whole cohort cancels
    assert looks_uniform(np.array((together - plains[0]) % PLAIN_MODULUS, dtype=np.uint64))


def test_o4_a_single_upload_opens_to_noise(world):
    envelopes = asked(world)
    total = world.scheme.accumulator(world.papers("aggregator").he_key)
    total.add(upload_of(world, envelopes[0]))
    assert looks_uniform(opening(world, envelopes, total.to_bytes()))


def test_o6_no_mask_is_used_twice(world):
    first = asked(world)
    key = stolen_key(world, first)
    other = World(policy=masking()).start()
    again = asked(other)
    plain = decrypted(upload_of(world, first[0]), key)
    same = decrypted(upload_of(other, again[0]), stolen_key(other, again))
    difference = (plain.astype(object) - same.astype(object)) % PLAIN_MODULUS
    assert looks_uniform(np.array(difference, dtype=np.uint64))


def test_the_relay_cannot_put_its_own_secrets_in_a_pair(world):
    fresh = World(policy=masking())
    sent = list(fresh.aggregator.start())
    downs = []
    while sent:
        answers = [a for parcel in sent for a in fresh.session(parcel.to).receive(parcel.data)]
        for answer in answers:
            fresh.aggregator.receive(answer.data)
        if len(fresh.aggregator._halves) == 5:
            one, two, *_ = fresh.names
            halves = fresh.aggregator._halves
            halves[one], halves[two] = halves[two], halves[one]  # says who sealed what, wrongly
            downs = fresh.aggregator.advance()
            break
        sent = fresh.aggregator.advance()
    victim = fresh.clients[fresh.names[4]]
    (down,) = [parcel for parcel in downs if parcel.to == fresh.names[4]]
    victim.receive(down.data)
    assert victim.state is State.DEAD and not victim.papers.pairs
    assert isinstance(victim.last_error, BadEnvelope)


def test_an_ask_before_the_pairs_are_there_is_refused():
    world = World(policy=masking())
    for client in world.clients.values():
        client.papers.pairs.clear()
    started = world.start()
    victim = started.clients[started.names[0]]
    victim.papers.pairs.clear()
    (ask,) = [parcel for parcel in started.ask(1) if parcel.to == started.names[0]]
    victim.receive(ask.data)
    assert victim.state is State.DEAD


def test_the_plan_says_what_masks_change(world):
    assert not {ACTIVE_AGGREGATOR, KEY_THEFT} & set(world.plan.warnings)
    assert {"pair.up.SEALED", "pair.down"} <= {item.id for item in world.plan.items}
    assert any(guard.startswith("mask") for guard in world.plan.item("train.up.SUM").guards)


def test_pair_secrets_never_travel_in_clear(world):
    secrets = [s for client in world.clients.values() for s in client.papers.pairs.values()]
    assert len(secrets) == 20 and len(set(secrets)) == 10
    raw = b"".join([*world.wire, *(store.lines for store in world.stores.values())])
    assert not any(secret in raw for secret in secrets)
    assert not world.aggregator.papers.pairs and not world.authority.papers.pairs


@pytest.mark.parametrize(
    "chain",
    [
        (Clip(), Quantise(), Mask(), UnsafeClear()),
        (Clip(), Quantise(), Mask(), Mask(), He(), Seal()),
        (Clip(), Mask(), Quantise(), He(), Seal()),
    ],
)
def test_masks_stand_only_inside_the_ciphertext(chain):
    policy = masking()
    policy.rules[Disclosure.SUM] = chain
    with pytest.raises(PolicyError):
        policy.checked()


def test_masks_cancel_and_refuse_what_is_not_reduced():
    keys, values = [bytes([i]) * 32 for i in range(3)], np.arange(5, dtype=np.uint64)
    one = masked(values, 1 << 44, plus=keys, minus=[])
    assert not np.array_equal(one, values)
    assert np.array_equal(masked(one, 1 << 44, plus=[], minus=keys), values)
    with pytest.raises(OutOfRange):
        masked(np.array([1 << 44], dtype=np.uint64), 1 << 44, plus=keys, minus=[])


def answers(world, weights, **places):
    """Ask each client with a model of its own; return the upload envelopes."""
    found = []
    for name in world.names:
        data = world.evil_ask(name, weights=weights(name), **places)
        (parcel,) = world.clients[name].receive(data)
        found.append(parcel.data)
    return found


@pytest.mark.parametrize("crafted", [False, True])
def test_o8_masks_of_clients_that_were_given_different_models_do_not_cancel(world, crafted):
    key = stolen_key(world, asked(world))
    size, victim = world.sites[world.names[0]].delta.size, world.names[2]

    def weights(name):
        return np.full(size, 9.0 if crafted and name != victim else 0.0)

    envelopes = answers(world, weights, round=2, exchange=2)
    plains = [decrypted(upload_of(world, e), key).astype(object) for e in envelopes]
    together = np.array(sum(plains) % PLAIN_MODULUS, dtype=np.uint64)
    assert looks_uniform(together) is crafted  # the control: one model for all, and they cancel


def test_o5_a_client_is_summed_with_one_cohort_in_a_round():
    form = replace(TRAIN, exchanges=(replace(TRAIN.exchanges[0], per_round=2),))
    world = World(form, policy=masking(), clients=6).start()
    one, *_ = world.names
    first = world.evil_ask(one, round=1, exchange=1)
    assert not refused(world.clients[one].receive(first))
    again = world.evil_ask(one, world.names[:5], round=1, exchange=2)
    assert refused(world.clients[one].receive(again))


def test_o6_a_new_session_agrees_on_new_secrets(world):
    client = world.clients[world.names[0]]
    assert client.papers.pairs
    client.close()
    assert not client.papers.pairs
    client.papers.pairs["client"] = bytes(32)
    again = ClientSession(
        client.papers, client.ledger, bytes(32), site=client._site, form=world.form
    )
    assert not again.papers.pairs


def test_an_ask_before_all_pairs_are_here_names_who_is_late():
    world = World(policy=masking())
    (call,) = world.aggregator.start()
    (offer,) = world.session(call.to).receive(call.data)
    world.aggregator.receive(offer.data)
    for parcel in world.aggregator.advance()[1:]:
        (half,) = world.session(parcel.to).receive(parcel.data)
        world.aggregator.receive(half.data)
    assert world.aggregator.advance() == []
    with pytest.raises(RemoteProtocolError, match=world.names[0]):
        world.ask(1)


def test_pair_secrets_come_once_and_before_the_first_round(world):
    name = world.names[0]
    body = bytes(world.plan.item("pair.up.SEALED").body)
    for places in ({"round": 0, "exchange": 0}, {"round": 0, "exchange": 7}):
        where = Where(**places)
        data = world.forge(name, "pair.up.SEALED", "aggregator", body, where)
        with pytest.raises(RemoteProtocolError):
            world.aggregator.receive(data)
    assert not world.aggregator._halves and world.round(1).total(Update).count == 20


def test_a_total_whose_padding_did_not_cancel_is_refused(world):
    world.until_open(1)
    collection = world.aggregator._collection
    noise = world.scheme.blind(bytes(range(32)), DEGREE)
    with pytest.raises(OutOfRange, match="not the total of the cohort"):
        used = collection._blind.copy()
        used[-1] = (used[-1] + noise[-1]) % PLAIN_MODULUS  # only the padding is off
        collection.opened(used.astype("<u8").tobytes())
