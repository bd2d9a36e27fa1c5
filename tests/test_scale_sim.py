"""`benchmarks/scale_sim.py`: what a simulated round counts, and when its totals open."""

from __future__ import annotations

import argparse

import numpy as np
import pytest

from benchmarks import scale_sim
from benchmarks._primitives import Costs
from benchmarks._shape import Flags, Shape
from benchmarks.scale_sim import Clients, Group, Leaf, Round

FREE = Costs(*[0.0] * 9)
OPTIONS = argparse.Namespace(values=1000, away=0.0, seed=1, deadline=60.0, per_server=2)
GRAPH = Shape(neighbours=6, holders=6, seen=13, threshold=4, votes=4, least=10, window=2)


def played(shape: Shape, clients: Clients, count: int) -> tuple[Round, Leaf]:
    leaf = Leaf(FREE, values=1000)
    found = Round(leaf, [Group(np.arange(count), shape)], clients, 60.0)
    found.play()
    return found, leaf


def by_hand(shape: Shape, uploaded: Flags, voted: Flags, gave: Flags) -> bool:
    count, half = len(uploaded), shape.neighbours // 2
    reach = [step for step in range(-half, half + 1) if step]
    for one in range(count):
        others = [(one + step) % count for step in reach]
        if sum(voted[[one, *others]]) < shape.votes or sum(gave[others]) < shape.threshold:
            return False
        if sum(uploaded[[(one + step) % count for step in range(half)]]) < shape.window:
            return False
    return int(uploaded.sum()) >= shape.least


def test_a_sparse_graph_opens_where_every_neighbourhood_has_its_shares_and_votes() -> None:
    rng, seen = np.random.default_rng(5), set()
    for _ in range(300):
        uploaded, voted, gave = (rng.random(24) < rng.choice([0.7, 0.95]) for _ in range(3))
        asked = by_hand(GRAPH, uploaded, voted, gave)
        assert GRAPH.opens(uploaded, voted, gave) == asked
        seen.add(asked)
    assert seen == {True, False}


@pytest.mark.parametrize(("away", "opened"), [(0.0, 1), (1.0, 0)])
def test_a_total_opens_with_all_there_and_with_nobody_does_not(away: float, opened: int) -> None:
    round_, leaf = played(GRAPH, Clients.drawn(24, away, 1), 24)
    assert round_.opened == opened
    header, values = scale_sim.HEADER, 4 * 1000
    asked, lists = header + values, header + 13 * scale_sim.EVIDENCE
    answers = (header + values) + header + (header + 6 * scale_sim.SHARE)
    if opened:
        assert leaf.moved == 24 * (asked + 2 * lists + answers)


def test_who_vanishes_is_waited_for_until_the_deadline() -> None:
    whole, _ = played(GRAPH, Clients.drawn(24, 0.0, 1), 24)
    clients = Clients.drawn(24, 0.0, 1)
    clients.until[3] = 1  # it uploads, and never votes
    late, _ = played(GRAPH, clients, 24)
    assert whole.end < 60.0 < late.end and late.opened == 1


def test_a_tree_costs_a_leaf_as_much_whatever_the_number_of_clients() -> None:
    few, many = (scale_sim.simulated(n, 134, OPTIONS, FREE) for n in (943, 9430))
    assert many["groups"] == 70 and many["lost"] == 0 == few["lost"]
    assert many["leaf_gb"] == pytest.approx(few["leaf_gb"], rel=0.2)
    flat = scale_sim.simulated(9430, None, OPTIONS, FREE)
    assert flat["groups"] == 1 and flat["leaf_gb"] > 10 * many["leaf_gb"]
