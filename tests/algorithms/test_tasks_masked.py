"""Training with masks: the loss of w * m with live penalties; and embeddings of a public graph."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from algorithms import nn
from algorithms.tasks import MaskedTask, Site, UnsupportedTraining
from algorithms.tasks.inputs import NodeData
from algorithms.tasks.training import below, matrices
from tests.toys.kinds import KINDS, sites_of, task_of, triangle

L1, L2, LR = 0.02, 0.7, 0.5


def task(**options: Any) -> Any:
    chosen = {"model": "gcn_linear", "hidden": 4, "lr": LR, "weight_decay": 0.0, **options}
    return task_of("node", **chosen)


def begun(model: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    masks = rng.choice([-1.0, 1.0], size=model.size) * rng.uniform(0.3, 1.5, size=model.size)
    masks[~matrices(model._build())] = 1.0
    return model.initial(rng), masks.astype(np.float32)


def site() -> Site:
    return sites_of("node")[0]


def objective(model: Any, weights: Any, masks: Any, start: Any) -> float:
    """Return the paper's objective, with cross entropies from predictions."""
    here = site()
    training = np.flatnonzero(here.data.train.numpy())
    own = here.data.y.numpy()[training]
    seen = model.predict((weights * masks).astype(np.float32), here).astype(np.float64)
    size = np.abs(masks[matrices(model._build())]).sum()
    return float(
        -np.log(seen[training, own]).mean() + L1 * size + L2 * np.square(weights - start).sum()
    )


@pytest.mark.parametrize("moved", ["weights", "masks"])
def test_gradients_of_the_live_penalties_agree_with_finite_differences(moved: str) -> None:
    """One step of plain descent from where the pull is not zero, against the objective itself."""
    model = task()
    start, masks = begun(model)
    one = model.fit_masked(start, masks, site(), epochs=1, l1=L1, l2=L2)
    two = model.fit_masked(start, masks, site(), epochs=2, l1=L1, l2=L2)
    slopes = {
        "weights": (one.weights - two.weights) / LR,
        "masks": (one.masks - two.masks) / LR,
    }[moved]
    point = {"weights": one.weights.astype(np.float64), "masks": one.masks.astype(np.float64)}
    off = 1e-3
    for place in (
        np.flatnonzero(matrices(model._build())) if moved == "masks" else range(model.size)
    ):
        ends = []
        for sign in (1, -1):
            there = {name: value.copy() for name, value in point.items()}
            there[moved][place] += sign * off
            ends.append(objective(model, there["weights"], there["masks"], start))
        assert (ends[0] - ends[1]) / (2 * off) == pytest.approx(slopes[place], abs=1e-3), place
    pull = 2 * L2 * np.abs(one.weights - start).max()
    assert pull > 0.01 and np.abs(slopes).max() > 0.02  # either penalty would be missed


def test_biases_have_no_mask() -> None:
    model = task(optimiser="adamw", weight_decay=0.3)
    start, masks = begun(model)
    biases = ~matrices(model._build())
    masks[biases] = 0.0  # unread: a bias that counted as masked could not learn
    left = model.fit_masked(start, masks, site(), epochs=3, l1=0.1)
    assert biases.sum() == 4 + 4 + 3
    np.testing.assert_array_equal(left.masks[biases], 0.0)
    assert (left.weights[biases] != start[biases]).any()
    assert (left.masks[~biases] != masks[~biases]).mean() > 0.5


def test_weight_decay_does_not_act_on_masks() -> None:
    left = [
        task(optimiser="adamw", weight_decay=decay).fit_masked(*begun(task()), site(), epochs=1)
        for decay in (0.0, 0.4)
    ]
    np.testing.assert_array_equal(left[0].masks, left[1].masks)
    moved = np.abs(left[1].masks - begun(task())[1])
    assert moved.max() <= LR * (1 + 1e-5)  # a step of Adam's, and no decay beside it
    assert not np.array_equal(left[0].weights, left[1].weights)


@pytest.mark.parametrize("optimiser", ["adamw", "sgd"])
def test_with_masks_of_one_the_first_step_of_the_weights_is_that_of_fit(optimiser: str) -> None:
    model = task(optimiser=optimiser, dropout=0.4, weight_decay=0.1)
    start, _ = begun(model)
    ones = np.ones_like(start)
    left = model.fit_masked(start, ones, site(), epochs=1)
    np.testing.assert_array_equal(left.weights, model.fit(start, site(), epochs=1))
    assert (ones == 1).all() and not np.array_equal(left.masks, ones)  # what is given stays


