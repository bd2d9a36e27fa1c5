"""Published splits, largest components, features from degrees, and what a plan may know."""

from __future__ import annotations

import re
import tracemalloc

import numpy as np
import pytest
import scipy.sparse as sp

from secure_fgl.data import (
    Graph,
    GraphSet,
    Masks,
    Ratings,
    published_shape,
    read_dataset,
    shape_of,
    spec_of,
)
from secure_fgl.data.sources import node_npz
from secure_fgl.data.sources._shared.files import (
    degree_buckets,
    degree_one_hot,
    largest_component,
    one_hot,
    undirected,
)
from tests.secure_fgl.test_data_sets import write


def masks(train, val, test, nodes=2708):
    """The arrays of a split; every argument says which nodes."""
    made = {}
    for role, members in (("train", train), ("val", val), ("test", test)):
        made[f"{role}_mask"] = np.zeros(nodes, bool)
        made[f"{role}_mask"][members] = True
    return made


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("cora", {"seed": 3}, "did you mean|no option"),
        ("cora", {"splt": "published"}, "did you mean 'split'"),
        ("cora", {"split": "random"}, "only be 'published'"),
        ("cora", {"split": True}, "only be 'published'"),
        ("cora", {"split": "published", "fold": 0}, "no option"),
        ("cora_ml", {"split": "published"}, "no option"),
        ("cora", {"largest_component": "yes"}, "true or false"),
        ("actor", {"fold": 1}, "needs split: published"),
        ("actor", {"split": "published", "fold": 10}, "0 to 9"),
        ("actor", {"split": "published", "fold": -1}, "0 or more"),
        ("actor", {"split": "published", "fold": True}, "whole number"),
        ("twitch", {"split": "published"}, r"takes no options.*split"),
    ],
)
def test_a_wrong_option_is_refused_with_and_without_data(name, options, match, tmp_path):
    with pytest.raises(ValueError, match=match):
        spec_of(name, clients=5, options=options)
    with pytest.raises(ValueError, match=match):
        read_dataset(name, tmp_path, **options)


def test_a_published_split_is_read_when_it_is_asked_for(tmp_path):
    write(tmp_path, **masks([0, 5], [1], [2, 3]))
    assert read_dataset("cora", tmp_path).public is None
    public = read_dataset("cora", tmp_path, split="published").public
    assert [np.flatnonzero(mask).tolist() for mask in public] == [[0, 5], [1], [2, 3]]


@pytest.mark.parametrize(
    "changes",
    [
        masks([], [1], [2]),
        masks([0, 1], [1], [2]),
        masks(range(141), [], []),
        masks([0], [], [], nodes=2707),
        {**masks([0], [1], [2]), "val_mask": np.zeros(2708, np.int8)},
        {**masks([0], [1], [2]), "y": np.array([-1, *(np.arange(2707) % 7)], np.int16)},
    ],
    ids=["nobody-trains", "overlap", "too-many", "too-short", "no-bits", "unlabelled"],
)
def test_a_split_that_is_not_the_published_one_is_refused(tmp_path, changes):
    write(tmp_path, **changes)
    with pytest.raises(ValueError, match="not the published set: expected a split"):
        read_dataset("cora", tmp_path, split="published")


def test_one_of_ten_published_splits_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(node_npz, "FOLDED", ("cora",))
    draw = np.arange(2708) % 10 == np.arange(10)[:, None]
    splits = {"train_masks": draw, "val_masks": np.roll(draw, 1, 0), "test_masks": ~draw}
    splits["test_masks"] &= ~splits["val_masks"]
    write(tmp_path, **splits)
    monkeypatch.setattr(node_npz, "PLANETOID", {})
    for options, fold in (({}, 0), ({"fold": 7}, 7)):
        public = read_dataset("cora", tmp_path, split="published", **options).public
        np.testing.assert_array_equal(public.train, draw[fold])


