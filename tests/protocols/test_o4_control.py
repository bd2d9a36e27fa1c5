"""What masks inside the ciphertext end (O4): the key taken out, and uploads opened one by one.

The attacks are run on a policy without masks, so that the warning in its plan stays true as long as
it is printed, and so that O4 finds its control here.
"""

from __future__ import annotations

import numpy as np

from crypto.homomorphic.bfv import DEGREE, PLAIN_MODULUS, PRIME
from protocols.disclosures.sum.disclosure import ACTIVE_AGGREGATOR, KEY_THEFT
from tests.protocols.toys import maskless
from tests.protocols.wire import World, headers_of, uploads, where_of


def times_key(row, key):
    """Return row x key in Z_q[X]/(X^4096 + 1) for a ternary key."""
    total = np.zeros(DEGREE, dtype=object)
    values = row.astype(object)
    for shift in np.flatnonzero(key):
        turned = np.concatenate([-values[DEGREE - shift :], values[: DEGREE - shift]])
        total += int(key[shift]) * turned
    return total


def asked(world):
    """Return one upload envelope per client of round 1, in the order of `world.names`."""
    sent = uploads(world, world.ask(1))
    return [sent[name] for name in world.names]


def opening(world, envelopes, total):
    """Let an honest authority open any ciphertext behind a full set of honest upload headers."""
    where = where_of(envelopes[0], world.names)
    (answer,) = world.authority.receive(world.evil_open(headers_of(envelopes), where, total))
    return np.frombuffer(world.aggregator._inbox.open(answer.data).body, "<u8")


def stolen_key(world, envelopes):
    """Return the run's secret key, shape (4096,): the decryption of (0, q/t)."""
    crafted = np.zeros((1, 2 * DEGREE), dtype=np.uint64)
    crafted[0, DEGREE] = PRIME // PLAIN_MODULUS
    seen = opening(world, envelopes, world.scheme.to_wire(crafted)).astype(np.int64)
    return np.where(seen > PLAIN_MODULUS // 2, seen - PLAIN_MODULUS, seen)


def upload_of(world, envelope):
    return world.aggregator._inbox.open(envelope).body


def decrypted(world, upload, key):
    """Return the plaintext coefficients of one ciphertext under a key."""
    (words,) = world.scheme.parse(upload)
    phase = (words[:DEGREE].astype(object) + times_key(words[DEGREE:], key)) % PRIME
    plain = [(PLAIN_MODULUS * int(p) + PRIME // 2) // PRIME % PLAIN_MODULUS for p in phase]
    return np.array(plain, dtype=np.uint64)


def used(world):
    """Return how many coefficients the data take: two values each, then the limbs."""
    return world.sites[world.names[0]].delta.size // 2 + 4


def test_one_crafted_opening_gives_the_key_and_every_upload():
    world = World(policy=maskless()).start()
    envelopes = asked(world)
    key = stolen_key(world, envelopes)
    assert set(key.tolist()) == {-1, 0, 1}
    plain = decrypted(world, upload_of(world, envelopes[0]), key)
    assert plain[: used(world)].any() and not plain[used(world) :].any()  # padding is zeros


def test_one_upload_is_opened_as_if_it_were_a_total():
    world = World(policy=maskless()).start()
    envelopes = asked(world)
    blind = world.scheme.blind(bytes(32), DEGREE)
    total = world.scheme.accumulator(world.context("aggregator").he_key)
    total.add(upload_of(world, envelopes[0]))
    total.add_plain(blind)
    plain = world.scheme.subtract(opening(world, envelopes, total.to_bytes()), blind)
    assert plain[: used(world)].any() and not plain[used(world) :].any()


def test_every_plan_under_he_without_masks_says_so():
    bare, masked = World(policy=maskless()).plan.warnings, World(policy="he").plan.warnings
    assert ACTIVE_AGGREGATOR in bare and KEY_THEFT in bare
    assert not {ACTIVE_AGGREGATOR, KEY_THEFT} & set(masked)
