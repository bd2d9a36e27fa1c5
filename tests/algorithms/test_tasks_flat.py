"""What every task does alike: steps, batches, gradients (against differences of the loss) and pull.

The oracle is the loss, computed in float64 from what `predict` and `predict_mixed` return.
"""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp

from algorithms.tasks import Batch, DataSpec, Site
from algorithms.tasks.graph import GraphTask
from algorithms.tasks.inputs import GraphsData, NodeData
from algorithms.tasks.node import NodeTask

KINDS = ("node", "graph", "labels")
DECAY = 0.01


def edges_within(rng, sizes, chance):
    """Random edges that stay within runs of nodes."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    near = (rng.random((len(owner), len(owner))) < chance) & (owner[:, None] == owner)
    return np.stack(np.nonzero(np.triu(near, k=1))).astype(np.int64)


def node_part(rng):
    role = rng.random(40)
    return SimpleNamespace(
        edges=edges_within(rng, [40], 0.1),
        x=sp.csr_array((rng.random((40, 6)) < 0.4) * 1.0),
        y=rng.integers(3, size=40),
        train=role < 0.6,
        val=(role >= 0.6) & (role < 0.8),
        test=role >= 0.8,
    )


def graphs_part(rng, y):
    sizes = rng.integers(2, 9, size=len(y))
    role = rng.random(len(y))
    return SimpleNamespace(
        sizes=sizes,
        edges=edges_within(rng, sizes, 0.5),
        x=sp.csr_array((rng.random((sizes.sum(), 6)) < 0.4) * 1.0),
        y=y,
        train=role < 0.6,
        val=(role >= 0.6) & (role < 0.8),
        test=role >= 0.8,
    )


def made(kind, *, seed=0, part_seed=0, **options):
    """A small task of each kind, and a site of it."""
    rng = np.random.default_rng(part_seed)
    options = {"hidden": 5, "dropout": 0.0, "weight_decay": DECAY, **options}
    sizes = {"features": 6, "records": 64, "clients": 3, "synthetic": True, "name": "toy"}
    if kind == "node":
        task = NodeTask(DataSpec("node", classes=3, **sizes), **options)
        return task, Site(NodeData.from_graph(node_part(rng)), seed=seed)
    if kind == "graph":
        task = GraphTask(DataSpec("graph", classes=3, **sizes), **options)
        part = graphs_part(rng, rng.integers(3, size=30))
        return task, Site(GraphsData.from_graphs(part), seed=seed)
    y = (rng.random((30, 2)) < 0.5).astype(np.float32)
    y[rng.random(y.shape) < 0.3] = np.nan
    task = GraphTask(DataSpec("graph", classes=2, multilabel=True, **sizes), **options)
    return task, Site(GraphsData.from_graphs(graphs_part(rng, y)), seed=seed)


def loss(predictions, site, records):
    """Mean loss of some records, from predictions."""
    y, p = site.data.y.numpy()[records], predictions[records].astype(np.float64)
    if y.ndim == 1:
        return -np.log(p[np.arange(len(y)), y]).mean()
    known = ~np.isnan(y)
    return -np.where(y == 1, np.log(p), np.log1p(-p))[known].mean()


def drawn(task, seed=2):
    """Weights near which no ReLU switches, so that differences are slopes."""
    return task.initial(np.random.default_rng(seed)) + np.float32(0.01)


def batch_of(site, most=7):
    return Batch(np.flatnonzero(site.data.train.numpy())[:most], seed=3)


def slopes(function, at, directions, step=2e-4):
    """Central differences of a function of weights along some directions."""
    return [
        (function(at + np.float32(step) * u) - function(at - np.float32(step) * u)) / (2 * step)
        for u in directions
    ]


def ways(size, count=12):
    return np.random.default_rng(9).choice([-1.0, 1.0], size=(count, size)).astype(np.float32)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_the_slope_of_the_loss(kind):
    task, site = made(kind)
    weights, batch = drawn(task), batch_of(site)

    def objective(w):
        decay = DECAY / 2 * float(np.square(w.astype(np.float64)).sum())
        return loss(task.predict(w, site), site, batch.records) + decay

    gradient = task.gradient(weights, site, batch)
    assert (gradient.shape, gradient.dtype) == ((task.size,), np.float32)
    expected = slopes(objective, weights, ways(task.size))
    np.testing.assert_allclose(ways(task.size) @ gradient, expected, rtol=0.002, atol=0.001)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
def test_mixed_gradients_are_the_slopes_of_the_mixture(kind, alpha):
    task, site = made(kind)
    own, common, batch = drawn(task, 1), drawn(task, 2), batch_of(site)

    def mixture(v, w, a):
        return loss(task.predict_mixed(v, w, a, site), site, batch.records)

    found = task.mixed(own, common, alpha, site, batch)
    turns = ways(task.size)
    close = {"rtol": 0.002, "atol": 0.001}
    personal = slopes(lambda v: mixture(v, common, alpha), own, turns)
    np.testing.assert_allclose(
        turns @ (found.personal - np.float32(DECAY) * own), personal, **close
    )
    shared = slopes(lambda w: mixture(own, w, alpha), common, turns)
    np.testing.assert_allclose(turns @ (found.shared - np.float32(DECAY) * common), shared, **close)
    step = 1e-3
    slope = (mixture(own, common, alpha + step) - mixture(own, common, alpha - step)) / (2 * step)
    assert found.alpha == pytest.approx(slope, rel=2e-3, abs=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_equal_models_draw_alike_and_leave_nothing_to_mix(kind):
    """One dropout mask for both: else the outputs differ, and with them the slope in alpha."""
    task, site = made(kind, dropout=0.5, weight_decay=0.0)
    weights, batch = drawn(task), batch_of(site)
    found = task.mixed(weights, weights, 0.25, site, batch)
    alone = task.gradient(weights, site, batch)
    assert found.alpha == 0.0
    np.testing.assert_allclose(found.personal, 0.25 * alone, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found.shared, 0.75 * alone, rtol=1e-4, atol=1e-6)
    other = Batch(batch.records, seed=batch.seed + 1)
    assert task.gradient(weights, site, other).tobytes() != alone.tobytes()
    assert task.gradient(weights, site, batch).tobytes() == alone.tobytes()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_a_mixture_of_one_model_predicts_like_it(kind, alpha):
    task, site = made(kind)
    own, common = drawn(task, 1), drawn(task, 2)
    mixed = task.predict_mixed(own, common, alpha, site)
    np.testing.assert_array_equal(mixed, task.predict(own if alpha else common, site))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [4, None])
def test_fit_by_sgd_is_the_loop_of_gradient_steps(kind, size):
    options = {"optimiser": "sgd", "batch": size, "lr": 0.05}
    (task, site), (_, twin) = made(kind, **options), made(kind, **options)
    weights = start = drawn(task)
    steps = 3 * (-(-site.count // size) if size else 1)
    for batch in itertools.islice(task.batches(twin), steps):
        weights = weights - np.float32(task.lr) * task.gradient(weights, twin, batch)
    fitted = task.fit(start, site, epochs=3)
    np.testing.assert_allclose(fitted, weights, atol=2e-6)
    assert np.abs(fitted - start).max() > 0.01


@pytest.mark.parametrize("kind", KINDS)
def test_a_pass_takes_every_training_record_once_and_each_pass_in_a_new_order(kind):
    task, site = made(kind, batch=4)
    steps = -(-site.count // 4)
    taken = list(itertools.islice(task.batches(site), 2 * steps))
    first, second = (
        np.concatenate([batch.records for batch in part]) for part in (taken[:steps], taken[steps:])
    )
    training = np.flatnonzero(site.data.train.numpy())
    assert site.count > 8
    np.testing.assert_array_equal(np.sort(first), training)
    np.testing.assert_array_equal(np.sort(second), training)
    assert first.tolist() != second.tolist()
    assert len({batch.seed for batch in taken}) == 2 * steps
    assert [len(batch.records) for batch in taken[: steps - 1]] == [4] * (steps - 1)


@pytest.mark.parametrize("kind", KINDS)
def test_without_a_batch_size_every_step_takes_all_in_order(kind):
    task, site = made(kind, batch=None)
    training = np.flatnonzero(site.data.train.numpy())
    for batch in itertools.islice(task.batches(site), 3):
        np.testing.assert_array_equal(batch.records, training)


def test_a_site_without_training_records_has_no_batches():
    task, site = made("node")
    site.data.train[:] = False
    assert list(task.batches(site)) == []


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_no_pull_is_the_same_to_the_bit_and_pull_holds_back(kind, optimiser):
    def fitted(**pull):
        task, site = made(kind, dropout=0.5, batch=4, optimiser=optimiser)
        return task.fit(drawn(task), site, epochs=4, **pull)

    start = drawn(made(kind)[0])
    free, held = fitted(), fitted(pull=5.0)
    assert fitted(pull=0.0).tobytes() == free.tobytes()
    assert np.linalg.norm(held - start) < 0.9 * np.linalg.norm(free - start)
    base = made(kind)[0].base
    if kind != "rating":
        half = fitted(pull=5.0, base_only=True)
        pulled, loose = (np.linalg.norm((w - start)[:base]) for w in (half, free))
        assert pulled < 0.9 * loose
        assert np.linalg.norm((half - start)[base:]) > np.linalg.norm((held - start)[base:])
    else:
        with pytest.raises(ValueError, match="all of its weights"):
            fitted(pull=5.0, base_only=True)


@pytest.mark.parametrize("kind", KINDS)
def test_kept_moments_make_two_fits_one_and_others_start_anew(kind):
    def fitted(*epochs, **options):
        task, site = made(kind, dropout=0.0, optimiser="adamw", batch=None, **options)
        weights = drawn(task)
        for number in epochs:
            weights = task.fit(weights, site, epochs=number)
        return weights, site.memory

    whole, memory = fitted(3, keep_moments=True)
    assert memory["moments"]
    assert fitted(1, 2, keep_moments=True)[0].tobytes() == whole.tobytes()
    assert fitted(3)[0].tobytes() == whole.tobytes()
    anew, memory = fitted(1, 2)
    assert "moments" not in memory
    assert anew.tobytes() != whole.tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_pull_adds_its_gradient(kind):
    """Two steps of FedProx by hand: the first starts at the anchor and is not pulled."""
    task, site = made(kind, optimiser="sgd", batch=None, lr=0.1)
    start, batch = drawn(task), next(task.batches(made(kind)[1]))
    once = start - np.float32(0.1) * task.gradient(start, site, batch)
    pulled = task.gradient(once, site, batch) + np.float32(0.7) * (once - start)
    fitted = task.fit(start, site, epochs=2, pull=0.7)
    np.testing.assert_allclose(fitted, once - np.float32(0.1) * pulled, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_the_weights_given_are_left_alone(kind):
    task, site = made(kind)
    own, common = drawn(task, 1), drawn(task, 2)
    kept = own.copy(), common.copy()
    own.flags.writeable = common.flags.writeable = False
    task.gradient(own, site, batch_of(site))
    task.mixed(own, common, 0.5, site, batch_of(site))
    task.predict_mixed(own, common, 0.5, site)
    np.testing.assert_array_equal(own, kept[0])
    np.testing.assert_array_equal(common, kept[1])


@pytest.mark.parametrize("kind", KINDS)
def test_base_and_head_make_the_whole(kind):
    """Changing the head's end of the vector must change the last layer and nothing below it."""
    task, site = made(kind)
    assert 0 < task.base < task.size
    weights = drawn(task)
    weights[task.base :] = 0.0
    flat = task.predict(weights, site)
    np.testing.assert_allclose(flat, flat[0, 0], atol=1e-7)


def test_gradients_of_other_weights_are_refused():
    task, site = made("node")
    short = np.zeros(3, np.float32)
    for call in (
        lambda: task.gradient(short, site, batch_of(site)),
        lambda: task.mixed(drawn(task), short, 0.5, site, batch_of(site)),
        lambda: task.predict_mixed(short, drawn(task), 0.5, site),
    ):
        with pytest.raises(ValueError, match="same model options"):
            call()
