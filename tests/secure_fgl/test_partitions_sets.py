"""Partitions of graphs and of ratings, on toys and on the real sets."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from secure_fgl.data import read_dataset
from secure_fgl.data.records import split_masks
from tests.secure_fgl.partition_tools import graph_data, leaked, rating_data, share


def sizes(parts, role=None):
    return np.array([len(p.train) if role is None else getattr(p, role).sum() for p in parts])


def test_counts_follow_dirichlet_separately_for_each_role():
    whole = graph_data(graphs=2000)
    _, parts = share(whole, "dirichlet_count", 8, shares=(0.8, 0.1, 0.1), beta=0.5)
    train, val, test = (sizes(parts, role) for role in ("train", "val", "test"))
    assert (train.sum(), val.sum(), test.sum()) == (1600, 200, 200)
    assert train.max() > 2 * 1600 / 8  # uneven
    assert np.abs(train / 1600 - test / 200).max() > 0.05  # drawn apart
    assert np.abs(val / 200 - test / 200).max() > 0.05
    labels = [np.bincount(part.y, minlength=3) / len(part.y) for part in parts if len(part.y) > 150]
    assert np.std(labels, axis=0).max() < 0.1  # in number only, not in distribution


def test_beta_evens_the_counts_out():
    whole = graph_data(graphs=2000)
    _, parts = share(whole, "dirichlet_count", 8, beta=1e6)
    assert sizes(parts).std() < 5


@pytest.mark.parametrize("seed", range(8))
def test_everybody_can_train(seed):
    whole = graph_data(graphs=100)
    _, parts = share(whole, "dirichlet_count", 10, seed=seed, beta=0.3)
    assert sizes(parts, "train").min() >= 1


def test_graphs_without_a_label_are_nobodys_under_dirichlet_counts():
    whole = graph_data(labels=1)
    _, parts = share(whole, "dirichlet_count", 4)
    held = np.concatenate([part.graphs for part in parts])
    np.testing.assert_array_equal(np.sort(held), np.flatnonzero(~np.isnan(whole.y[:, 0])))


@pytest.mark.parametrize(("graphs", "clients", "chunk"), [(300, 5, 50), (103, 5, 20)])
def test_chunks_are_consecutive_and_leftovers_random(graphs, clients, chunk):
    whole = graph_data(graphs=graphs)
    seen = [share(whole, "graphs_one_dataset", clients, seed)[1] for seed in range(3)]
    for parts in seen:
        for client, part in enumerate(parts):
            head = part.graphs[part.graphs < clients * chunk]
            np.testing.assert_array_equal(head, np.arange(client * chunk, (client + 1) * chunk))
        assert sizes(parts).sum() == graphs
    left = [[p.graphs[p.graphs >= clients * chunk].tolist() for p in parts] for parts in seen]
    assert left[0] != left[1]


def test_shuffled_chunks_are_of_no_order():
    """Of a sorted file, chunks of its order hold one class each, and shuffled ones both."""
    whole = graph_data(graphs=300, classes=2)
    whole = replace(whole, y=np.sort(whole.y))
    seen = {}
    for shuffled in (False, True):
        _, parts = share(whole, "graphs_one_dataset", 6, shuffled=shuffled)
        np.testing.assert_array_equal(
            np.sort(np.concatenate([p.graphs for p in parts])), range(300)
        )
        seen[shuffled] = [len(np.unique(part.y)) for part in parts]
    assert min(seen[True]) == 2 and sum(kinds == 1 for kinds in seen[False]) >= 5
    _, again = share(whole, "graphs_one_dataset", 6, seed=1, shuffled=True)
    assert again[0].graphs.tolist() != parts[0].graphs.tolist()
    with pytest.raises(ValueError, match="leave shuffled out"):
        share(whole, "graphs_one_dataset", 6, overlap=True, shuffled=True)


def test_every_client_splits_its_own_graphs_by_class():
    whole = graph_data(graphs=300, classes=2)
    for part in share(whole, "graphs_one_dataset", 3, shares=(0.2, 0.4, 0.4))[1]:
        for label in range(2):
            mine = part.y == label
            for role, share_ in (("train", 0.8), ("val", 0.1), ("test", 0.1)):
                assert abs(getattr(part, role)[mine].sum() - share_ * mine.sum()) < 3
        assert (part.train | part.val | part.test).all()


def test_overlap_draws_50_to_149_graphs_with_replacement():
    whole = graph_data(graphs=200)
    drawn = np.concatenate(
        [sizes(share(whole, "graphs_one_dataset", 40, seed, overlap=True)[1]) for seed in range(5)]
    )
    assert 50 <= drawn.min() < 60
    assert 140 < drawn.max() <= 149


def test_overlap_leaks_only_where_it_is_not_strict():
    whole = graph_data(graphs=200)
    for strict in (True, False):
        _, parts = share(whole, "graphs_one_dataset", 6, overlap=True, strict=strict)
        found = leaked(whole, parts)
        assert (found == 0).all() if strict else found.mean() > 0.5


def test_a_plan_bounds_what_a_client_draws():
    with pytest.raises(ValueError, match="only 149"):
        share(graph_data(graphs=149), "graphs_one_dataset", 3, overlap=True)
    assert len(share(graph_data(graphs=150), "graphs_one_dataset", 3, overlap=True)[1]) == 3


def test_overlap_without_training_graphs_is_refused():
    with pytest.raises(ValueError, match="no training graph"):
        share(graph_data(), "graphs_one_dataset", 3, shares=(0.001, 0.5, 0.499), overlap=True)


def test_data_sets_stay_whole_and_split_alike_whatever_else_is_there():
    whole = graph_data(owners=3)
    _, parts = share(whole, "graphs_multi_dataset", 3)
    for number, part in enumerate(parts):
        np.testing.assert_array_equal(part.graphs, np.flatnonzero(whole.owner == number))
        assert abs(part.train.mean() - 0.8) < 0.01
        assert abs(part.test.mean() - 0.1) < 0.02
    # The first two sets become one: the split of the third stays.
    joined = replace(whole, owner=np.maximum(whole.owner, 1) - 1)
    assert joined.owner.max() == 1
    _, again = share(joined, "graphs_multi_dataset", 2, seed=9)
    np.testing.assert_array_equal(parts[2].graphs, again[1].graphs)
    np.testing.assert_array_equal(parts[2].train, again[1].train)
    _, other = share(whole, "graphs_multi_dataset", 3, split_seed=124)
    assert (other[2].train != parts[2].train).any()


@pytest.mark.parametrize(
    ("name", "clients", "options", "match"),
    [
        ("by_owner", 5, {}, "4 natural owners and 5 clients"),
        ("graphs_multi_dataset", 5, {}, "4 data sets and 5 clients"),
        ("graphs_multi_dataset", 4, {"split_seed": -1}, "split_seed"),
        ("graphs_one_dataset", 301, {}, "no training graph"),
        ("graphs_one_dataset", 300, {}, "no training graph"),
        ("dirichlet_count", 200, {}, "fewer clients"),
        ("dirichlet_count", 4, {"beta": -1.0}, "beta must be above 0"),
    ],
)
def test_graphs_that_cannot_be_shared_are_refused(name, clients, options, match):
    with pytest.raises(ValueError, match=match):
        share(graph_data(), name, clients, **options)


@pytest.mark.parametrize("name", ["by_owner", "graphs_multi_dataset"])
def test_graphs_without_owners_are_refused(name):
    with pytest.raises(ValueError, match=r"choose another|another partition"):
        share(replace(graph_data(), owner=None), name, 4)


def test_a_client_is_one_user():
    whole = rating_data()
    masks = split_masks(whole, (0.6, 0.2, 0.2), rng=np.random.default_rng(0))
    training = np.unique(whole.user[masks.train])
    assert len(training) < whole.users  # somebody has nothing to train on
    _, parts = share(whole, "user_per_client", len(training), masks=masks)
    assert [np.unique(part.user).tolist() for part in parts] == [[u] for u in training.tolist()]
    for user, part in zip(training, parts, strict=True):
        np.testing.assert_array_equal(part.rows, np.flatnonzero(whole.user == user))


def test_most_takes_the_busiest_users():
    whole = rating_data()
    masks, parts = share(whole, "user_per_client", 7, most=True)
    counts = np.bincount(whole.user[masks.train], minlength=whole.users)
    chosen = [int(part.user[0]) for part in parts]
    assert chosen == sorted(chosen)
    assert min(counts[chosen]) >= np.sort(counts)[-7]


def test_a_client_is_one_category():
    whole = rating_data(categories=5)
    whole = replace(whole, category=whole.category * 10)  # numbers may have gaps
    _, parts = share(whole, "item_category", 5)
    for number, part in enumerate(parts):
        np.testing.assert_array_equal(part.rows, np.flatnonzero(whole.category == 10 * number))


@pytest.mark.parametrize(
    ("name", "clients", "options", "match"),
    [
        ("user_per_client", 3, {}, "users with a training rating and 3 clients"),
        ("user_per_client", 41, {"most": True}, "users with a training rating and 41 clients"),
        ("item_category", 5, {}, "4 categories and 5 clients"),
    ],
)
def test_ratings_that_cannot_be_shared_are_refused(name, clients, options, match):
    with pytest.raises(ValueError, match=match):
        share(rating_data(), name, clients, **options)


def test_ratings_without_categories_are_refused():
    with pytest.raises(ValueError, match=r"no categories.*user_per_client"):
        share(replace(rating_data(), category=None), "item_category", 4)


def test_ciao_has_28_clients_that_all_train(data_root):
    ciao = read_dataset("ciao", data_root)
    _, parts = share(ciao, "item_category", 28, shares=(0.8, 0.1, 0.1))
    assert sizes(parts).sum() == ciao.records
    assert sizes(parts, "train").min() >= 1
    assert sizes(parts, "test").min() >= 1


def test_every_user_of_ml100k_is_a_client(data_root):
    ml = read_dataset("ml100k", data_root)
    _, parts = share(ml, "user_per_client", 943, shares=(0.8, 0.1, 0.1))
    found = sizes(parts, "train") / sizes(parts)
    assert found.min() > 0.7  # at least 20 ratings each, dealt evenly
    assert found.max() < 0.9
    assert sizes(parts).sum() == 100_000


def test_bbbp_is_shared_among_16_clients(data_root):
    bbbp = read_dataset("bbbp", data_root)
    _, parts = share(bbbp, "dirichlet_count", 16, shares=(0.8, 0.1, 0.1))
    train = sizes(parts, "train")
    assert train.sum() == 1631
    assert train.min() >= 1
    assert train.max() > 2 * train.mean()


def test_a_sorted_file_skews_gcfls_chunks(data_root):
    """PROTEINS is sorted by class: in ten chunks of 50 hardly any client sees both."""
    proteins = read_dataset("proteins", data_root)
    _, parts = share(proteins, "graphs_one_dataset", 10)
    chunks = [part.y[part.graphs < 500] for part in parts]
    assert np.mean([len(np.unique(labels)) == 1 for labels in chunks]) >= 0.9


def test_gcfls_group_of_molecules_gives_one_set_a_client(data_root):
    group = read_dataset("tu_molecules", data_root)
    clients = int(group.owner.max()) + 1
    _, parts = share(group, "graphs_multi_dataset", clients)
    assert sizes(parts).sum() == group.records
    for part in parts:
        assert abs(part.train.mean() - 0.8) < 0.02
