"""O22: the ledger says how many records are determined once it is known who is in which group."""

from __future__ import annotations

import numpy as np
import pytest

from crypto.samplers import Stream
from protocols.disclosures.mixed import layout as mix_alone
from protocols.disclosures.mixed import mixing
from protocols.disclosures.mixed.layout import alone, incidence
from protocols.disclosures.mixed.mixing import Mixer
from protocols.disclosures.names import Disclosure
from tests.protocols.mix import CLASSES, PLACES, WIDTH, Mashed, chain, mixing_plan, mixing_policy

RNG = np.random.default_rng(8)


def by_hand(records: np.ndarray, groups: np.ndarray) -> int:
    """Return how many unit vectors lie in the row space, by a singular value decomposition."""
    cell, record = incidence(records, groups)
    table = np.zeros((cell.max() + 1, record.max() + 1))
    table[cell, record] = 1
    _, s, rows = np.linalg.svd(table[:, np.unique(record)], full_matrices=False)
    return int(((rows[s > 1e-9 * s[0]] ** 2).sum(axis=0) > 1 - 1e-9).sum())


def down(count: int) -> int:
    return 1 << (count.bit_length() - 1) if count else 0


def chance(seed: int = 0) -> Stream:
    return Stream(bytes([seed]) * 32)


def hubs(members: int, popular: int, places: int = PLACES) -> np.ndarray:
    """Return records of members of their own, with neighbours among a few popular ones."""
    near = members + RNG.integers(popular, size=(members, places - 1))
    return np.concatenate([np.arange(members)[:, None], near], axis=1)


def test_a_record_that_two_cells_differ_by_is_determined():
    """Cells {0..7} and {0..7, 8}: the difference is record 8."""
    records = np.stack([np.arange(9), np.r_[np.arange(8), 0]], axis=1)
    assert alone(records, np.zeros(9, dtype=np.int64), chance()) == 1
    records[8, 1] = 9  # {0..8} and {0..7, 9}: none
    assert alone(records, np.zeros(9, dtype=np.int64), chance()) == 0


@pytest.mark.parametrize("popular", [6, 20, 30, 60, 120])
@pytest.mark.parametrize("count", [4, 10, 30])
def test_it_is_what_the_row_space_says(popular: int, count: int) -> None:
    """Fewer equations than records, and more."""
    records, groups = hubs(120, popular), RNG.permutation(120) % count
    assert alone(records, groups, chance()) == down(by_hand(records, groups))


def test_both_ways_through_the_algebra_are_tried() -> None:
    records = hubs(120, 20)
    few, many = RNG.permutation(120) % 10, np.arange(120)
    assert by_hand(records, few) == 20 and alone(records, few, chance()) == 16
    assert by_hand(records, many) == 140 and alone(records, many, chance()) == 128


def test_too_large_a_system_is_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    records, groups = hubs(120, 20), RNG.permutation(120) % 10
    monkeypatch.setattr(mix_alone, "LARGEST", 39)
    assert alone(records, groups, chance()) is None
    monkeypatch.setattr(mix_alone, "LARGEST", 40)
    assert alone(records, groups, chance()) == 16


def told(index: np.ndarray, **dims: int) -> mixing.Facts:
    """Return what a client's ledger would say of groups drawn for these members."""
    policy = mixing_policy(chain(floor=6))
    dims = mixing_plan(policy, records=128, **dims).dims
    how = mixing.MixLayout(Mashed, policy.rules[Disclosure.MIXED], dims)
    table = RNG.normal(size=(int(index.max()) + 1, WIDTH))
    label = RNG.integers(CLASSES, size=len(index))
    message = Mashed.unmixed(table=table, index=index, label=label)
    *_, facts = Mixer().mixed(message, how, bytes(32))
    return facts


def test_popular_neighbours_are_determined_though_records_outnumber_mixtures():
    """CiteSeer in small: 40 mixtures of 144 records, and 24 of these stand in 30 of the 40."""
    facts = told(hubs(120, 24), group=12)
    assert facts == {"mix": {"floor": 6, "mixtures": 10, "alone": 16}}


def test_where_neighbours_are_many_none_is_determined():
    """Cora in small: as many mixtures, and neighbours that stand in few of them."""
    facts = told(hubs(120, 200), group=12)
    assert facts == {"mix": {"floor": 6, "mixtures": 10, "alone": 0}}
