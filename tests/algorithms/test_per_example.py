"""Gradients graph by graph, and training with them: exact, bounded, and free of seeds."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from algorithms.nn import model, model_names
from algorithms.nn._shared import graphs as batches
from algorithms.nn._shared.graphs import PerGraph
from algorithms.tasks import Batch, DataSpec, Site, UnsupportedTraining
from algorithms.tasks.graph import GraphTask
from algorithms.tasks.inputs import GraphsData
from algorithms.tasks.node import NodeTask
from protocols.errors import NotInPlan
from protocols.policy.budget import Budget
from protocols.privacy.noising import PrivateSteps
from protocols.privacy.training import LEVELS, Training, plan_training

FEATURES = 6
MODELS = model_names("graph")


def graphs(sizes: list[int], *, labels: int = 0, seed: int = 0, train: bool = True) -> GraphsData:
    """Return trees with random features; `labels` yes-or-no questions, or three classes."""
    rng = np.random.default_rng(seed)
    starts = np.cumsum(sizes) - np.array(sizes, dtype=np.int64)
    pairs = [
        [start + rng.integers(0, node), start + node]
        for start, size in zip(starts, sizes, strict=True)
        for node in range(1, size)
    ]
    count = len(sizes)
    y = (
        rng.integers(0, 2, (count, labels)).astype(np.float32)
        if labels
        else rng.integers(0, 3, count)
    )
    part = SimpleNamespace(
        sizes=np.array(sizes, dtype=np.int64),
        edges=np.array(pairs, dtype=np.int64).reshape(-1, 2).T,
        x=rng.normal(size=(sum(sizes), FEATURES)).astype(np.float32),
        y=y,
        train=np.full(count, train),
        val=np.zeros(count, dtype=bool),
        test=np.zeros(count, dtype=bool),
    )
    return GraphsData.from_graphs(part)


def task(name: str = "gcn_readout", labels: int = 0, **changes: object) -> GraphTask:
    spec = DataSpec(
        task="graph", features=FEATURES, classes=labels or 3, records=64, clients=5,
        synthetic=True, name="toy", multilabel=bool(labels),
    )  # fmt: skip
    facts = {"hidden": 8, "dropout": 0.0, "weight_decay": 0.0, "lr": 0.1, "optimiser": "sgd"}
    return GraphTask(spec, model=name, **{**facts, **changes})  # type: ignore[arg-type]


def steps(rounds: int = 1, **changes: object) -> PrivateSteps:
    facts = {
        "rate": 1.0, "batch": 1.0, "steps": 1, "noise": 1.0, "clip": 1.0, "delta": 1e-5,
        "budget": Budget(epsilon=1e6, delta=1e-5),
    }  # fmt: skip
    made = PrivateSteps(plan_training(Training(**{**facts, **changes}), rounds))  # type: ignore[arg-type]
    made.open(1, 0)
    return made


def quiet(made: PrivateSteps, monkeypatch: pytest.MonkeyPatch) -> PrivateSteps:
    """Take the noise away, so that what is under it can be compared."""
    monkeypatch.setattr(made._noise, "sample", lambda _, size: np.zeros(size, dtype=np.int64))
    return made


def alone(of: GraphTask, weights: np.ndarray, data: GraphsData, record: int) -> np.ndarray:
    """The oracle: one graph, one backward pass."""
    site = Site(data, seed=0)
    return of.gradient(weights, site, Batch(np.array([record]), 0))


# --- one gradient a graph -------------------------------------------------------------------------


@pytest.mark.parametrize("labels", [0, 1, 4])
@pytest.mark.parametrize("name", MODELS)
def test_every_graph_has_the_gradient_that_it_has_alone(name: str, labels: int) -> None:
    data, of = graphs([5, 1, 9, 2, 5, 14], labels=labels), task(name, labels)
    weights = of.initial(np.random.default_rng(1))
    module = of._load(weights, Site(data, seed=0))
    records = np.array([4, 0, 1, 5])
    noised = of._noised(module, Site(data, seed=0, training=steps()))
    slopes = noised.slopes(noised.outputs(records), records)
    rows = np.stack(list(noised.back(records, slopes)))
    for row, record in zip(rows, records, strict=True):
        wanted = alone(of, weights, data, record)
        assert row == pytest.approx(wanted, abs=1e-5 * max(1.0, float(np.abs(wanted).max())))
    assert not np.allclose(rows[0], rows[1])


def test_groups_that_fit_into_memory_give_the_same_rows(monkeypatch) -> None:
    data, of = graphs([3, 8, 5, 8, 2, 7]), task()
    module = of._load(of.initial(np.random.default_rng(1)), Site(data, seed=0))
    each = PerGraph(module, FEATURES)
    cut = lambda g: data.cut(g, "symmetric")  # noqa: E731
    slopes = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    together = np.stack(list(each.rows(cut, np.arange(6), slopes)))
    sizes, inner = [], each._together
    monkeypatch.setattr(batches, "_ENTRIES", 2 * of.size)
    monkeypatch.setattr(each, "_together", lambda b, s: (sizes.append(len(b)), inner(b, s))[1])
    assert np.stack(list(each.rows(cut, np.arange(6), slopes))) == pytest.approx(together, abs=1e-6)
    assert sizes == [2, 2, 2]


def test_opacus_hooks_agree_on_a_model_that_they_support() -> None:
    """The engine against Opacus' own hooks, on a plain layer that both understand."""
    from opacus import GradSampleModule
    from opacus.grad_sample.functorch import ft_compute_per_sample_gradient

    layer, x = torch.nn.Linear(4, 3), torch.randn(5, 4)
    hooked = GradSampleModule(torch.nn.Linear(4, 3), loss_reduction="sum")
    hooked.load_state_dict({f"_module.{k}": v for k, v in layer.state_dict().items()})
    hooked(x).pow(2).sum().backward()
    found = ft_compute_per_sample_gradient(layer, [x], 2 * layer(x).detach())
    for mine, theirs in zip(layer.parameters(), hooked.parameters(), strict=True):
        assert torch.allclose(found[mine], theirs.grad_sample, atol=1e-5)