def test_a_file_without_the_split_cannot_be_read_for_it(tmp_path):
    write(tmp_path)
    with pytest.raises(ValueError, match="cannot be read"):
        read_dataset("cora", tmp_path, split="published")


def test_another_largest_component_than_the_published_is_refused(tmp_path):
    write(tmp_path)
    with pytest.raises(ValueError, match="2485 nodes in its largest component"):
        read_dataset("cora", tmp_path, largest_component=True)


def test_the_largest_component_keeps_every_node_s_own():
    edges = np.array([[0, 1, 3, 4, 4], [2, 5, 4, 6, 7]])  # {0, 2}, {1, 5}, {3, 4, 6, 7}
    owner = np.arange(8) % 3
    x = sp.csr_array(np.eye(8, dtype=np.float32))
    public = Masks(owner == 0, owner == 1, owner == 2)
    kept = largest_component(Graph("toy", edges, x, np.arange(8), 8, True, owner, public))
    assert kept.y.tolist() == [3, 4, 6, 7]
    assert kept.edges.tolist() == [[0, 1, 1], [1, 2, 3]]
    assert kept.x.toarray().argmax(axis=1).tolist() == [3, 4, 6, 7]
    assert kept.owner.tolist() == [0, 1, 0, 1]
    assert kept.public.train.tolist() == [True, False, True, False]


def test_edges_are_told_once_without_loops():
    arcs = np.array([[2, 0, 1, 1, 2], [0, 2, 1, 2, 1]])
    assert undirected(arcs, 3).tolist() == [[0, 1], [2, 2]]
    assert undirected(np.zeros((2, 0), np.int64), 3).shape == (2, 0)


def test_degree_features():
    edges = np.array([[0] * 9, range(1, 10)])  # a star: degrees 9, 1 and one node alone
    buckets = degree_buckets(edges, 11, 4).toarray()
    assert buckets.argmax(axis=1).tolist() == [3, *[1] * 9, 0]
    assert (buckets.sum(axis=1) == 1).all()
    assert degree_one_hot(edges, 11, 20).toarray().argmax(axis=1).tolist() == [9, *[1] * 9, 0]
    assert degree_one_hot(edges, 11, 5).toarray().argmax(axis=1).tolist() == [4, *[1] * 9, 0]
    degrees = np.array([0, 1, 2, 3, 4, 7, 8, 127, 128, 255])
    joined = np.stack([np.repeat(np.arange(10), degrees), np.full(degrees.sum(), 10)])
    found = degree_buckets(joined, 11, 9).toarray().argmax(axis=1)
    assert found[:10].tolist() == [0, 1, 2, 2, 3, 3, 4, 7, 8, 8]


def test_one_hot_of_several_columns():
    made = one_hot(np.array([[0, 3], [1, 2]]), 5)
    assert made.toarray().tolist() == [[1, 0, 0, 1, 0], [0, 1, 1, 0, 0]]


@pytest.mark.parametrize(("clients", "records"), [(1, 1024), (2, 512), (5, 256), (20, 64)])
def test_where_clients_hold_as_many_each_the_bound_is_near_a_clients_share(clients, records):
    """The control is the bound of all training records, where a rule may give one client most."""
    assert spec_of("cora", clients=clients, even=True).records == records
    assert spec_of("cora", clients=clients).records == 1024
    assert spec_of("cora", clients=clients, bound=128).records == 128


def test_the_bound_of_a_published_split_is_that_of_all_records():
    assert spec_of("cora", clients=5).records == 1024
    assert spec_of("cora", clients=5, options={"split": "published"}).records == 4096
    smaller = {"largest_component": True}
    assert spec_of("cora", clients=1, train_share=0.82, options=smaller).records == 2048
    assert spec_of("cora", clients=1, train_share=0.82).records == 4096


def test_a_spec_tells_all_that_a_task_needs():
    molecules = spec_of("tox21", clients=3)
    assert (molecules.task, molecules.multilabel, molecules.classes) == ("graph", True, 12)
    ratings = spec_of("ml100k", clients=3)
    assert (ratings.task, ratings.features, ratings.classes) == ("rating", 0, 1)
    assert (ratings.users, ratings.items) == (943, 1682)
    assert (ratings.lowest, ratings.highest) == (1.0, 5.0)


