"""Node classification: same bits for the same inputs, no global randomness, mute errors."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from algorithms import nn
from algorithms.tasks import DataSpec, Site
from algorithms.tasks.inputs import NodeData
from algorithms.tasks.node import NodeTask

SPEC = DataSpec("node", features=20, classes=3, records=64, clients=3, synthetic=True, name="toy")
MODELS = nn.model_names("node")


def toy(seed=0, nodes=120, *, dense=False, labelled=True):
    """Three clusters whose edges and features both follow the class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(3, size=nodes)
    near = rng.random((nodes, nodes)) < np.where(y[:, None] == y, 0.1, 0.005)
    edges = np.stack(np.nonzero(np.triu(near, k=1))).astype(np.int64)
    chance = 0.1 + 0.4 * (np.arange(20) % 3 == y[:, None])
    x = sp.csr_array((rng.random((nodes, 20)) < chance) * 1.0)
    role = rng.random(nodes) if labelled else np.ones(nodes)
    return SimpleNamespace(
        edges=edges,
        x=x.toarray() if dense else x,
        y=y,
        train=role < 0.4,
        val=(role >= 0.4) & (role < 0.6),
        test=(role >= 0.6) & (role < 1.0),
    )


def site_of(graph, seed=1):
    return Site(NodeData.from_graph(graph), seed=seed)


def fitted(task=None, *, seed=1, epochs=5, graph=None):
    task = task or NodeTask(SPEC, hidden=16)
    start = task.initial(np.random.default_rng(0))
    return task.fit(start, site_of(graph or toy(), seed), epochs=epochs)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dense", [False, True])
def test_it_learns(model, dense):
    task = NodeTask(SPEC, model=model, hidden=16, lr=0.05)
    site = site_of(toy(dense=dense))
    start = task.initial(np.random.default_rng(0))
    weights = task.fit(start, site, epochs=60)
    before = task.score(task.predict(start, site), site)
    after = task.score(task.predict(weights, site), site)
    assert after.test_correct / after.test_count > 0.85
    assert after.test_correct > before.test_correct


@pytest.mark.parametrize("model", MODELS)
def test_the_same_inputs_give_the_same_bits(model):
    task = NodeTask(SPEC, model=model, hidden=16)
    assert fitted(task).tobytes() == fitted(task).tobytes()
    again = NodeTask(SPEC, model=model, hidden=16)
    assert fitted(again).tobytes() == fitted(task).tobytes()


def test_another_site_seed_gives_another_dropout():
    assert fitted(seed=1).tobytes() != fitted(seed=2).tobytes()


def test_each_round_draws_its_own_dropout():
    task, site = NodeTask(SPEC, hidden=16), site_of(toy())
    start = task.initial(np.random.default_rng(0))
    first, second = (task.fit(start, site, epochs=2) for _ in range(2))
    assert first.tobytes() != second.tobytes()


def test_global_seeds_change_nothing_and_are_not_touched():
    runs = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        runs.append(fitted().tobytes())
        assert torch.equal(torch.get_rng_state(), state)
    assert runs[0] == runs[1]


def test_sites_may_train_in_parallel_with_one_task():
    task = NodeTask(SPEC, hidden=16)
    alone = [fitted(task, seed=seed).tobytes() for seed in range(4)]
    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(lambda seed: fitted(task, seed=seed).tobytes(), range(4)))
    assert together == alone


def test_weights_are_flat_float32_and_left_alone():
    task, site = NodeTask(SPEC, hidden=16), site_of(toy())
    start = task.initial(np.random.default_rng(0))
    assert (start.shape, start.dtype) == ((task.size,), np.float32)
    assert task.size == 20 * 16 + 16 + 16 * 3 + 3
    kept = start.copy()
    start.flags.writeable = False
    result = task.fit(start, site, epochs=3)
    assert (result.shape, result.dtype) == (start.shape, np.float32)
    np.testing.assert_array_equal(start, kept)
    assert np.abs(result - start).max() > 1e-3


