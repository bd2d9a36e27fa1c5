"""Splits: disjoint, covering the labelled records, stratified, within the promised bound."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from secure_fgl.data import read_dataset, spec_of, split_masks
from secure_fgl.data.records import Graph, Masks, deal, strata
from tests.secure_fgl.partition_tools import graph_data, node_data, rating_data


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
        graph = read_dataset("synthetic_banks", **shape)
        rest = (1 - share) / 2
        train, _, _ = split_masks(graph, (share, rest, rest), rng=np.random.default_rng(0))
        spec = spec_of("synthetic_banks", clients=1, train_share=share, options=shape)
        assert train.sum() <= spec.records


@pytest.mark.parametrize("make", [graph_data, rating_data])
def test_graphs_and_ratings_are_split_stratified_too(make):
    whole = make()
    masks = split_masks(whole, (0.6, 0.2, 0.2), rng=np.random.default_rng(0))
    np.testing.assert_array_equal(np.sum(masks, axis=0), 1)
    assert masks.train.sum() == np.floor(0.6 * whole.records + 1e-9)
    kinds = strata(whole)
    for kind in np.unique(kinds):
        got = [mask[kinds == kind].sum() for mask in masks]
        wanted = np.array([0.6, 0.2, 0.2]) * (kinds == kind).sum()
        assert (np.abs(got - wanted) < 3).all()


def test_several_labels_are_stratified_by_the_first_and_missing_is_a_class():
    whole = graph_data(graphs=4000, labels=2)
    first = whole.y[:, 0]
    unlabelled = np.isnan(whole.y).all(axis=1)
    assert 0 < unlabelled.sum() < np.isnan(first).sum()
    masks = split_masks(whole, (0.5, 0.25, 0.25), rng=np.random.default_rng(0))
    np.testing.assert_array_equal(np.sum(masks, axis=0), ~unlabelled)
    for stratum in (first == 0, first == 1, np.isnan(first) & ~unlabelled):
        assert abs(masks.train[stratum].sum() - stratum.sum() / 2) <= 1
    assert set(np.unique(strata(whole))) == {-1, 0, 1, 2}


def test_one_column_of_answers_is_a_binary_label():
    whole = graph_data(graphs=1000, labels=1)
    masks = split_masks(whole, (0.8, 0.1, 0.1), rng=np.random.default_rng(0))
    for answer in (0, 1):
        assert abs(masks.train[whole.y[:, 0] == answer].mean() - 0.8) < 0.01
    assert not np.any(masks, axis=0)[np.isnan(whole.y[:, 0])].any()


@given(
    seed=st.integers(0, 2**32 - 1),
    train=st.floats(0.34, 1.0),
    counts=st.lists(st.integers(1, 9), min_size=1, max_size=30),
)
def test_users_with_three_ratings_train_if_a_third_does(seed, train, counts):
    user = np.repeat(np.arange(len(counts)), counts)
    shares = (train, (1 - train) / 2, (1 - train) / 2)
    rng = np.random.default_rng(seed)
    trained, _, _ = deal(rng.permutation(len(user)), user, shares, rng)
    assert len(trained) == np.floor(train * len(user) + 1e-9)
    got = np.bincount(user[trained], minlength=len(counts))
    assert (got[np.array(counts) >= 3] >= 1).all()


def test_a_plain_split_does_not_look_at_strata():
    whole = node_data(nodes=1000, unlabelled=10)
    masks = split_masks(whole, rng=np.random.default_rng(0), stratify=False)
    np.testing.assert_array_equal(np.sum(masks, axis=0), whole.y >= 0)
    assert masks.train.sum() == 198
    per_class = [masks.train[whole.y == label].mean() for label in range(5)]
    assert np.std(per_class) > 0.005  # stratified: below 0.002


def published(whole, train=0.8, val=0.0, seed=0):
    rng = np.random.default_rng(seed)
    draw = rng.random(whole.records)
    return replace(
        whole, public=Masks(draw < train, draw > 1 - val, (draw >= train) & (draw <= 1 - val))
    )


def test_the_published_split_is_taken_as_it_is():
    whole = published(node_data(), train=0.5, val=0.2)
    masks = split_masks(whole, rng=np.random.default_rng(0), public=True)
    np.testing.assert_array_equal(masks, whole.public)


@pytest.mark.parametrize("make", [node_data, rating_data])
@pytest.mark.parametrize("seed", range(3))
def test_validation_is_held_back_from_published_training(make, seed):
    whole = published(make(seed=seed), seed=seed)
    masks = split_masks(whole, rng=np.random.default_rng(seed), public=True)
    np.testing.assert_array_equal(masks.test, whole.public.test)
    np.testing.assert_array_equal(masks.train ^ masks.val, whole.public.train)
    assert masks.val.sum() == whole.public.train.sum() // 10
    kinds = strata(whole)
    for kind in np.unique(kinds[whole.public.train]):  # whoever trained goes on training
        assert masks.train[kinds == kind].any()
        before, held = (mask[kinds == kind].sum() for mask in (whole.public.train, masks.val))
        assert held <= 0.2 * before + 1
    again, other = (
        split_masks(whole, rng=np.random.default_rng(s), public=True) for s in (seed, seed + 9)
    )
    np.testing.assert_array_equal(masks, again)
    assert (masks.val != other.val).any()


def test_users_with_one_published_rating_keep_it():
    whole = published(rating_data(most=1), train=1.0)
    masks = split_masks(whole, rng=np.random.default_rng(0), public=True)
    assert masks.train.all()
    assert not masks.val.any()


@pytest.mark.parametrize("make", [node_data, graph_data, rating_data])
def test_without_a_published_split_there_is_nothing_to_take(make):
    with pytest.raises(ValueError, match="carries no published split"):
        split_masks(make(), rng=np.random.default_rng(0), public=True)


def test_the_u1_split_of_ml100k(data_root):
    ml = read_dataset("ml100k", data_root, split="published")
    masks = split_masks(ml, rng=np.random.default_rng(0), public=True)
    assert [int(mask.sum()) for mask in masks] == [72_000, 8_000, 20_000]
    assert np.bincount(ml.user[masks.train], minlength=943).min() >= 1
