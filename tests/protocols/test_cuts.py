"""Cuts of clusters: the right ones, the same for everybody, and none with a side too small."""

from __future__ import annotations

import time
from itertools import combinations

import networkx as nx
import numpy as np
import pytest

from protocols.clusters import (
    CUTS,
    EXACT,
    GUARDS,
    Told,
    cut_in_two,
    cuts_bytes,
    packed,
    stoer_wagner,
    unpacked,
    weighed,
)
from protocols.errors import CohortChanged
from protocols.policy.policy import divided

LEAST = 4


def random_weights(count, seed, top=1 << 15):
    found = np.triu(np.random.default_rng(seed).integers(0, top, (count, count)), 1)
    return found + found.T


def planted(each, seed=0, within=0.8, between=0.0):
    """Return who is in which of two groups, and weights of noisy cosines between them."""
    rng, group = np.random.default_rng(seed), np.arange(2 * each) % 2
    cosines = np.where(group[:, None] == group, within, between)
    noise = rng.normal(0, 0.05, cosines.shape)
    return group, weighed(cosines + (noise + noise.T) / 2)


def weight(weights, side):
    return int(weights[np.ix_(side, ~side)].sum())


def same(one, other):
    return bool((one == other).all() or (one == ~other).all())


@pytest.mark.parametrize("count", [2, 5, 9, 17, 30])
def test_the_lightest_cut_is_as_light_as_that_of_networkx(count):
    for seed in range(3):
        weights, graph = random_weights(count, seed), nx.Graph()
        for i, j in combinations(range(count), 2):
            graph.add_edge(i, j, weight=int(weights[i, j]))
        assert weight(weights, stoer_wagner(weights, 1)) == nx.stoer_wagner(graph)[0]


@pytest.mark.parametrize("count", [8, 11])
def test_up_to_sixteen_clients_the_lightest_cut_that_fits_is_found(count):
    weights = random_weights(count, count)
    fitting = [
        np.isin(np.arange(count), chosen)
        for few in range(LEAST, count - LEAST + 1)
        for chosen in combinations(range(count), few)
    ]
    found = cut_in_two(weights, "stoer_wagner", "constrained", LEAST)
    assert weight(weights, found) == min(weight(weights, side) for side in fitting)


def test_beyond_that_the_cuts_of_the_phases_are_looked_at():
    weights = random_weights(EXACT + 6, 1)
    found = stoer_wagner(weights, LEAST)
    assert found is None or LEAST <= found.sum() <= len(weights) - LEAST


@pytest.mark.parametrize("rule", ["normalised", "agglomerative"])
@pytest.mark.parametrize("each", [LEAST, 8, 15])
def test_two_planted_groups_are_found(rule, each):
    group, weights = planted(each)
    assert same(cut_in_two(weights, rule, "constrained", LEAST), group == 1)


def test_the_published_cut_finds_opposite_groups_of_the_smallest_size():
    group, weights = planted(LEAST, within=0.8, between=-0.8)
    assert same(cut_in_two(weights, "stoer_wagner", "constrained", LEAST), group == 1)


@pytest.mark.parametrize("rule", CUTS)
@pytest.mark.parametrize("guard", GUARDS)
def test_names_decide_nothing(rule, guard):
    for count, seed in ((9, 0), (14, 1), (22, 2)):
        weights = random_weights(count, seed)
        order = np.random.default_rng(seed).permutation(count)
        one = cut_in_two(weights, rule, guard, LEAST)
        other = cut_in_two(weights[np.ix_(order, order)], rule, guard, LEAST)
        assert (one is None) == (other is None)
        assert one is None or np.array_equal(one[order], other)


@pytest.mark.parametrize("rule", CUTS)
def test_ties_and_what_a_client_is_to_itself_change_nothing(rule):
    tied = np.full((10, 10), 1 << 14)
    first = cut_in_two(tied, rule, "constrained", LEAST)
    loops = tied + np.diag(np.arange(10))
    assert LEAST <= first.sum() <= 5
    assert np.array_equal(first, cut_in_two(loops, rule, "constrained", LEAST))