def test_a_set_in_memory_has_the_same_sizes_as_by_name():
    graph = read_dataset("synthetic_banks")
    assert shape_of(graph) == published_shape("synthetic_banks")
    spec = spec_of("mine", clients=2, shape=shape_of(graph))
    assert (spec.name, spec.records, spec.features) == ("mine", 512, 40)
    none, ones = np.zeros((2, 0), np.int64), np.ones(3, np.int64)
    x = np.zeros((3, 4), np.float32)
    molecules = GraphSet("mine", ones, none, x, np.ones((3, 2), np.float32), 2, True, False)
    assert shape_of(molecules)[:6] == ("graph", 4, 2, 3, False, True)
    ratings = Ratings("mine", ones, ones, ones.astype(np.float32), 7, 9, 0.5, 4.0, False)
    assert shape_of(ratings) == ("rating", 0, 1, 3, False, False, 7, 9, 0.5, 4.0)


@pytest.mark.parametrize(("name", "training"), sorted(node_npz.PLANETOID.items()))
def test_planetoid_s_split(name, training, data_root):
    graph = read_dataset(name, data_root, split="published")
    assert [int(mask.sum()) for mask in graph.public] == [training, 500, 1000]
    assert set(np.bincount(graph.y[graph.public.train])) == {20}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.long if n == "tolokers" else ()) for n in node_npz.FOLDED],
)
def test_the_ten_published_splits_cover_all_nodes_and_differ(name, data_root):
    folds = [
        np.array(read_dataset(name, data_root, split="published", fold=fold).public)
        for fold in range(10)
    ]
    first = np.array(read_dataset(name, data_root, split="published").public)
    np.testing.assert_array_equal(first, folds[0])
    assert all((fold.sum(axis=0) == 1).all() for fold in folds)
    assert len({fold.tobytes() for fold in folds}) == 10


@pytest.mark.parametrize(
    ("name", "nodes", "edges"),
    [
        ("cora", 2485, 5069),  # as in the literature
        ("citeseer", 2120, 3679),
        ("amazon_computers", 13381, 245778),
        ("cora_ml", 2810, 7981),
        ("dblp", 16191, 51913),
        ("minesweeper", 10000, 39402),  # connected
    ],
)
def test_the_published_largest_components(name, nodes, edges, data_root):
    graph = read_dataset(name, data_root, largest_component=True)
    assert (graph.nodes, graph.edges.shape[1]) == (nodes, edges)
    assert graph.x.shape[0] == nodes
    assert published_shape(name, {"largest_component": True}).records == nodes


def test_planetoid_s_split_in_the_largest_component(data_root):
    graph = read_dataset("cora", data_root, split="published", largest_component=True)
    assert [int(mask.sum()) for mask in graph.public] == [122, 459, 915]


def test_pubmed_without_features_gets_degrees(data_root):
    graph = read_dataset("pubmed_structure", data_root)
    degree = np.bincount(graph.edges.ravel())
    column = graph.x.toarray().argmax(axis=1)
    np.testing.assert_array_equal(column, np.floor(np.log2(degree)).astype(int) + 1)
    assert column.max() == graph.x.shape[1] - 1


def test_the_large_set_is_never_made_dense(data_root):
    tracemalloc.start()
    try:
        graph = read_dataset("coauthor_physics", data_root, largest_component=True)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sp.issparse(graph.x)
    assert graph.x.format == "csr"
    assert most < 100 * 2**20  # dense: 1.2 GB


def test_errors_tell_no_value(tmp_path):
    write(tmp_path, y=np.full(2708, 31337 % 128, np.int16))
    with pytest.raises(ValueError, match="published set") as refused:
        read_dataset("cora", tmp_path)
    assert not re.search(r"\b105\b", str(refused.value))  # 31337 % 128