def test_a_model_with_batch_normalisation_is_refused() -> None:
    with pytest.raises(ValueError, match="batch normalisation"):
        PerGraph(torch.nn.Sequential(torch.nn.BatchNorm1d(3)), FEATURES)
    for name in MODELS:
        built = model(name, "graph").build(FEATURES, 3, 8, 2, 0.0)
        assert next(built.buffers(), None) is None


# --- training with them ---------------------------------------------------------------------------


def test_o17_without_clipping_and_noise_the_step_is_the_plain_one(monkeypatch) -> None:
    data, of = graphs([4, 7, 5, 3]), task()
    weights = of.initial(np.random.default_rng(1))
    site = Site(data, seed=0, training=quiet(steps(clip=1e3, batch=4.0), monkeypatch))
    plain = of.gradient(weights, Site(data, seed=0), Batch(np.arange(4), 0))
    found = of.gradient(weights, site, Batch(np.zeros(0, dtype=np.int64), 0))
    assert found == pytest.approx(plain, abs=4 * 1e3 / LEVELS / 4)
    assert np.linalg.norm(found) > 0


def test_o17_one_graph_moves_the_sum_by_at_most_the_clip_norm(monkeypatch) -> None:
    of, sizes = task("gin"), [4, 7, 5, 3, 30]
    weights = of.initial(np.random.default_rng(1))
    sums = []
    for count in (4, 5):
        part = graphs(sizes, seed=3)
        keep = torch.zeros(5, dtype=torch.bool)
        keep[:count] = True
        object.__setattr__(part, "train", keep)
        site = Site(part, seed=0, training=quiet(steps(clip=0.25), monkeypatch))
        sums.append(of.gradient(weights, site, Batch(np.zeros(0, dtype=np.int64), 0)))
    raw = alone(of, weights, graphs(sizes, seed=3), 4)
    assert np.linalg.norm(raw) > 1.0  # the fifth graph is clipped
    assert 0.2 < np.linalg.norm(sums[1] - sums[0]) <= 0.25 * (1 + 1e-6)


def test_o17_both_models_of_a_mixture_and_alpha_are_clipped_as_one(monkeypatch) -> None:
    data, of = graphs([4, 7, 5, 3]), task()
    rng = np.random.default_rng(1)
    v, w = of.initial(rng), of.initial(rng)
    empty = Batch(np.zeros(0, dtype=np.int64), 0)
    exact = of.mixed(v, w, 0.3, Site(data, seed=0), Batch(np.arange(4), 0))
    wide = Site(data, seed=0, training=quiet(steps(clip=1e3, batch=4.0), monkeypatch))
    found = of.mixed(v, w, 0.3, wide, empty)
    assert found.personal == pytest.approx(exact.personal, abs=2e-2)
    assert found.shared == pytest.approx(exact.shared, abs=2e-2)
    assert found.alpha == pytest.approx(exact.alpha, abs=2e-2)
    tight = Site(data, seed=0, training=quiet(steps(clip=0.01), monkeypatch))
    clipped = of.mixed(v, w, 0.3, tight, empty)
    whole = np.concatenate([clipped.personal, clipped.shared, [clipped.alpha]])
    assert 0.005 < np.linalg.norm(whole) <= 4 * 0.01 * (1 + 1e-6)
    assert tight.training is not None and tight.training.taken == 1


