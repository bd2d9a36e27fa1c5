"""What masks inside the ciphertext (O4) will have to end: the key taken out by one opening.

The attack is run, so that the warning in every plan stays true as long as it is printed, and so
that O4 finds its control here.
"""

from __future__ import annotations

import numpy as np

from crypto.bfv_sealapi import DEGREE, PLAIN_MODULUS, PRIME
from protocols.learns import ACTIVE_AGGREGATOR, KEY_THEFT
from tests.protocols.wire import World, headers_of, uploads, where_of


def times_key(row, key):
    """Return row x key in Z_q[X]/(X^4096 + 1) for a ternary key."""
    total = np.zeros(DEGREE, dtype=object)
    values = row.astype(object)
    for shift in np.flatnonzero(key):
        turned = np.concatenate([-values[DEGREE - shift :], values[: DEGREE - shift]])
        total += int(key[shift]) * turned
    return total


def test_one_crafted_opening_gives_the_key_and_every_upload():
    world = World().start()
    sent = uploads(world, world.ask(1))
    envelopes = [sent[name] for name in world.names]
    crafted = np.zeros(2 * DEGREE, dtype="<u8")
    crafted[DEGREE] = PRIME // PLAIN_MODULUS
    where = where_of(envelopes[0], world.names)
    request = world.evil_open(headers_of(envelopes), where, crafted.tobytes())
    (answer,) = world.authority.receive(request)  # an honest authority opens it
    seen = np.frombuffer(world.aggregator._inbox.open(answer.data).body, "<u8").astype(np.int64)
    key = np.where(seen > PLAIN_MODULUS // 2, seen - PLAIN_MODULUS, seen)
    assert set(key.tolist()) == {-1, 0, 1}

    words = np.frombuffer(world.aggregator._inbox.open(envelopes[0]).body, dtype="<u8")
    phase = (words[:DEGREE].astype(object) + times_key(words[DEGREE:], key)) % PRIME
    plain = [(PLAIN_MODULUS * int(p) + PRIME // 2) // PRIME % PLAIN_MODULUS for p in phase]
    used = world.sites[world.names[0]].delta.size // 2 + 4  # two values a coefficient, then limbs
    assert any(plain[:used]) and not any(plain[used:])  # padding decrypts to zeros: it is the key


def test_every_plan_under_he_says_so():
    warnings = World().plan.warnings
    assert ACTIVE_AGGREGATOR in warnings and KEY_THEFT in warnings
