"""Graph classification: one label or several with gaps, same bits, mute errors."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from algorithms.tasks import Batch
from algorithms.tasks import graph as module
from algorithms.tasks.graph import GraphTask
from algorithms.tasks.inputs import GraphsData
from algorithms.tasks.scores import RankScore, Score
from tests.algorithms.graph_tools import (
    BOTH,
    MODELS,
    SEVERAL,
    SPEC,
    fitted,
    site_of,
    start_of,
    toy,
    toy_of,
)


@BOTH
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dense", [False, True])
def test_it_learns(spec, name, dense):
    task = GraphTask(spec, model=name, hidden=16, lr=0.02, dropout=0.0, batch=16)
    site = site_of(toy_of(spec, count=300, dense=dense))
    weights = task.fit(start_of(task), site, epochs=40)
    headline = task.scoring.names[0]
    before, after = (
        task.scoring.read(task.score(task.predict(w, site), site))[headline]
        for w in (start_of(task), weights)
    )
    assert after > 0.8
    assert after > before + 0.1


@BOTH
@pytest.mark.parametrize("name", MODELS)
def test_the_same_inputs_give_the_same_bits(spec, name):
    assert fitted(spec, model=name).tobytes() == fitted(spec, model=name).tobytes()
    assert fitted(spec, model=name).tobytes() != fitted(spec, model=name, seed=2).tobytes()


def test_global_seeds_change_nothing_and_are_not_touched():
    runs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        runs.append(fitted().tobytes())
        assert torch.equal(torch.get_rng_state(), state)
    assert runs[0] == runs[1]


def test_sites_may_train_in_parallel_with_one_task():
    task = GraphTask(SPEC, hidden=8, batch=16)

    def run(seed):
        return task.fit(start_of(task), site_of(toy(seed=seed), seed), epochs=2).tobytes()

    alone = [run(seed) for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(run, range(4))) == alone


@BOTH
def test_predictions_are_probabilities_and_repeatable(spec):
    task, site = GraphTask(spec, hidden=8), site_of(toy_of(spec))
    predictions = task.predict(start_of(task), site)
    assert (predictions.shape, predictions.dtype) == ((120, 2), np.float32)
    assert predictions.min() >= 0.0
    assert predictions.max() <= 1.0
    sums = predictions.sum(axis=1)
    assert np.allclose(sums, 1.0, atol=1e-6) == (not spec.multilabel)
    assert task.predict(start_of(task), site).tobytes() == predictions.tobytes()
    assert "fit" not in site.draws


@BOTH
def test_predicting_in_parts_changes_nothing(spec, monkeypatch):
    task, site = GraphTask(spec, hidden=8), site_of(toy_of(spec))
    whole = task.predict(start_of(task), site)
    monkeypatch.setattr(module, "_AT_ONCE", 7)
    np.testing.assert_allclose(task.predict(start_of(task), site), whole, atol=1e-6)


def test_one_label_is_counted_right_or_wrong():
    graphs = toy()
    task, site = GraphTask(SPEC), site_of(graphs)
    score = task.score(np.eye(2, dtype=np.float32)[graphs.y], site)
    assert isinstance(score, Score)
    assert score.test_correct == score.test_count == graphs.test.sum()
    assert score.val_correct == score.val_count == graphs.val.sum()
    assert task.scoring.names[0] == "test_accuracy"
    wrong = task.score(np.eye(2, dtype=np.float32)[1 - graphs.y], site)
    assert (wrong.test_correct, wrong.val_correct) == (0, 0)


def test_several_labels_are_ranked():
    graphs = toy(several=True)
    task, site = GraphTask(SEVERAL), site_of(graphs)
    score = task.score(np.nan_to_num(graphs.y, nan=0.5).astype(np.float32), site)
    assert isinstance(score, RankScore)
    assert task.scoring.read(score)["test_roc_auc"] == 1.0
    known = ~np.isnan(graphs.y[graphs.test])
    counted = score.test_positive.sum(axis=1) + score.test_negative.sum(axis=1)
    assert counted.tolist() == known.sum(axis=0).tolist()
    assert task.scoring.dims == {"rank_labels": 2, "rank_bins": 500}


def test_one_yes_or_no_label_has_one_score():
    graphs = toy()
    graphs.y = graphs.y[:, None].astype(np.float32)
    task, site = GraphTask(dataclasses.replace(SEVERAL, classes=1), hidden=8), site_of(graphs)
    predictions = task.predict(start_of(task), site)
    assert predictions.shape == (120, 1)
    assert task.score(predictions, site).test_positive.shape == (1, 1000)


def whole_batch(site):
    return Batch(np.flatnonzero(site.data.train.numpy()), seed=0)


def test_a_missing_label_pulls_nowhere_and_weighs_nothing():
    """A graph without any label might as well not be there: the mean is over labels that are."""
    task, graphs = GraphTask(SEVERAL, hidden=8, dropout=0.0), toy(several=True)
    graphs.y[np.flatnonzero(graphs.train)[::2]] = np.nan
    site = site_of(graphs)
    labelled = np.flatnonzero(graphs.train & ~np.isnan(graphs.y).all(axis=1))
    assert len(labelled) < graphs.train.sum()
    weights = start_of(task)
    np.testing.assert_allclose(
        task.gradient(weights, site, whole_batch(site)),
        task.gradient(weights, site, Batch(labelled, seed=0)),
        atol=1e-6,
    )


def test_a_batch_without_any_label_costs_nothing():
    task, graphs = GraphTask(SEVERAL, hidden=8, weight_decay=0.0, optimiser="sgd"), toy(True)
    graphs.y[:] = np.nan
    site = site_of(graphs)
    assert site.count > 0
    assert not task.gradient(start_of(task), site, whole_batch(site)).any()
    np.testing.assert_array_equal(task.fit(start_of(task), site, epochs=2), start_of(task))
    score = task.score(task.predict(start_of(task), site), site)
    assert task.scoring.read(score)["test_roc_auc"] is None


@BOTH
def test_only_training_labels_matter(spec):
    graphs = toy_of(spec)
    for part, same in (("train", True), ("rest", False)):
        altered = SimpleNamespace(**vars(graphs))
        keep = graphs.train if part == "train" else ~graphs.train
        keep = keep[:, None] if spec.multilabel else keep
        altered.y = np.where(keep, graphs.y, 1 - graphs.y).astype(graphs.y.dtype)
        assert (
            fitted(spec, graphs=altered).tobytes() == fitted(spec, graphs=graphs).tobytes()
        ) == same


def test_only_training_graphs_matter():
    """Features of graphs outside the training mask leave the fitted weights as they were."""
    graphs = toy(dense=True)
    altered = SimpleNamespace(**vars(graphs))
    inside = np.repeat(graphs.train, graphs.sizes)[:, None]
    altered.x = np.where(inside, graphs.x, 1 - graphs.x)
    assert fitted(graphs=altered).tobytes() == fitted(graphs=graphs).tobytes()


def test_zero_epochs_or_no_training_records_return_the_weights():
    task, graphs = GraphTask(SPEC, hidden=8), toy()
    start = start_of(task)
    np.testing.assert_array_equal(task.fit(start, site_of(graphs), epochs=0), start)
    graphs.train[:] = False
    result = task.fit(start, site_of(graphs), epochs=3)
    np.testing.assert_array_equal(result, start)
    assert result is not start


@BOTH
def test_a_site_without_graphs_is_scored_as_nothing(spec):
    graphs = toy_of(spec)
    none = SimpleNamespace(
        sizes=graphs.sizes[:0],
        edges=graphs.edges[:, :0],
        x=graphs.x[:0],
        **{name: getattr(graphs, name)[:0] for name in ("y", "train", "val", "test")},
    )
    task, site = GraphTask(spec, hidden=8), site_of(none)
    predictions = task.predict(start_of(task), site)
    assert predictions.shape == (0, 2)
    score = task.score(predictions, site)
    assert (score.test_count, score.test_clients) == (0, 0)
    assert task.scoring.plausible(score, 1)


def test_the_latest_batch_is_kept_and_no_other_is_given_for_it():
    data = GraphsData.from_graphs(toy())
    first, second = np.array([3, 1, 2]), np.array([1, 2, 3])
    batch = data.cut(first, "sum")
    assert data.cut(first.copy(), "sum") is batch
    assert data.cut(first, "symmetric") is not batch
    assert data.cut(second, "sum").sizes.tolist() == data.sizes[second].tolist()
    assert data.cut(first, "sum").sizes.tolist() == data.sizes[first].tolist()


def test_divergence_is_an_error_not_a_nan():
    with pytest.raises(FloatingPointError, match=r"lower model\.lr"):
        fitted(lr=1e20, epochs=20)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"hidden": 0}, "out of range"),
        ({"layers": 0}, "out of range"),
        ({"dropout": 1.0}, "out of range"),
        ({"lr": 0.0}, "out of range"),
        ({"weight_decay": -1.0}, "out of range"),
        ({"batch": 0}, "out of range"),
        ({"model": "gcn"}, "is for node tasks"),
        ({"model": "gim"}, "did you mean 'gin'"),
    ],
)
def test_options_out_of_range_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        GraphTask(SPEC, **options)


def test_another_kind_of_task_is_refused():
    with pytest.raises(ValueError, match="needs a graph task"):
        GraphTask(dataclasses.replace(SPEC, task="node"))


@BOTH
@pytest.mark.parametrize("shape", [(119, 2), (120, 3), (120,)])
def test_predictions_of_another_shape_are_not_scored(spec, shape):
    with pytest.raises(ValueError, match="one row a graph"):
        GraphTask(spec).score(np.zeros(shape, np.float32), site_of(toy_of(spec)))


def test_gin_ranks_the_real_mutag(data_root):
    from secure_fgl.data.sources import tu_npz

    whole = tu_npz.load("mutag", data_root, {})
    role = np.random.default_rng(0).random(len(whole.sizes))
    y = whole.y.astype(np.float32)[:, None]
    graphs = SimpleNamespace(
        sizes=whole.sizes,
        edges=whole.edges,
        x=whole.x,
        y=y,
        train=role < 0.6,
        val=(role >= 0.6) & (role < 0.7),
        test=role >= 0.7,
    )
    spec = dataclasses.replace(SEVERAL, features=whole.x.shape[1], classes=1, records=256)
    task, site = GraphTask(spec, hidden=32), site_of(graphs)
    weights = task.fit(start_of(task), site, epochs=20)
    score = task.score(task.predict(weights, site), site)
    assert task.scoring.read(score)["test_roc_auc"] > 0.8