@pytest.mark.parametrize("rule", CUTS)
def test_a_side_that_is_too_small_is_not_made_or_leaves(rule):
    cosines = np.full((10, 10), 0.9)
    cosines[:2] = cosines[:, :2] = -0.9  # two strangers among ten, alike to one another
    cosines[:2, :2] = 0.9
    weights = weighed(cosines)
    few = cut_in_two(weights, rule, "leave", LEAST)
    assert few.tolist() == [True] * 2 + [False] * 8
    assert cut_in_two(weights, rule, "whole", LEAST) is None
    found = cut_in_two(weights, rule, "constrained", LEAST)
    assert found is None or LEAST <= found.sum() <= 5
    assert cut_in_two(weights[:7, :7], rule, "constrained", LEAST) is None  # seven are too few
    assert cut_in_two(weights[:5, :5], rule, "leave", LEAST) is None  # the rest would be too few


@pytest.mark.parametrize("rule", CUTS)
def test_thirty_clients_are_cut_within_two_seconds(rule):
    _, weights = planted(15)
    start = time.process_time()
    cut_in_two(weights, rule, "constrained", LEAST)
    assert time.process_time() - start < 2


def test_weights_are_one_more_than_cosines_in_steps():
    assert weighed(np.array([[1.0, -1.0], [0.0, 2.0]])).tolist() == [[32768, 0], [16384, 32768]]
    assert weighed(np.array([[1.0, np.nan], [np.nan, 1.0]])).tolist() == [[32768, 0], [0, 32768]]


# --- how a cluster is told ------------------------------------------------------------------------

EVERYBODY = 0xFFF
FIRST = Told(1, 3, EVERYBODY, 0x00F, b"\x01" * 63 + b"\0")
SECOND = Told(2, 9, 0xFF0, 0x0F0, b"\x02" * 64)


def told(*cuts, size=None):
    return packed(cuts, 12).ljust(size or cuts_bytes(12, 2), b"\0")


def test_cuts_lead_from_all_clients_to_a_cluster():
    assert unpacked(told(), 12, EVERYBODY) == []
    assert unpacked(told(FIRST), 12, 0x00F) == [FIRST]
    for cluster in (0x0F0, 0xF00):
        assert unpacked(told(FIRST, SECOND), 12, cluster) == [FIRST, SECOND]
    assert cuts_bytes(12, 0) == cuts_bytes(12, 1) == 4 + 4 + 2 + 64


@pytest.mark.parametrize(
    ("cuts", "cluster"),
    [
        ((), 0x00F),
        ((FIRST,), 0x0F0),
        ((FIRST,), 0x01F),
        ((FIRST, SECOND), 0x00F),
        ((FIRST, FIRST), 0x00F),
        ((Told(1, 3, EVERYBODY, EVERYBODY, b""),), EVERYBODY),
        ((Told(1, 3, EVERYBODY, 0x100F, b""),), 0x00F),
    ],
)
def test_cuts_that_lead_elsewhere_are_none(cuts, cluster):
    with pytest.raises(ValueError, match="cut"):
        unpacked(told(*cuts), 12, cluster)


def test_o5_two_cuts_of_one_cluster_leave_nobody_apart_though_each_pair_is_apart():
    """Nine clients: a cut into four and five, and another of the same into four and five."""
    groups = divided((0x1FF,), 0x00F, "floor", LEAST)
    pairs = [(0x1FF, 0x00F), (0x1FF, 0x0F0)]
    for one, other in pairs:  # what looking at pairs alone lets pass
        assert min((one & ~other).bit_count(), other.bit_count()) >= LEAST
    assert not 0x00F & 0x0F0
    with pytest.raises(CohortChanged):
        divided(groups, 0x0F0, "floor", LEAST)  # client 9 would stand alone