def test_with_its_moments_an_optimiser_goes_on_as_if_it_had_not_stopped() -> None:
    model = task(optimiser="adamw", lr=0.05, keep_moments=True)
    start, masks = begun(model)
    whole = model.fit_masked(start, masks, site(), epochs=2, l1=L1)
    here = site()
    half = model.fit_masked(start, masks, here, epochs=1, l1=L1)
    kept = here.memory["moments"]
    assert kept and all(type(value) is np.ndarray for value in kept.values())
    again = model.fit_masked(half.weights, half.masks, here, epochs=1, l1=L1)
    np.testing.assert_array_equal(again.weights, whole.weights)
    np.testing.assert_array_equal(again.masks, whole.masks)
    anew = model.fit_masked(half.weights, half.masks, site(), epochs=1, l1=L1)
    assert not np.array_equal(anew.weights, whole.weights)


def test_a_site_without_training_records_keeps_what_it_has() -> None:
    rng = np.random.default_rng(0)
    none = np.zeros(24, bool)
    part = SimpleNamespace(
        edges=triangle(rng, 24), x=rng.random((24, 5)), y=rng.integers(3, size=24),
        train=none, val=none, test=~none,
    )  # fmt: skip
    model = task(optimiser="adamw")
    start, masks = begun(model)
    left = model.fit_masked(start, masks, Site(NodeData.from_graph(part), seed=0), epochs=4, l1=1.0)
    np.testing.assert_array_equal(left.weights, start)
    np.testing.assert_array_equal(left.masks, masks)
    left.weights[:] = 0  # a copy
    assert start.any()


@pytest.mark.parametrize("wrong", [{"epochs": -1}, {"l1": -1.0}, {"l2": -1.0}])
def test_negative_settings_are_refused(wrong: dict[str, Any]) -> None:
    model = task()
    with pytest.raises(ValueError, match="0 or more"):
        model.fit_masked(*begun(model), site(), **{"epochs": 1, **wrong})
    with pytest.raises(ValueError, match="one mask for each weight"):
        model.fit_masked(begun(model)[0], np.ones(3, np.float32), site(), epochs=1)


def test_training_that_diverges_says_so() -> None:
    model = task(lr=1e30)
    with pytest.raises(FloatingPointError, match="diverged"):
        model.fit_masked(*begun(model), site(), epochs=5, l2=1.0)


def test_private_training_is_refused() -> None:
    model, here = task(), site()
    private = Site(here.data, seed=0, training=SimpleNamespace(unit="graph", steps=1))  # type: ignore[arg-type]
    with pytest.raises(UnsupportedTraining):
        model.fit_masked(*begun(model), private, epochs=1)


@pytest.mark.parametrize("kind", KINDS)
def test_only_node_tasks_can_be_masked(kind: str) -> None:
    assert isinstance(task_of(kind), MaskedTask) is (kind == "node")


@pytest.mark.parametrize("layers", [1, 2, 3])
@pytest.mark.parametrize("model", nn.model_names("node"))
def test_an_embedding_is_what_goes_into_the_head_before_its_relu(model: str, layers: int) -> None:
    made = task(model=model, layers=layers, hidden=7)
    weights = np.random.default_rng(1).normal(size=made.size).astype(np.float32)
    here = site()
    part = SimpleNamespace(
        edges=here.data.edges.numpy(), x=here.data.x.numpy(), y=here.data.y.numpy(),
        train=here.data.train.numpy(), val=here.data.val.numpy(), test=here.data.test.numpy(),
    )  # fmt: skip
    seen = made.embed(weights, part)
    assert seen.shape == (24, made.width) and seen.dtype == np.float32
    module = made._load(weights, here)
    head = below(module)
    if head is module:
        assert made.width == 3
        logits = torch.from_numpy(seen)
    else:
        narrow = model == "graph_sage_sampled"
        assert made.width == (max(7 >> layers, 2) if narrow else 7) and (seen < 0).any()
        last = list(module.layers)[-1]
        matrix = here.data.propagation(made._file.PROPAGATION)
        logits = last(torch.relu(torch.from_numpy(seen)), matrix)
    predicted = torch.softmax(logits, dim=1).detach().numpy()
    np.testing.assert_allclose(predicted, made.predict(weights, here), atol=1e-6)
