"""GraphFL, Algorithm 2: a look ahead, its second derivatives, tuning to new classes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from algorithms.graph_fl_domain import graph_fl_domain
from algorithms.nn._shared.sparse import Sparse
from algorithms.tasks import FewShotTask, Labelled
from algorithms.tasks.ego import EgoTask
from algorithms.tasks.inputs import near
from protocols.messages import Message
from protocols.wire.roster import weights_digest
from tests.algorithms.test_graph_fl import driven, node_task
from tests.toys.kinds import sites_of, task_of
from tests.toys.stage import play


def drawn(task: Any) -> Any:
    return task.initial(np.random.default_rng(2)) + np.float32(0.01)


# --- derivatives ----------------------------------------------------------------------------------


def test_node_tasks_alone_take_single_labels() -> None:
    found = {kind: isinstance(task_of(kind), FewShotTask) for kind in ("node", "graph", "rating")}
    assert found == {"node": True, "graph": False, "rating": False}


@pytest.mark.parametrize("model", ["gcn", "sgc", "graph_sage", "gcn_linear"])
def test_a_few_nodes_have_the_gradient_that_they_have_on_the_whole_graph(model: str) -> None:
    from algorithms.tasks import Batch

    task, (site, *_) = node_task(model=model), sites_of("node")
    weights, own = drawn(task), task.labelled(site)
    few = Labelled(own.records[3:6], own.labels[3:6])
    whole = task.gradient(weights, site, Batch(few.records, seed=0))
    np.testing.assert_allclose(task.slope_of(weights, site, few, 0), whole, atol=1e-6)
    kind, hops = task._file.PROPAGATION, 2
    part = near(site.data, few.records, kind, hops=hops, linear=False)
    nodes = part.x.shape[0] if isinstance(part.x, torch.Tensor) else len(part.x.matrix)
    assert 3 <= nodes <= site.data.nodes
    assert near(site.data, few.records, kind, hops=hops, linear=False) is part  # made once


@pytest.mark.parametrize("model", ["ego_sage", "ego_mlp"])
def test_of_a_few_nodes_models_of_ego_graphs_read_all_neighbours(model: str) -> None:
    task = EgoTask(node_task().spec, model=model, hidden=6, dropout=0.0)
    (site, *_) = sites_of("node")
    weights, own = drawn(task), task.labelled(site)
    few = Labelled(own.records[3:6], own.labels[3:6])
    module = task._load(weights, site)
    logits = task._on_graph(module, site.data, few.records, torch.Generator(), True)
    loss = torch.nn.functional.cross_entropy(logits, torch.from_numpy(few.labels))
    parts = torch.autograd.grad(loss, list(module.parameters()))
    whole = torch.cat([part.reshape(-1) for part in parts]).numpy()
    np.testing.assert_allclose(task.slope_of(weights, site, few, 0), whole, atol=1e-6)
    assert np.abs(whole).max() > 1e-3


@pytest.mark.parametrize("model", ["gcn", "sgc"])
@pytest.mark.parametrize("sparse", [False, True])
def test_the_hessian_times_a_vector_is_the_slope_of_the_gradient(model: str, sparse: bool) -> None:
    task, (site, *_) = node_task(model=model, dropout=0.5), sites_of("node")
    if sparse:
        import scipy.sparse as sp

        x = Sparse.of(sp.csr_array(site.data.x.numpy()))
        site.data = replace(site.data, x=x, kept={}, _propagation={})
    weights, of = drawn(task), task.labelled(site)
    along = np.random.default_rng(5).choice([-1.0, 1.0], size=task.size).astype(np.float32)
    found = task.curved(weights, along, site, of, 4)
    step = np.float32(2e-3)
    ends = (task.slope_of(weights + way * step * along, site, of, 4) for way in (1, -1))
    up, down = (end.astype(np.float64) for end in ends)
    np.testing.assert_allclose(found, (up - down) / (2 * step), atol=2e-3, rtol=0.02)
    assert np.abs(found).max() > 0.02


def test_nobody_labelled_has_no_slope() -> None:
    task, (site, *_) = node_task(), sites_of("node")
    none = Labelled(np.zeros(0, np.int64), np.zeros(0, np.int64))
    assert not task.slope_of(drawn(task), site, none, 0).any()


# --- the algorithm --------------------------------------------------------------------------------


def step_of(hessian: bool, ahead: float = -1.0) -> tuple[Any, Any, Any]:
    """Return one client's change after one step, and what it should be along whole derivatives."""
    task, (site, *_) = node_task(), sites_of("node")
    algorithm = graph_fl_domain(task, epochs=1, meta_lr=0.5, hessian=hessian, ahead=ahead)
    start = algorithm.init(np.random.default_rng(0))
    said: Any = algorithm.forms[0].exchanges[0].answer(site, start)
    support, query = (Labelled(*site.memory[part]) for part in ("support", "query"))
    w, lr = start.weights, np.float32(task.lr if ahead < 0 else ahead)
    there = w - lr * task.slope_of(w, site, support, 0)
    slope = task.slope_of(there, site, query, 0)
    first = -0.5 * slope
    whole = -0.5 * (slope - lr * task.curved(w, slope, site, support, 0))
    return said.delta, first, whole


