"""The generated banks: labelled synthetic, repeatable, and a task on which federation pays."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from algorithms.tasks import Site
from algorithms.tasks.inputs import NodeData
from algorithms.tasks.node import NodeTask
from secure_fgl.data import partition, read_dataset, spec_of, split_masks


@pytest.fixture(scope="module")
def banks():
    return read_dataset("synthetic_banks")


def test_it_says_that_it_is_synthetic(banks):
    assert banks.synthetic
    assert "synthetic" in banks.name
    assert spec_of("synthetic_banks", clients=5).synthetic


def test_shape_agrees_with_the_spec(banks):
    spec = spec_of("synthetic_banks", clients=5)
    assert banks.x.shape == (2500, spec.features) == (2500, 40)
    assert set(np.unique(banks.y)) == {0, 1}
    assert spec.classes == banks.classes == 2
    assert np.bincount(banks.owner).tolist() == [500] * 5
    assert 0.3 < banks.y.mean() < 0.5  # neither class is rare


def test_each_transaction_joins_its_sender_and_its_receiver(banks):
    assert (banks.edges[0] < 900).all()  # customers come first
    assert (banks.edges[1] >= 900).all()
    assert np.bincount(banks.edges[1])[900:].tolist() == [2] * 1600  # two different ends
    senders = banks.owner[banks.edges[0]] == banks.owner[banks.edges[1]]
    held = np.bincount(banks.edges[1], weights=senders)[900:]
    assert (held >= 1).all()  # the sender's bank holds the transaction
    assert 0.1 < (held == 1).mean() < 0.4  # and some receivers bank elsewhere


def test_neighbours_agree_more_than_chance(banks):
    same = (banks.y[banks.edges[0]] == banks.y[banks.edges[1]]).mean()
    assert same > 0.8  # chance: about 0.52


def test_the_same_options_give_the_same_bits(banks):
    again, other = read_dataset("synthetic_banks"), read_dataset("synthetic_banks", seed=8)
    for field in ("x", "y", "edges", "owner"):
        assert getattr(again, field).tobytes() == getattr(banks, field).tobytes()
    assert other.x.tobytes() != banks.x.tobytes()


def test_the_size_is_an_option():
    shape = {"banks": 3, "customers": 10, "transactions": 20}
    graph = read_dataset("synthetic_banks", **shape)
    assert np.bincount(graph.owner).tolist() == [30, 30, 30]
    assert spec_of("synthetic_banks", clients=3, options=shape).records == 32  # 18 rounded up


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"bank": 3}, "did you mean 'banks'"),
        ({"banks": 1}, "banks must be"),
        ({"customers": 2.5}, "customers must be"),
        ({"seed": -1}, "seed must be"),
        ({"seed": True}, "seed must be"),
    ],
)
def test_bad_options_are_refused_with_and_without_data(options, match):
    with pytest.raises(ValueError, match=match):
        read_dataset("synthetic_banks", **options)
    with pytest.raises(ValueError, match=match):
        spec_of("synthetic_banks", clients=5, options=options)


def _sites(graphs, *, edges=True):
    kept = [g if edges else dataclasses.replace(g, edges=g.edges[:, :0]) for g in graphs]
    return [Site(NodeData.from_graph(graph), seed=number) for number, graph in enumerate(kept)]


def _accuracy(task, pairs):
    scores = [task.score(task.predict(weights, site), site) for weights, site in pairs]
    return sum(score.test_correct for score in scores) / sum(score.test_count for score in scores)


def _averaged(task, sites, rounds=30, epochs=3):
    """Plain FedAvg, without any protection: the reference for what federation is worth here."""
    weights = task.initial(np.random.default_rng(0))
    total = sum(site.count for site in sites)
    for _ in range(rounds):
        fits = [site.count / total * task.fit(weights, site, epochs=epochs) for site in sites]
        weights = np.sum(fits, axis=0).astype(np.float32)
    return weights


def test_edges_help_and_federation_helps(banks):
    rng = np.random.default_rng(1)
    graphs = partition(banks, "by_owner", 5, split_masks(banks, rng=rng), rng)
    task = NodeTask(spec_of("synthetic_banks", clients=5), hidden=32)
    sites, without_edges = _sites(graphs), _sites(graphs, edges=False)
    start = task.initial(np.random.default_rng(0))
    alone = _accuracy(task, [(task.fit(start, site, epochs=90), site) for site in _sites(graphs)])
    weights, flat = _averaged(task, sites), _averaged(task, without_edges)
    together = _accuracy(task, [(weights, site) for site in sites])
    features_only = _accuracy(task, [(flat, site) for site in without_edges])
    majority = max(banks.y.mean(), 1 - banks.y.mean())
    assert together > alone + 0.015
    assert together > features_only + 0.08
    assert alone > majority + 0.1
