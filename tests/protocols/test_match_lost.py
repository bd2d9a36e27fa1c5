"""Who vanishes while items are matched, and what is left of the round (O5, O25)."""

from __future__ import annotations

import pytest

from protocols.errors import RoundLost
from protocols.sessions.part import State
from tests.protocols.matched import cells_of, matched_round, matching, same
from tests.thinned import thinned

GONE = "client-3"
CLIENT_STEPS = (
    *("expand.up.MATCH", "expand.match.onward", "expand.match.tags"),
    *("expand.match.split", "expand.match.part"),
)


@pytest.fixture
def world():
    return matching().start()


def lose(world, item, who=GONE):
    """Lose this item from a party, and all that follows it until `lost` is put back."""
    world.lost = lambda this, sender, to: who in (sender, to) and this == item


def find(world):
    world.lost = lambda *_: False


@pytest.mark.parametrize("item", CLIENT_STEPS[:3])
def test_cells_are_made_of_all_clients_or_not_at_all(world, item):
    lose(world, item)
    with pytest.raises(RoundLost, match="Cells are made once"):
        matched_round(world)
    find(world)
    assert world.aggregator.state is State.READY and world.serving["matcher"].state is State.NEW
    matched_round(world, 2)
    same(world)


@pytest.mark.parametrize("item", thinned(CLIENT_STEPS, 3))
def test_of_a_later_round_a_vanished_client_costs_its_cell(world, item):
    matched_round(world)
    for site in world.sites.values():
        site.found = None
    lose(world, item)
    matched_round(world, 2)
    same_cells = cells_of(world)
    mates = [n for n in world.names if same_cells[n] == same_cells[GONE]]
    others = [n for n in world.names if n not in mates]
    assert world.sites[GONE].found is None
    assert all(world.sites[n].found is not None for n in world.names if n != GONE)
    told = [e for e in world.entries("aggregator") if e["kind"] == "match"]
    assert [e["cells"] for e in told] == [2, 1]
    if item == "expand.match.part":  # its tags were compared: only the sum is missing
        same(world, (GONE,))
    assert any(world.sites[n].found for n in others)
    find(world)
    matched_round(world, 3)
    same(world)


@pytest.mark.parametrize(
    ("item", "who"),
    [
        ("expand.match.points", "tag-server-1"),
        ("expand.match.answers", "tag-server-1"),
        ("expand.match.second_points", "tag-server-2"),
        ("expand.match.second_answers", "tag-server-2"),
        ("expand.match.compare", "matcher"),
        ("expand.match.compared", "matcher"),
    ],
)
def test_a_server_that_does_not_answer_costs_the_round(world, item, who):
    lose(world, item, who)
    with pytest.raises(RoundLost, match="did not answer"):
        matched_round(world)
    find(world)
    matched_round(world, 2)
    same(world)


def test_of_a_single_cell_nothing_is_left(world):
    alone = matching(clients=6).start()
    matched_round(alone)
    lose(alone, "expand.match.split")
    with pytest.raises(RoundLost, match="No cell is complete"):
        matched_round(alone, 2)
    find(alone)
    matched_round(alone, 3)
    same(alone)