def test_a_step_has_the_hessian_term_where_it_is_asked_for() -> None:
    delta, first, whole = step_of(hessian=True, ahead=1.0)
    np.testing.assert_allclose(delta, whole, atol=1e-6)
    assert np.abs(whole - first).max() > 1e-3
    delta, first, _ = step_of(hessian=False, ahead=1.0)
    np.testing.assert_allclose(delta, first, atol=1e-6)


def test_later_steps_go_on_from_the_updated_model() -> None:
    task = node_task()
    start = graph_fl_domain(task).init(np.random.default_rng(0))
    (one, *_), (two, *_) = sites_of("node"), sites_of("node")
    once = graph_fl_domain(task, epochs=1).forms[0].exchanges[0].answer
    twice = graph_fl_domain(task, epochs=2).forms[0].exchanges[0].answer
    first: Any = once(one, start)
    at = replace(start, weights=(start.weights + first.delta).astype(np.float32))
    second: Any = once(one, at)
    both: Any = twice(two, start)
    np.testing.assert_allclose(both.delta, first.delta + second.delta, atol=1e-6)


def test_a_model_is_tuned_to_the_labels_of_new_classes_before_it_predicts() -> None:
    task, (site, *_) = node_task(), sites_of("node")
    algorithm = graph_fl_domain(task, tune_steps=3)
    start = algorithm.init(np.random.default_rng(0))
    tune = site.data.val & (torch.arange(site.data.nodes) % 2 == 0)
    site.data = replace(site.data, tune=tune, val=site.data.val & ~tune, kept={})
    few = task.tuning(site)
    assert few.records.tolist() == np.flatnonzero(tune.numpy()).tolist()
    own = start.weights
    for _ in range(3):
        own = own - np.float32(task.lr) * task.slope_of(own, site, few, 0)
    found = algorithm.model(site, start).shared
    np.testing.assert_allclose(found, own, atol=1e-6)
    assert not set(few.records) & set(task.unlabelled(site)) and len(few.records)


def test_it_runs_protected_and_ends_as_in_clear() -> None:
    task = node_task(dropout=0.5)
    digests = set()
    for policy in ("masks", "unsafe_plaintext"):
        played = play(graph_fl_domain(task, epochs=2), sites_of("node"), policy, rounds=2)
        assert isinstance(played.state, Message)
        digests.add(weights_digest({"weights": played.state.weights}))  # type: ignore[attr-defined]
    assert len(digests) == 1


def test_without_a_look_ahead_it_is_gradient_descent_on_the_query_half() -> None:
    task = node_task()
    sites = sites_of("node")
    found = driven(graph_fl_domain(task, epochs=1, ahead=0.0, meta_lr=0.3), sites, 1)
    start = task.initial(np.random.default_rng(0))
    slopes = [task.slope_of(start, site, Labelled(*site.memory["query"]), 0) for site in sites]
    np.testing.assert_allclose(found.weights, start - 0.3 * np.mean(slopes, axis=0), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "match"), [({"query": 0.0}, "query"), ({"meta_lr": 0.0}, "meta_lr")]
)
def test_options_without_a_meaning_are_refused(options: dict[str, Any], match: str) -> None:
    with pytest.raises(ValueError, match=match):
        graph_fl_domain(node_task(), **options)
