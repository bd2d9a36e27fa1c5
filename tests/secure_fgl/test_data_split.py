"""Splits: disjoint, covering the labelled nodes, stratified, within the promised bound."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fgl.data import Graph, load_dataset, spec_of, split_masks


def labelled(y):
    y = np.asarray(y, dtype=np.int64)
    none = np.zeros((2, 0), dtype=np.int64)
    return Graph("toy", none, np.zeros((len(y), 1), np.float32), y, 5, True)


@given(
    y=st.lists(st.integers(-1, 4), min_size=1, max_size=200),
    train=st.integers(1, 100),
    val=st.integers(0, 100),
    test=st.integers(0, 100),
    seed=st.integers(0, 2**32 - 1),
)
def test_masks_are_disjoint_cover_the_labelled_and_keep_the_shares(y, train, val, test, seed):
    whole = train + val + test
    shares = (train / whole, val / whole, test / whole)
    masks = np.array(split_masks(labelled(y), shares, rng=np.random.default_rng(seed)))
    y = np.array(y)
    np.testing.assert_array_equal(masks.sum(axis=0), y >= 0)
    count = (y >= 0).sum()
    assert masks[0].sum() == np.floor(count * shares[0] + 1e-9)
    assert abs(masks[1].sum() - shares[1] * count) < 2
    for label in range(5):
        sizes = masks[:, y == label].sum(axis=1)
        assert (np.abs(sizes - np.array(shares) * (y == label).sum()) < 3).all()


def test_the_split_depends_on_the_generator_only():
    graph = labelled(np.arange(100) % 5)
    masks = [np.array(split_masks(graph, rng=np.random.default_rng(seed))) for seed in (1, 1, 2)]
    np.testing.assert_array_equal(masks[0], masks[1])
    assert (masks[0] != masks[2]).any()


def test_roles_do_not_follow_the_node_number():
    graph = labelled(np.zeros(1000))
    train, _, _ = split_masks(graph, rng=np.random.default_rng(0))
    assert train.sum() == 200
    gaps = np.diff(np.flatnonzero(train))
    assert gaps.std() > 2  # every fifth node would give 0; random placement gives about 4.5


@pytest.mark.parametrize(
    "shares", [(0.2, 0.4, 0.5), (0.0, 0.5, 0.5), (0.5, -0.1, 0.6), (0.2, 0.2, 0.2)]
)
def test_shares_that_make_no_split_are_refused(shares):
    with pytest.raises(ValueError, match="sum to 1"):
        split_masks(labelled([0, 1]), shares, rng=np.random.default_rng(0))


@pytest.mark.parametrize("share", [0.1, 0.2, 0.25, 0.5, 0.8])
def test_one_site_with_all_training_nodes_is_within_the_planned_bound(share):
    for customers in (2, 62, 64, 126, 128):
        shape = {"banks": 2, "customers": customers, "transactions": 128}
        graph = load_dataset("synthetic_banks", **shape)
        rest = (1 - share) / 2
        train, _, _ = split_masks(graph, (share, rest, rest), rng=np.random.default_rng(0))
        spec = spec_of("synthetic_banks", clients=1, train_share=share, options=shape)
        assert train.sum() <= spec.records
