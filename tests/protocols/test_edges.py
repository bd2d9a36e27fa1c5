"""Head-room and wrap, at the very edge: the largest totals come back, one more is refused (O19)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from crypto.errors import OutOfRange
from crypto.homomorphic.he import scheme
from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.guards import Ckks, He, Mask
from protocols.disclosures.sum.layout import Ring, SumLayout
from protocols.errors import PolicyError, UnfitMessage
from protocols.policy.guards import Clip, Quantise, Seal, UnsafeClear
from protocols.policy.policy import PrivacyPolicy
from tests.protocols.toys import Update
from tests.protocols.wire import World

SCHEMES = {"bfv": "bfv-sealapi", "bfv48": "bfv48-sealapi", "ckks": "ckks-sealapi"}

# (bits, clients, margin) whose totals fill a container to the last value.
FULL = {
    16: [(4, 4369, 0), (4, 4367, 15), (8, 257, 0), (15, 1, 16384)],
    32: [(16, 65537, 0), (16, 1, 2147450880), (31, 2, 0)],
    64: [(32, 2**32 + 1, 0), (32, 1, 2**63 - 2**31)],
}


def capacity(bits: int, clients: int, margin: int) -> int:
    return clients * (2**bits - 1) + 2 * margin


@pytest.mark.parametrize(
    ("width", "facts"), [(width, facts) for width, rows in FULL.items() for facts in rows]
)
def test_a_container_is_filled_to_the_last_value_and_no_further(
    width: int, facts: tuple[int, int, int]
) -> None:
    bits, clients, margin = facts
    left = 2**width - 1 - capacity(*facts)
    assert Ring.of(7, bits, clients, margin=margin).modulus == 2**width
    more = margin + left // 2 + 1
    if width == 64:
        with pytest.raises(OutOfRange, match="64 bits"):
            Ring.of(7, bits, clients, margin=more)
    else:
        assert Ring.of(7, bits, clients, margin=more).modulus == 2 ** (2 * width)


def ring_of(kind: str, bits: int, clients: int, margin: int) -> Ring:
    found = None if kind == "masks" else scheme(SCHEMES[kind])
    return Ring.of(9, bits, clients, margin=margin, scheme=found)


def added(ring: Ring, vectors: list[np.ndarray]) -> Any:
    """Add the residues of some vectors as the backends do: mod t, nothing else."""
    total = sum(ring.residues(vector).astype(object) for vector in vectors) % ring.modulus
    return total.astype(ring.residues(vectors[0]).dtype)


rings = st.tuples(
    st.sampled_from(["masks", *SCHEMES]), st.integers(4, 32), st.integers(1, 12),
    st.one_of(st.just(0), st.integers(1, 2**20)),
)  # fmt: skip


@given(rings, st.integers(0, 2**32))
def test_every_total_within_the_head_room_comes_back(facts: Any, seed: int) -> None:
    kind, bits, clients, margin = facts
    try:
        ring = ring_of(kind, bits, clients, margin)
    except OutOfRange:
        assume(False)
    rng = np.random.default_rng(seed)
    vectors = rng.integers(0, 2**bits, size=(clients, 9))
    noise = rng.integers(-(margin // clients), margin // clients + 1, size=(clients, 9))
    noised = vectors + noise
    noised[:, 0], noised[:, 1] = 2**bits - 1, 0
    noised[0, 0] += margin  # the largest total that may be, and the smallest
    noised[0, 1] -= margin
    totals = ring.integers(added(ring, list(noised)))
    assert np.array_equal(totals, noised.sum(axis=0))
    assert totals[0] == clients * (2**bits - 1) + margin and totals[1] == -margin


@pytest.mark.parametrize("kind", ["masks", *SCHEMES])
@pytest.mark.parametrize(("bits", "clients", "margin"), [(12, 10, 0), (12, 5, 4000), (16, 10, 99)])
def test_one_more_than_can_be_is_refused(kind: str, bits: int, clients: int, margin: int) -> None:
    ring = ring_of(kind, bits, clients, margin)
    values = np.full(9, 2**bits - 1)
    top = [values.copy() for _ in range(clients)]
    top[0] += margin
    assert ring.integers(added(ring, top)).max() == clients * (2**bits - 1) + margin
    unit = np.zeros(ring.size, dtype=object)
    unit[0] = 1  # the first slot of the first residue
    over = (added(ring, top).astype(object) + unit) % ring.modulus
    with pytest.raises(OutOfRange):
        ring.integers(over.astype(ring.residues(values).dtype))
    low = [np.zeros(9, np.int64) for _ in range(clients)]
    low[0] -= margin
    assert ring.integers(added(ring, low)).min() == -margin
    under = (added(ring, low).astype(object) - unit) % ring.modulus
    with pytest.raises(OutOfRange):
        ring.integers(under.astype(ring.residues(values).dtype))


@pytest.mark.parametrize("margin", [0, 50])
def test_a_layout_knows_the_largest_and_the_smallest_total(margin: int) -> None:
    layout = SumLayout((Update,), Clip(), Quantise(bits=8), {"d": 5, "records": 10})
    top = 3 * 255
    for total, fits in ((top + margin, True), (top + margin + 1, False), (-margin - 1, False)):
        totals = np.zeros(layout.length, np.int64)
        totals[0] = total
        if fits:
            layout.decode(totals, 3, margin=margin)
        else:
            with pytest.raises(UnfitMessage, match="larger than this cohort"):
                layout.decode(totals, 3, margin=margin)


def chained(*chain: Any) -> PrivacyPolicy:
    rules = {**PrivacyPolicy.preset("he").rules, Disclosure.SUM: chain}
    return PrivacyPolicy(name="edge", rules=rules)


def ends(bits: int, *protection: Any) -> PrivacyPolicy:
    return chained(Clip(), Quantise(bits=bits), *protection)


PROTECTIONS = {
    "clear": (UnsafeClear(),),
    "masks": (Mask(), Seal()),
    "he": (Mask(), He(), Seal()),
    "bfv48": (Mask(), He(scheme="bfv48"), Seal()),
    "ckks": (Mask(), Ckks(), Seal()),
}


@pytest.mark.parametrize("bits", [4, 12, 16])
@pytest.mark.parametrize("kind", PROTECTIONS)
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_saturated_clients_add_up_to_the_bound(kind: str, bits: int, sign: float) -> None:
    world = World(policy=ends(bits, *PROTECTIONS[kind]), clients=6)
    for site in world.sites.values():
        site.delta, site.count = np.full(5, sign * 1e9), 2**32 - 1
    total = world.start().round(1).total(Update)
    assert np.allclose(total.delta, sign * 6 * 5.0, rtol=1e-12)
    assert total.count == 6 * (2**32 - 1)
    releases = [e for e in world.entries("client-1") if e.get("item") == "train.up.SUM"]
    assert [e["clipped"] for e in releases] == [True]


@pytest.mark.parametrize(("bits", "kind"), [(12, "bfv48"), (12, "he"), (8, "ckks"), (20, "masks")])
def test_o2_every_packing_gives_the_totals_of_the_integers_in_clear(bits: int, kind: str) -> None:
    one = World(policy=ends(bits, *PROTECTIONS[kind]), clients=10).start().round(1).total(Update)
    other = World(policy=ends(bits, UnsafeClear()), clients=10).start().round(1).total(Update)
    assert np.array_equal(one.delta, other.delta) and one.count == other.count


@pytest.mark.parametrize(("bits", "fits"), [(23, True), (24, False), (32, False)])
def test_o19_a_plan_whose_totals_do_not_fit_is_not_made(bits: int, fits: bool) -> None:
    policy = ends(bits, Mask(), Ckks(), Seal())  # 26 bits hold 6 clients of 23, not of 24
    if fits:
        assert World(policy=policy, clients=6).start().round(1).total(Update).count == 27
    else:
        with pytest.raises(PolicyError, match="does not fit"):
            World(policy=policy, clients=6)
