"""What mixing does not stop, as LIMITATIONS says: each of these reads a record out of mixtures."""

from __future__ import annotations

from typing import Any

import numpy as np

from protocols.disclosures.mixed import mixing
from protocols.disclosures.mixed.mixing import Mixer
from protocols.disclosures.names import Disclosure
from tests.protocols.mix import (
    FLOOR,
    GRID,
    MEMBERS,
    PLACES,
    Mashed,
    chain,
    fill,
    mixing_plan,
    mixing_policy,
)

TARGET = 7


class Site:
    """Records that an author, or whoever chose the layer, shapes."""

    def __init__(self) -> None:
        fill(self, np.random.default_rng(3), MEMBERS)
        self.mixer = Mixer()

    def released(self) -> Any:
        policy = mixing_policy(chain(apart=FLOOR))
        plan = mixing_plan(policy, records=128)
        how = mixing.MixLayout(Mashed, policy.rules[Disclosure.MIXED], plan.dims)
        message = Mashed.unmixed(table=self.table, index=self.index, label=self.label)
        body, _, told = self.mixer.mixed(message, how, bytes(32))
        assert told.get("mix", {"alone": 0})["alone"] == 0
        return how.decode(body).features.astype(np.float64)

    def cells(self) -> Any:
        """Return at which (group, position) the target stands, and of how many each is."""
        found = np.zeros((int(self.mixer._groups.max()) + 1, PLACES))
        for group, members in zip(self.mixer._groups, self.index, strict=True):
            found[group] += members == TARGET
        return found > 0, int(np.bincount(self.mixer._groups).max())


def test_a_column_that_one_record_lights_names_its_mixtures_and_its_value() -> None:
    """Whoever chooses Theta does this: the floor counts records and not how loud they are."""
    site = Site()
    secret = site.table[TARGET, 0] = 3.0
    site.table[np.arange(MEMBERS) != TARGET, 0] = 0.0
    column, (there, size) = site.released()[..., 0], site.cells()
    assert np.array_equal(np.abs(column) > 2 * GRID, there)
    assert abs(size * column[there].mean() - secret) <= size * GRID


def test_one_loud_record_among_near_equal_ones_is_read_out_of_a_mean() -> None:
    site = Site()
    loud = 4 * site.table[TARGET]
    site.table = 4 * GRID * np.arange(MEMBERS)[:, None] * np.ones_like(site.table)
    site.table[TARGET] = loud
    found, (there, size) = site.released(), site.cells()
    off = np.abs(size * found[there][0] - loud).max()  # what the others come to
    assert off <= size * 4 * GRID * MEMBERS < 0.2 * np.abs(loud).max()


def test_a_record_that_every_row_carries_is_read_out_of_any_mean() -> None:
    site = Site()
    secret = site.table[TARGET].copy()
    site.table = 4 * GRID * np.arange(MEMBERS)[:, None] + secret
    assert np.abs(site.released() - secret).max() <= 4 * GRID * MEMBERS


def test_one_row_that_changes_between_rounds_is_the_difference() -> None:
    site = Site()
    secret = site.table[TARGET].copy()
    before = site.released()
    site.table[TARGET] = 0.0
    change, (there, size) = before - site.released(), site.cells()
    assert np.abs(size * change[there] - secret).max() <= 2 * size * GRID
    assert np.abs(change[~there]).max() <= 2 * GRID
