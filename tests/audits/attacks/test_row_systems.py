"""A15 on planted rows: what elimination and equal values read, and what the rule leaves them.

Trials: systems of 2 to 36 rows, four seeds. All draws are pinned, so no result is false by chance.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from audits.attacks._methods.openings import determined, equal_values, read
from protocols.disclosures.row_sum.guards import RowNoise
from protocols.disclosures.row_sum.protocol.assignment import Offer, assigned
from protocols.disclosures.row_sum.run import NoisedRows
from protocols.privacy.row_noise import plan_row_noise
from secure_fgl.attack_inputs.rows import systems

GRID = 1e-5


def bags(nodes, width=200, words=9, seed=0):
    """Return terms of bags of words: every word of a node weighs alike."""
    rng = np.random.default_rng(seed)
    held = np.zeros((nodes, width))
    for node in range(nodes):
        held[node, rng.choice(width, words, replace=False)] = 1 / (words * np.sqrt(2 + node))
    return held


def noise(shape, seed=1):
    return np.random.default_rng(seed).uniform(-GRID, GRID, shape)


def test_a_row_of_one_and_rows_that_differ_by_one_are_read():
    terms = np.random.default_rng(0).normal(size=(4, 6))
    system = np.array([[1, 0, 0, 0], [0, 1, 1, 1], [0, 1, 1, 0]], dtype=float)
    fixed, solved = determined(system, system @ terms)
    assert fixed.tolist() == [True, False, False, True]
    assert np.allclose(solved[[0, 3]], terms[[0, 3]])
    hit = read(system, system @ terms + noise((3, 6)), terms, GRID, groups=False)
    assert hit.tolist() == [1.0, 0.0, 0.0, 1.0]


def test_a_longer_combination_is_read_and_disjoint_rows_are_not():
    terms = np.random.default_rng(0).normal(size=(3, 6))
    ring = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=float)
    assert determined(ring, ring @ terms)[0].all()
    apart = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]], dtype=float)
    assert not determined(apart, apart @ np.vstack([terms, terms]))[0].any()


def test_equal_values_part_a_sum_of_bags_of_words_and_not_one_of_dense_terms():
    terms = bags(3)
    system = np.ones((1, 3))
    hit = read(system, system @ terms + noise((1, 200)), terms, GRID)
    assert hit.sum() >= 1
    dense = np.random.default_rng(0).normal(size=(3, 200))
    assert not read(system, system @ dense, dense, GRID).any()
    blurred = system @ terms + np.random.default_rng(2).normal(0, 0.05, (1, 200))
    assert not read(system, blurred, terms, GRID).any()  # noise of a word's size
    assert not equal_values(np.zeros(4), GRID)


def receivers(free, floor, seed=0):
    """Return what six clients are told of a random graph between them, dense features."""
    rng = np.random.default_rng(seed)
    owner = {node: node % 6 for node in range(36)}
    edges = [(a, b) for a in owner for b in owner if owner[a] != owner[b] and rng.random() < 0.3]
    tag = {node: node.to_bytes(16, "big") for node in owner}
    offers = {}
    for client in range(6):
        nodes = {}
        for a, b in edges:
            if owner[b] == client:
                nodes.setdefault(tag[a], set()).add(tag[b])
        wanted = frozenset(tag.values())  # two hops, of a dense graph
        offers[f"c{client}"] = Offer({r: frozenset(of) for r, of in nodes.items()}, wanted)
    terms = {tag[node]: rng.normal(size=9) for node in owner}
    served = assigned(offers, floor, 1000, 1 << 20 if free else 1)
    names = sorted(offers)
    alone = systems(served, offers, terms, [(name,) for name in names])
    pooled = systems(served, offers, terms, list(pairwise(names)))
    return served, alone, pooled


def share(found):
    hits = [read(s.system, s.sums, s.terms, 1e-9, groups=False) for s in found if len(s.terms)]
    return float(np.concatenate(hits).mean()) if hits else 0.0


@pytest.mark.parametrize("seed", range(4))
def test_the_rule_leaves_nothing_to_eliminate_and_its_control_falls(seed):
    served, alone, pooled = receivers(free=False, floor=3, seed=seed)
    assert served and share(alone) == 0.0 and share(pooled) == 0.0
    _, free, both = receivers(free=True, floor=3, seed=seed)
    raw_served, raw, _ = receivers(free=True, floor=1, seed=seed)
    assert share(free) > 0.5 and share(both) > 0.5  # nodes in several rows, each of three or more
    assert share(raw) > 0.5 and len(raw_served) > len(served)


def pairs(epsilon, weaker=1.0):
    """Return what twelve bags of words give away, each alone in two rows of another client."""
    nodes = [node.to_bytes(16, "big") for node in range(12)]
    held = dict(zip(nodes, bags(12), strict=True))
    rows = {row + node: frozenset({node}) for node in nodes for row in (b"a", b"b")}
    offers = {"c0": Offer(rows, frozenset()), "c1": Offer({}, frozenset(rows))}
    served = assigned(offers, 1, 64, each=2)
    target = {"epsilon": epsilon, "delta": 1e-5}
    counted = plan_row_noise(RowNoise(releases=2, budget=target, **target), 32767, 5000, 6)
    scale = repr(float(counted.scale) / weaker)
    made = NoisedRows(0.25, 16, counted.model_copy(update={"scale": scale}), 1 << 28, bytes(32))

    def adds(row, adder):
        return made.row(row, [held[node] for node in offers[adder].nodes[row]])[0] * 0.25 / 32767

    (found,) = systems(served, offers, held, [("c1",)], adds)
    assert found.system.shape == (24, 12)
    return float(read(found.system, found.sums, found.terms, 0.25 / 32767).mean())


@pytest.mark.parametrize("epsilon", [8.0, 64.0])
def test_noised_rows_of_single_nodes_are_not_read_and_without_the_noise_they_are(epsilon):
    assert pairs(epsilon) == 0.0
    assert pairs(epsilon, weaker=100.0) > 0.5  # the largest entries are a node's words
    assert pairs(epsilon, weaker=10_000.0) == 1.0