def test_initial_weights_follow_glorot():
    task = NodeTask(SPEC, hidden=16)
    start = task.initial(np.random.default_rng(0))
    first, bias = start[: 20 * 16], start[20 * 16 : 20 * 16 + 16]
    bound = np.sqrt(6 / 36)
    assert 0.95 * bound < np.abs(first).max() <= bound
    assert not bias.any()
    np.testing.assert_array_equal(start, task.initial(np.random.default_rng(0)))
    assert start.tobytes() != task.initial(np.random.default_rng(1)).tobytes()


def test_zero_epochs_or_no_training_records_return_the_weights():
    task = NodeTask(SPEC, hidden=16)
    start = task.initial(np.random.default_rng(0))
    idle = site_of(toy(labelled=False))
    assert idle.count == 0
    result = task.fit(start, idle, epochs=5)
    np.testing.assert_array_equal(result, start)
    assert result is not start
    np.testing.assert_array_equal(task.fit(start, site_of(toy()), epochs=0), start)


def test_a_site_without_training_records_can_still_be_scored():
    task = NodeTask(SPEC, hidden=16)
    idle = site_of(toy(labelled=False))
    predictions = task.predict(task.initial(np.random.default_rng(0)), idle)
    score = task.score(predictions, idle)
    assert (score.test_correct, score.test_count, score.test_clients) == (0, 0, 0)


def test_predictions_are_probabilities_and_repeatable():
    task, site = NodeTask(SPEC, hidden=16), site_of(toy())
    weights = task.initial(np.random.default_rng(0))
    predictions = task.predict(weights, site)
    assert (predictions.shape, predictions.dtype) == ((120, 3), np.float32)
    np.testing.assert_allclose(predictions.sum(axis=1), 1.0, atol=1e-6)
    assert predictions.min() >= 0.0
    assert task.predict(weights, site).tobytes() == predictions.tobytes()
    assert "fit" not in site.draws


def test_score_counts_validation_and_test_nodes():
    graph = toy()
    task, site = NodeTask(SPEC), site_of(graph)
    perfect = np.eye(3, dtype=np.float32)[graph.y]
    wrong = np.eye(3, dtype=np.float32)[(graph.y + 1) % 3]
    val, test = int(graph.val.sum()), int(graph.test.sum())
    score = task.score(perfect, site)
    assert (score.val_correct, score.val_count) == (val, val)
    assert (score.test_correct, score.test_count) == (test, test)
    none = task.score(wrong, site)
    assert (none.val_correct, none.test_correct, none.test_count) == (0, 0, test)
    half = perfect.copy()
    spoilt = np.flatnonzero(graph.test)[:5]
    half[spoilt] = wrong[spoilt]
    assert task.score(half, site).test_correct == test - 5
    assert task.score(half, site).val_correct == val
    assert isinstance(score, task.scoring.kind)


def test_only_training_labels_matter():
    """Changing every label outside the training mask leaves the fitted weights as they were."""
    graph = toy()
    altered = SimpleNamespace(**vars(graph))
    altered.y = np.where(graph.train, graph.y, (graph.y + 1) % 3)
    assert fitted(graph=altered).tobytes() == fitted(graph=graph).tobytes()
    spoilt = SimpleNamespace(**vars(graph))
    spoilt.y = np.where(graph.train, (graph.y + 1) % 3, graph.y)
    assert fitted(graph=spoilt).tobytes() != fitted(graph=graph).tobytes()


def test_divergence_is_an_error_not_a_nan():
    task = NodeTask(SPEC, hidden=16, lr=1e20)
    with pytest.raises(FloatingPointError, match=r"lower model\.lr"):
        fitted(task, epochs=20)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"hidden": 0}, "out of range"),
        ({"layers": 0}, "out of range"),
        ({"dropout": 1.0}, "out of range"),
        ({"lr": 0.0}, "out of range"),
        ({"weight_decay": -1.0}, "out of range"),
        ({"batch": 0}, "out of range"),
        ({"optimiser": "adagrad"}, "no optimiser"),
        ({"model": "gcnn"}, "did you mean 'gcn'"),
        ({"model": "gin"}, "is for graph tasks"),
    ],
)
def test_options_out_of_range_are_refused(options, match):
    with pytest.raises(ValueError, match=match):
        NodeTask(SPEC, **options)


