"""The partitions of GraphFL: one graph for all, few labels each, new classes."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from secure_fgl.config import Config
from secure_fgl.data.about import digest_of
from secure_fgl.data.loading import load
from secure_fgl.data.partitions.few_shot_overlap import _windows
from secure_fgl.data.partitions.new_label_domain import renumbered
from secure_fgl.federation import Federation
from tests.secure_fgl.partition_tools import node_data, numbers, roles_of, share

FEW = {"per_class": 12, "val_nodes": 40, "test_nodes": 80}


def test_labels_of_each_class_are_dealt_evenly_and_no_client_knows_anothers() -> None:
    whole = node_data()
    _, parts = share(whole, "few_shot_shared_graph", 7, **FEW)
    _, train, val, test = roles_of(whole, parts)
    assert np.bincount(whole.y[train > 0]).tolist() == [12] * 5 and train.max() == 1
    assert {int(part.train.sum()) for part in parts} == {8, 9}
    assert set(val.tolist()) == set(test.tolist()) == {0, 7}
    assert (int((val > 0).sum()), int((test > 0).sum())) == (40, 80)
    for part in parts:
        roles = part.train | part.val | part.test
        assert (part.y[~roles] == -1).all() and (part.y[roles] >= 0).all()


def test_all_hold_one_array_and_it_is_made_ready_once() -> None:
    whole = node_data()
    _, parts = share(whole, "few_shot_shared_graph", 4, **FEW)
    assert all(part.x is whole.x and part.edges is whole.edges for part in parts)
    document = {
        "algorithm": {"name": "graph_fl"},
        "data": {"partition": {"name": "few_shot_shared_graph", "clients": 4, "options": FEW}},
    }
    federation = Federation.from_config(Config.parse(document | {"policy": "masks"}))
    config, (task, _) = Config.parse(document), federation.build()
    assert [text for text in federation.plan().warnings if "whole graph" in text]
    sites = [site.data for site in load(config, task, given=whole).sites]
    first, *others = sites
    for data in others:
        assert data.x is first.x and data.edges is first.edges
        assert data.propagation("symmetric") is first.propagation("symmetric")
        assert data.y is not first.y and data.kept is not first.kept
    apart = Config.parse({"data": {"partition": {"name": "iid_nodes", "clients": 4}}})
    assert not [t for t in Federation.from_config(apart).plan().warnings if "whole graph" in t]
    one, two, *_ = (site.data for site in load(apart, task, given=whole).sites)
    assert one.x is not two.x


def test_windows_cover_the_nodes_and_neighbours_share_a_fraction() -> None:
    for overlap in (0.0, 0.25, 0.5):
        windows = _windows(1000, 10, overlap)
        assert sorted(set(np.concatenate(windows))) == list(range(1000))
        shared = [len(np.intersect1d(a, b)) for a, b in pairwise(windows)]
        wide = 1000 / (10 - 9 * overlap)
        assert np.abs(np.array(shared) - overlap * wide).max() <= 2


def test_a_label_in_two_windows_trains_at_one_client() -> None:
    whole = node_data()
    _, parts = share(whole, "few_shot_overlap", 4, overlap=0.5, **FEW)
    held, train, *_ = roles_of(whole, parts)
    assert held.max() > 1 and train.max() == 1 and train.sum() == 60


@pytest.mark.parametrize("relabel", [True, False])
def test_each_client_numbers_its_classes_anew_by_a_bijection(relabel: bool) -> None:
    whole = node_data(classes=6)
    options = {"new_classes": 2, "per_class": 6, "test_per_class": 5, "relabel": relabel}
    _, parts = share(whole, "new_label_domain", 8, **options)
    pairs = set()
    for part in parts:
        new = part.tune | part.val | part.test
        for mask, allowed in ((part.train, {0, 1, 2, 3}), (new, {4, 5})):
            met = {*zip(whole.y[part.nodes[mask]].tolist(), part.y[mask].tolist(), strict=True)}
            assert {old for old, _ in met} <= allowed and len(met) == 2
            told = [own for _, own in sorted(met)]
            assert told == ([0, 1] if relabel else sorted(old for old, _ in met))
        assert np.bincount(part.y[part.train]).max() == 6
        assert int(part.tune.sum()) == 2 * 3 and int(part.test.sum()) == int(part.val.sum()) == 10
        assert (part.y[~(part.train | new)] == -1).all()
        pairs.add(tuple(sorted(set(whole.y[part.nodes[part.train]].tolist()))))
    assert len(pairs) > 1  # clients learn different classes
    tuned = {n for part in parts for n in part.nodes[part.tune].tolist()}
    tested = {n for part in parts for n in numbers(whole, part, "test").tolist()}
    assert not tuned & tested


def test_renumbering_keeps_apart_what_was_apart() -> None:
    labels = np.array([5, 2, 9, 2, 5])
    found = renumbered(labels)
    assert found.tolist() == [1, 0, 2, 0, 1]
    assert len({*zip(labels.tolist(), found.tolist(), strict=True)}) == len(set(found.tolist()))


def test_the_digest_of_a_part_tells_its_tuning_nodes() -> None:
    whole = node_data(classes=6)
    options = {"per_class": 6, "test_per_class": 5}
    first, second, *_ = share(whole, "new_label_domain", 8, **options)[1]
    assert first.tune is not None
    moved = first.__class__(**{**vars(first), "tune": second.tune})
    assert digest_of(first) != digest_of(moved)
    assert digest_of(first) == digest_of(first.__class__(**vars(first)))


@pytest.mark.parametrize(
    ("name", "options", "match"),
    [
        ("few_shot_shared_graph", {**FEW, "per_class": 200}, "too few labelled"),
        ("few_shot_shared_graph", {**FEW, "per_class": 0}, "1 or more"),
        ("few_shot_overlap", {**FEW, "overlap": 1.0}, "overlap"),
        ("new_label_domain", {"new_classes": 4}, "new_classes"),
        ("new_label_domain", {"per_class": 1}, "per_class"),
        ("new_label_domain", {"test_per_class": 200}, "too few nodes"),
    ],
)
def test_what_the_graph_cannot_give_is_refused(name: str, options: dict, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        share(node_data(), name, 4, **options)


def test_a_client_without_a_label_is_refused() -> None:
    with pytest.raises(ValueError, match="too few for"):
        share(node_data(), "few_shot_shared_graph", 61, **FEW)
    with pytest.raises(ValueError, match="holds no training node"):
        share(node_data(), "few_shot_overlap", 60, overlap=0.0, **FEW)
