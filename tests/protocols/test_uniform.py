"""What is not masked is found, and what is masked is never refused but for 2^-60."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from crypto.homomorphic.bfv import PLAIN_MODULUS
from crypto.masks import container, masked
from protocols.disclosures.sum import masks as uniform
from protocols.disclosures.sum.layout import Ring
from protocols.disclosures.sum.masks import (
    check_mask,
    check_masked,
    strange_mask,
    strange_masked,
)
from protocols.errors import BadEnvelope, LocalProtocolError

MODULI = [1 << 16, 1 << 32, 1 << 64, PLAIN_MODULUS, 65537, (1 << 48) - 59]
SIZES = [0, 1, 2, 5, 9, 10, 100, 4096, 8191, 8193, 100_000]


def bare_values(modulus: int, size: int, bits: int = 8) -> np.ndarray:
    drawn = np.random.default_rng(size).integers(0, 1 << bits, size)
    return drawn.astype(container(modulus))


@pytest.mark.parametrize("modulus", MODULI)
@pytest.mark.parametrize("size", SIZES)
def test_masks_pass_at_every_size(modulus: int, size: int) -> None:
    """Keys are fixed, so this cannot fail by chance."""
    bare = bare_values(modulus, size)
    for key in range(3):
        hidden = masked(bare, modulus, [bytes([key]) * 32], [bytes([key, 9]) * 16])
        assert strange_mask(bare, hidden, modulus) == ""
        assert strange_mask(hidden, bare, modulus) == ""


@pytest.mark.parametrize(("clients", "bits", "margin"), [(5, 8, 0), (5, 16, 0), (40, 16, 10**5)])
@pytest.mark.parametrize("size", SIZES)
def test_masked_uploads_pass_at_every_size(clients: int, bits: int, margin: int, size: int) -> None:
    ring = Ring.of(size, bits, clients, margin=margin)
    for key in range(3):
        words = masked(bare_values(ring.modulus, size, bits), ring.modulus, [bytes([key]) * 32], [])
        assert strange_masked(words, ring) == ""


@pytest.mark.parametrize("modulus", [1 << 16, 1 << 32, PLAIN_MODULUS])
@pytest.mark.parametrize("size", [1, 9, 10, 71, 72, 73, 100, 3000])
def test_so_many_are_refused_whose_chance_is_below_the_bound(modulus: int, size: int) -> None:
    """The counts from which on is refused are those that the bound itself gives, one by one."""
    width = container(modulus).itemsize
    limits = uniform._limits(size, width, modulus)
    for bits, of in zip((8, 1), limits, strict=True):
        assert len(of) == 8 * width // bits
        for place in {0, len(of) // 2, len(of) - 1}:
            share = uniform._share(place * bits, bits, modulus)
            refused = [uniform._surprise(k, size, share) > uniform._LIMIT for k in range(size + 1)]
            assert [hits >= of[place] for hits in range(size + 1)] == refused


def test_the_bound_on_false_alarms_holds() -> None:
    """Against the exact tail of the binomial, where that can be computed."""
    looked = 0
    for size in (1, 3, 10, 72, 500, 8192):
        for share in (1 / 2, 1 / 16, 1 / 256, 2**-16, 2**-32):
            for hits in {*range(0, min(size, 60) + 1), size // 2, size}:
                bound = uniform._surprise(hits, size, share)
                exact = float(stats.binom.logsf(hits - 1, size, share)) / math.log(2)
                if exact > -900:
                    assert -bound >= exact - 1e-6, (size, share, hits)
                    looked += bound > 0
    assert looked > 500
    assert 60 + math.log2(8 * (256 + 2 * 8) + 1) <= uniform._LIMIT


@pytest.mark.parametrize("modulus", [2, 255, 256, 257, 1000, 65535, 65536, 65537, 70001])
def test_no_byte_or_bit_is_more_frequent_among_residues_than_its_share(modulus: int) -> None:
    residues = np.arange(modulus, dtype=np.uint64)
    for low, width in [*((8 * place, 8) for place in range(3)), *((bit, 1) for bit in range(24))]:
        part = (residues >> np.uint64(low)) & np.uint64((1 << width) - 1)
        counted = np.bincount(part.astype(np.int64)) / modulus
        assert counted.max() <= uniform._share(low, width, modulus) * (1 + 1e-12)


@pytest.mark.parametrize("modulus", MODULI)
def test_masks_that_are_zero_are_found_from_72_bits_on(modulus: int) -> None:
    """One coordinate says log2(t) bits; with fewer than 72 in all nothing is said."""
    needed = math.floor(72 / math.log2(modulus)) + 1
    for size in (needed, needed + 1, 1000):
        bare = bare_values(modulus, size)
        with pytest.raises(LocalProtocolError, match="coordinates are as they were"):
            check_mask(bare, bare.copy(), modulus)
    few = bare_values(modulus, needed - 1)
    check_mask(few, few, modulus)


@pytest.mark.parametrize(("clients", "bits", "margin"), [(5, 8, 0), (5, 16, 0), (40, 16, 10**5)])
def test_an_upload_that_stands_bare_is_found(clients: int, bits: int, margin: int) -> None:
    plain = (1 << bits) + 2 * margin
    modulus = Ring.of(1, bits, clients, margin=margin).modulus
    needed = math.floor(72 / (math.log2(modulus) - math.log2(plain))) + 1
    for size in (needed, 50, 1000):
        ring = Ring.of(size, bits, clients, margin=margin)
        integers = np.random.default_rng(size).integers(-margin, (1 << bits) + margin, size)
        with pytest.raises(BadEnvelope, match="coordinates stand bare"):
            check_masked(ring.residues(integers), ring)


def test_a_few_coordinates_among_many_are_enough() -> None:
    bare = bare_values(1 << 32, 50_000)
    hidden = masked(bare, 1 << 32, [bytes(32)], [])
    hidden[:6] = bare[:6]
    assert "6 of 50000" in strange_mask(bare, hidden, 1 << 32)
    ring = Ring.of(50_000, 8, 100)  # 2^16 residues, of which one in 256 would be an integer
    many = masked(bare_values(ring.modulus, ring.size), ring.modulus, [bytes(32)], [])
    many[:1000] &= 255
    assert "stand bare" in strange_masked(many, ring)


WEAK = {
    "constant": lambda size: np.full(size, 0xDEADBEEF, dtype=np.uint32),
    "one byte": lambda size: np.arange(size, dtype=np.uint32) % np.uint32(256),
    "few values": lambda size: np.resize(np.array([1, 2**31, 77], dtype=np.uint32), size),
    "seven bits": lambda size: (
        np.random.default_rng(3).integers(0, 2**32, size, dtype=np.uint32) & np.uint32(0x7F7F7F7F)
    ),
}


@pytest.mark.parametrize("what", WEAK)
def test_masks_of_few_values_are_found(what: str) -> None:
    size = 40_000
    bare, mask = bare_values(1 << 32, size), WEAK[what](size)
    assert strange_mask(bare, bare + mask, 1 << 32) != ""
    assert strange_masked(bare + mask, Ring.of(size, 16, 5)) != ""


def test_masks_that_somebody_knows_look_like_masks() -> None:
    """The limit that is stated: nobody sees from a keystream who has its key."""
    bare = bare_values(1 << 32, 10_000)
    assert strange_mask(bare, masked(bare, 1 << 32, [bytes(32)], []), 1 << 32) == ""
