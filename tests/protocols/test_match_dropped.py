"""Aggregator and one client, who drop another between two epochs of a matching (O25).

The aggregator knows who stands in a cell and chooses who is missing; the client reads which cells
hold what it asked for. What changes must be told of whole cells only.
"""

from __future__ import annotations

import numpy as np
import pytest

from protocols.disclosures.match.guards import Match
from protocols.disclosures.match.run import held
from tests.protocols.matched import CAP, cells_of, matched_round, matching
from tests.protocols.matching import compared, keyed_all

SPY = "client-1"


def bits(world):
    """Return which cells hold which of the spy's items, as its tags and the matcher told it."""
    client = held(world.context(SPY))._client
    return {item: set(np.flatnonzero(row)) for item, row in client.rows.items()}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_o25_dropping_a_client_between_epochs_does_not_tell_its_items(seed):
    """Aggregator and one client: the aggregator knows who stands in a cell and whom it drops."""
    world = matching(seed=seed).start()
    spy = world.sites[SPY]
    spy.items = list(range(CAP))  # its whole quota of guesses
    matched_round(world)
    before, cells = bits(world), cells_of(world)
    victim = next(n for n in world.names if cells[n] != cells[SPY])
    cell = cells[victim]
    world.lost = lambda item, sender, to: victim in (sender, to) and item == "expand.match.tags"
    matched_round(world, 2)
    after = bits(world)
    gone = {i for i in before if cell in before[i]} - {i for i in after if cell in after[i]}
    kept = {i for i in after if cell in after[i]}
    read = gone & set(world.sites[victim].items)
    assert not (gone and kept), f"{victim} holds {sorted(read)}: read by a drop"


def test_o25_after_a_drop_a_tag_is_told_by_whole_cells_only():
    """The count of holders must not tell either: an item of exactly `floor` holders."""
    match = Match(cap=8, canaries=2, floor=3, popular=0.0)
    items = {f"c{n}": [n + 100] for n in range(15)}
    for name in ("c0", "c5", "c10"):
        items[name] = [1, 2]
    tags, names = keyed_all(items, match), sorted(items)
    cells = {name: int(name[1:]) // 5 for name in names}
    found = compared(tags, match, cells)
    assert found.told["c0"].rows.sum() == 6  # two items in three cells
    told = []
    for gone in ("c10", "c11"):  # one holds both items, its mate neither
        left = {name: tags[name] for name in names if name != gone}
        told.append(compared(left, match, cells).told["c0"].bits.tobytes())
    assert told[0] == told[1]