def test_another_kind_of_task_is_refused():
    with pytest.raises(ValueError, match="needs a node task"):
        NodeTask(dataclasses.replace(SPEC, task="graph"))


def test_weights_of_another_model_are_refused():
    task, site = NodeTask(SPEC, hidden=16), site_of(toy())
    for weights in (np.zeros(7, np.float32), np.zeros(task.size, np.float64)):
        with pytest.raises(ValueError, match="same model options"):
            task.fit(weights, site, epochs=1)
        with pytest.raises(ValueError, match="same model options"):
            task.predict(weights, site)


def test_negative_epochs_and_pull_are_refused():
    task, site = NodeTask(SPEC, hidden=16), site_of(toy())
    start = task.initial(np.random.default_rng(0))
    with pytest.raises(ValueError, match="epochs"):
        task.fit(start, site, epochs=-1)
    with pytest.raises(ValueError, match="pull"):
        task.fit(start, site, epochs=1, pull=-0.1)


@pytest.mark.parametrize("shape", [(119, 3), (120, 2), (120,)])
def test_predictions_of_another_shape_are_not_scored(shape):
    task, site = NodeTask(SPEC, hidden=16), site_of(toy())
    with pytest.raises(ValueError, match="one row a node"):
        task.score(np.zeros(shape, np.float32), site)


SENTINEL = 424_242


def broken(**changes):
    graph = toy()
    for name, change in changes.items():
        setattr(graph, name, change(getattr(graph, name)))
    return graph


def _first(value):
    def change(array):
        array = array.copy()
        array[0] = value
        return array

    return change


@pytest.mark.parametrize(
    "graph",
    [
        broken(edges=lambda e: np.where(e == e.max(), SENTINEL, e)),
        broken(edges=lambda e: e.T),
        broken(y=lambda y: np.append(y, SENTINEL)),
        broken(train=lambda m: ~m),
        broken(y=_first(-1), train=_first(True), val=_first(False), test=_first(False)),
        broken(x=lambda x: x * np.nan),
    ],
    ids=["edge", "shape", "length", "overlap", "unlabelled", "nan"],
)
def test_a_broken_graph_is_refused_without_a_word_of_its_content(graph):
    with pytest.raises(ValueError, match=r"\w{4}") as refused:
        NodeData.from_graph(graph)
    assert str(SENTINEL) not in str(refused.value)


def test_labels_and_features_that_do_not_fit_the_model_are_refused_mutely():
    task = NodeTask(SPEC, hidden=16)
    start = task.initial(np.random.default_rng(0))
    with pytest.raises(ValueError, match="label outside") as refused:
        task.fit(start, site_of(broken(y=_first(SENTINEL))), epochs=1)
    assert str(SENTINEL) not in str(refused.value)
    with pytest.raises(ValueError, match="feature columns"):
        task.fit(start, site_of(broken(x=lambda x: x[:, :19])), epochs=1)


def test_node_data_is_a_copy_with_a_mute_representation():
    graph = toy(dense=True)
    data = NodeData.from_graph(graph)
    graph.x[:] = 7
    graph.y[:] = 0
    assert data.x.max() <= 1
    assert data.y.max() == 2
    assert repr(data) == "<NodeData>"


@pytest.mark.parametrize("field", ["features", "classes", "records", "clients"])
def test_a_spec_has_positive_sizes(field):
    with pytest.raises(ValueError, match=field):
        dataclasses.replace(SPEC, **{field: 0})


def test_a_spec_does_not_tell_the_exact_number_of_records():
    with pytest.raises(ValueError, match="power of two"):
        dataclasses.replace(SPEC, records=65)