def test_fit_takes_the_policys_steps_and_pulls_and_decays_outside_the_noise(monkeypatch) -> None:
    data, of = graphs([4, 7, 5, 3]), task(weight_decay=0.01)
    weights = of.initial(np.random.default_rng(1))
    site = Site(data, seed=0, training=quiet(steps(clip=1e3, batch=4.0, steps=3), monkeypatch))
    found = of.fit(weights, site, epochs=50, pull=0.5)
    plain = of.fit(weights, Site(data, seed=0), epochs=3, pull=0.5)  # full batches
    assert found == pytest.approx(plain, abs=1e-2)
    assert not np.array_equal(found, weights)
    with pytest.raises(NotInPlan):
        of.fit(weights, site, epochs=1)


def test_o15_equal_seeds_train_apart_and_the_site_is_as_before() -> None:
    of, fitted = task(), []
    weights = of.initial(np.random.default_rng(1))
    for _ in range(2):
        site = Site(graphs([4, 7, 5, 3]), seed=0, training=steps(steps=2))
        fitted.append(of.fit(weights, site, epochs=1))
    assert not np.array_equal(*fitted)
    again = [of.fit(weights, Site(graphs([4, 7, 5, 3]), seed=0), epochs=1) for _ in range(2)]
    assert np.array_equal(*again)  # the control: without private training they agree


def test_a_site_without_training_graphs_trains_on_noise_alone() -> None:
    """Whether it has any is private, so it must not send back what it was given."""
    of, data = task(), graphs([4, 7], train=False)
    weights = of.initial(np.random.default_rng(1))
    site = Site(data, seed=0, training=steps(steps=4))
    assert site.count == 0
    assert not np.array_equal(of.fit(weights, site, epochs=1), weights)
    site.training = steps(steps=4)
    batches = of.batches(site)
    found = [next(batches) for _ in range(4)]  # never ends
    assert all(not len(batch.records) for batch in found)
    assert len({batch.seed for batch in found}) == 4
    assert of.gradient(weights, site, found[0]).any()


def test_o21_tasks_whose_records_touch_each_other_refuse_with_the_reason() -> None:
    task().check_training("graph")
    with pytest.raises(UnsupportedTraining, match="another kind"):
        task().check_training("client")
    spec = DataSpec(
        task="node", features=3, classes=2, records=8, clients=5, synthetic=True, name="toy"
    )
    node = NodeTask(spec, hidden=4)
    with pytest.raises(UnsupportedTraining, match="neighbours"):
        node.check_training("graph")
    from algorithms.tasks.inputs import NodeData

    part = SimpleNamespace(
        edges=np.array([[0], [1]]), x=np.ones((2, 3), np.float32), y=np.array([0, 1]),
        train=np.array([True, True]), val=np.zeros(2, bool), test=np.zeros(2, bool),
    )  # fmt: skip
    site = Site(NodeData.from_graph(part), seed=0, training=steps())
    weights = node.initial(np.random.default_rng(0))
    empty = Batch(np.zeros(0, dtype=np.int64), 0)
    for call in (
        lambda: node.fit(weights, site, epochs=1),
        lambda: node.gradient(weights, site, empty),
        lambda: node.mixed(weights, weights, 0.5, site, empty),
    ):
        with pytest.raises(UnsupportedTraining, match="neighbours"):
            call()


def test_o21_rating_tasks_refuse_with_the_reason() -> None:
    from algorithms.tasks.rating import RatingTask

    spec = DataSpec(
        task="rating", features=0, classes=1, records=8, clients=5, synthetic=True, name="toy",
        users=3, items=4, lowest=1.0, highest=5.0,
    )  # fmt: skip
    with pytest.raises(UnsupportedTraining, match="one user has many ratings"):
        RatingTask(spec).check_training("graph")
