"""The noise of sums is what the documented formula says, so `MAX_TERMS` is honest."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tenseal.sealapi as seal

from crypto.homomorphic.bfv import BFV44, BFV48, DEGREE, MAX_TERMS
from crypto.homomorphic.he import Scheme, scheme
from crypto.homomorphic.seal import Scratch
from crypto.samplers import Stream

SIGMA = {  # deviation of fresh noise: the head of crypto/homomorphic/bfv.py
    BFV44.name: 3.2 * math.sqrt(4 * DEGREE / 3 + 1),
    BFV48.name: math.sqrt((1 + 2 * DEGREE / 3) / 12),
}
# The largest of 4096 normal values in standard deviations: outside once in 10^4 at most.
LOW, HIGH = 2.9, 5.8


@pytest.fixture(params=[BFV44.name, BFV48.name])
def he(request: pytest.FixtureRequest) -> Scheme:
    return scheme(request.param)


def budget(he, secret, blob: bytes) -> int:
    """SEAL's own measurement: floor(log2(q / (2 t |noise|))) at the worst coefficient."""
    ciphertext = seal.Ciphertext(he._context)
    with Scratch() as scratch:
        ciphertext.load(he._context, scratch.put(he._heads.ciphertext, he.parse(blob)))
    return secret.use(he.name).decryptor.invariant_noise_budget(ciphertext)


def predicted(he, terms: int, peak: float) -> int:
    room = he.prime / (2 * he.plain_modulus)
    return max(0, math.floor(math.log2(room / (peak * SIGMA[he.name] * math.sqrt(terms)))))


def summed(he, public, terms: int):
    total, rows = he.accumulator(public), []
    stream = Stream(bytes(range(32)))
    for _ in range(terms):
        rows.append(stream.uniform(he.plain_modulus, DEGREE))
        total.add(he.encrypt(public, rows[-1]))
    return total.to_bytes(), np.sum(rows, axis=0, dtype=np.uint64) % np.uint64(he.plain_modulus)


def test_the_limit_keeps_twelve_standard_deviations(he):
    room = he.prime / (2 * he.plain_modulus)
    assert room / (SIGMA[he.name] * math.sqrt(MAX_TERMS)) > 11.9


@pytest.mark.parametrize("terms", [1, 8, MAX_TERMS])
def test_the_measured_budget_is_the_predicted_one(he, terms):
    public, secret = he.keygen()
    blob, truth = summed(he, public, terms)
    found = budget(he, secret, blob)
    assert predicted(he, terms, HIGH) <= found <= predicted(he, terms, LOW)
    assert np.array_equal(he.decrypt(secret, blob), truth)


def test_a_fresh_ciphertext_keeps_four_bits_and_the_largest_sum_one(he):
    public, secret = he.keygen()
    assert budget(he, secret, he.encrypt(public, np.zeros(1, np.uint64))) >= 4
    blob, _ = summed(he, public, MAX_TERMS)
    assert budget(he, secret, blob) >= 1


def test_far_past_the_limit_sums_are_wrong(he):
    """The control: four times the noise of the largest sum is three standard deviations of room."""
    public, secret = he.keygen()
    blob, truth = summed(he, public, MAX_TERMS)
    loud = he.to_wire((4 * he.parse(blob).astype(object) % he.prime).astype(np.uint64))
    assert budget(he, secret, loud) == 0
    wrong = he.decrypt(secret, loud) != 4 * truth % np.uint64(he.plain_modulus)
    assert 0 < np.mean(wrong) < 0.02
