"""Node classification on ego-graphs: what is sampled when, and gradients on mixtures."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from algorithms.tasks import Batch, Site
from algorithms.tasks.ego import EgoTask
from algorithms.tasks.ego_graphs import mashed
from algorithms.tasks.inputs import NodeData
from tests.toys.kinds import sites_of, task_of

MODELS = ["ego_sage", "ego_sage_linear", "ego_mlp"]


def task(**options: Any) -> EgoTask:
    chosen = {"hidden": 6, "dropout": 0.0, "lr": 0.05, "optimiser": "sgd", "weight_decay": 0.0}
    return EgoTask(task_of("node").spec, **{**chosen, "fan_out": 3, **options})


def site(number: int = 0) -> Site:
    return sites_of("node")[number]


def start(made: EgoTask, seed: int = 0) -> Any:
    return made.initial(np.random.default_rng(seed))


def mixed(made: EgoTask, weights: Any, here: Site) -> tuple[Any, Any]:
    """Return every ego-graph of a site as a mixture of one."""
    egos = made.egos(here)
    return made.reduce(weights, here)[egos.places], np.eye(3)[egos.label]


# --- ego-graphs -----------------------------------------------------------------------------------


def test_every_training_node_is_the_centre_of_one_ego_graph() -> None:
    made, here = task(), site()
    egos = made.egos(here)
    centres = np.flatnonzero(here.data.train.numpy())
    assert made.positions == 13 and egos.places.shape == (len(centres), 13)
    np.testing.assert_array_equal(egos.places[:, 0], centres)
    np.testing.assert_array_equal(egos.label, here.data.y.numpy()[centres])


def test_the_default_has_43_positions_and_hops_and_fan_out_are_free() -> None:
    assert task(fan_out=6).positions == 43
    assert task(fan_out=2, layers=3).positions == 15
    assert task(model="ego_mlp").positions == 1


def test_ego_graphs_are_sampled_once_and_again_the_same_where_a_run_goes_on() -> None:
    made, here = task(dropout=0.5), site()
    first = made.egos(here)
    made.fit(start(made), here, epochs=2)
    assert made.egos(here) is first
    again = Site(site().data, seed=99)  # a resumed client: another object, the memory it kept
    again.memory = dict(here.memory)
    np.testing.assert_array_equal(made.egos(again).places, first.places)
    assert not np.array_equal(made.egos(Site(site().data, seed=99)).places, first.places)


def test_a_wider_model_at_the_same_site_gets_ego_graphs_of_its_own() -> None:
    here = site()
    assert task(fan_out=3).egos(here).places.shape[1] == 13
    assert task(fan_out=2).egos(here).places.shape[1] == 7
    assert task(fan_out=3).egos(here).places.shape[1] == 13


# --- the model ------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_the_flat_vector_is_theta_then_phi(model: str) -> None:
    made, here = task(model=model), site()
    weights = start(made)
    before = made.reduce(weights, here)
    assert before.shape == (24, 6) and (before >= 0).all() and (before > 0).any()
    phi = weights.copy()
    phi[made.reduction :] += 1
    np.testing.assert_array_equal(made.reduce(phi, here), before)
    theta = weights.copy()
    theta[: made.reduction] += 1
    assert not np.array_equal(made.reduce(theta, here), before)
    assert made.base == made.size - 6 * 3  # FedPer keeps the classifier


def test_the_start_is_he_normal_with_zero_biases() -> None:
    made = task(hidden=64)
    parts = dict(zip([n for n, _ in made.layout()], _parts(made), strict=True))
    for name, part in parts.items():
        if name.endswith("bias"):
            assert not part.any()
        else:
            assert abs(part.std() / np.sqrt(2 / part.shape[0]) - 1) < 0.2, name


def _parts(made: EgoTask) -> list[Any]:
    sizes = [int(np.prod(shape)) for _, shape in made.layout()]
    parts = np.split(start(made), np.cumsum(sizes)[:-1])
    return [p.reshape(shape) for p, (_, shape) in zip(parts, made.layout(), strict=True)]


@pytest.mark.parametrize("model", MODELS)
def test_it_trains_on_its_ego_graphs(model: str) -> None:
    """The loss is that of the ego-graphs, computed here from the embeddings by hand."""
    made, here = task(model=model, hidden=16), site()
    weights = start(made)

    def loss(of: Any) -> float:
        egos, label = mixed(made, of, here)
        net, _ = made._personal(of[made.reduction :])
        rows = torch.tensor(egos, dtype=torch.float32)
        logits = net.judge(rows, 3, torch.Generator(), False)
        return float(torch.nn.functional.cross_entropy(logits.detach(), torch.tensor(label)))

    fitted = made.fit(weights, here, epochs=40)
    assert loss(fitted) < 0.7 * loss(weights)
    batch = Batch(made.egos(here).places[:, 0], 0)
    slope, step = made.gradient(weights, here, batch).astype(np.float64), 1e-2
    ahead, behind = (np.float32(weights + sign * step * slope) for sign in (1, -1))
    expected = float(slope @ slope)
    assert (loss(ahead) - loss(behind)) / (2 * step) == pytest.approx(expected, rel=0.05)


def test_batches_are_of_the_records_asked_for() -> None:
    made, here = task(), site()
    weights, centres = start(made), np.flatnonzero(here.data.train.numpy())
    halves = [made.gradient(weights, here, Batch(part, 0)) for part in np.split(centres, 2)]
    whole = made.gradient(weights, here, Batch(centres, 0))
    np.testing.assert_allclose(np.mean(halves, axis=0), whole, atol=1e-6)
    assert np.abs(halves[0] - halves[1]).max() > 1e-3


def sparse_site() -> Site:
    data = site().data
    part = SimpleNamespace(
        edges=data.edges.numpy(), x=sp.csr_array(data.x.numpy()), y=data.y.numpy(),
        train=data.train.numpy(), val=data.val.numpy(), test=data.test.numpy(),
    )  # fmt: skip
    return Site(NodeData.from_graph(part), seed=0)


@pytest.mark.parametrize("model", MODELS)
def test_sparse_features_train_alike(model: str) -> None:
    made = task(model=model)
    seen = [made.fit(start(made), here, epochs=3) for here in (site(), sparse_site())]
    np.testing.assert_allclose(seen[0], seen[1], atol=1e-5)


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
def test_the_same_inputs_give_the_same_bits(optimiser: str) -> None:
    made = task(optimiser=optimiser, dropout=0.5, batch=5)
    one, two = (made.fit(start(made), site(), epochs=3) for _ in range(2))
    assert one.tobytes() == two.tobytes()


# --- mixtures -------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", MODELS)
def test_mixtures_of_one_have_the_gradient_of_their_ego_graphs(model: str) -> None:
    made, here = task(model=model), site()
    weights = start(made)
    found = made.slope(weights[made.reduction :], *mixed(made, weights, here), seed=0)
    batch = Batch(made.egos(here).places[:, 0], 0)
    expected = made.gradient(weights, here, batch)[made.reduction :]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    assert np.abs(found).max() > 1e-3


def test_a_gradient_on_mixtures_agrees_with_finite_differences() -> None:
    made, here = task(), site()
    weights = start(made)
    egos, table = made.egos(here), made.reduce(weights, here)
    groups = np.array_split(np.arange(len(egos.label)), 3)
    features = np.stack([mashed(table, egos.places[group]) for group in groups])
    label = np.stack([np.eye(3)[egos.label[group]].mean(axis=0) for group in groups])
    phi = weights[made.reduction :]
    slope = made.slope(phi, features, label, seed=0).astype(np.float64)

    def loss(of: Any) -> float:
        net, _ = made._personal(np.asarray(of, np.float32))
        logits = net.judge(torch.tensor(features), 3, torch.Generator(), False).detach().numpy()
        shares = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
        return float(-(label * shares).sum(axis=1).mean())

    moved = (loss(phi + 1e-2 * slope) - loss(phi - 1e-2 * slope)) / 2e-2
    assert moved == pytest.approx(float(slope @ slope), rel=0.05)


@pytest.mark.parametrize("optimiser", ["sgd", "adam", "adamw"])
def test_steps_are_the_optimiser_s_and_go_on_from_its_moments(optimiser: Any) -> None:
    made = task(optimiser=optimiser, weight_decay=0.01)
    phi = start(made)[made.reduction :]
    slopes = [np.random.default_rng(i).normal(size=phi.size).astype(np.float32) for i in range(3)]
    moved: Any = phi
    moments: Any = {}
    for slope in slopes:
        moved, moments = made.stepped(moved, slope, moments)
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
    whole = torch.nn.Parameter(torch.tensor(phi))
    steps: Any = kind[optimiser]([whole], lr=0.05, weight_decay=0.01)
    for slope in slopes:
        whole.grad = torch.tensor(slope)
        steps.step()
    np.testing.assert_allclose(moved, whole.detach().numpy(), atol=1e-6)
    assert bool(moments) is (optimiser != "sgd")
    np.testing.assert_array_equal(phi, start(made)[made.reduction :])


def test_a_step_that_diverges_says_so() -> None:
    made = task()
    phi = start(made)[made.reduction :]
    with pytest.raises(FloatingPointError, match=r"lower model\.lr"):
        made.stepped(phi, np.full_like(phi, np.inf), {})


def test_mixtures_and_layers_of_another_model_are_refused() -> None:
    made = task()
    phi = start(made)[made.reduction :]
    fits = np.zeros((2, 13, 6)), np.full((2, 3), 1 / 3)
    made.slope(phi, *fits, seed=0)
    for features, label in (
        (np.zeros((2, 43, 6)), fits[1]),
        (np.zeros((2, 13, 5)), fits[1]),
        (fits[0], np.zeros((2, 4))),
        (fits[0], np.zeros((3, 3))),
    ):
        with pytest.raises(ValueError, match="same model options"):
            made.slope(phi, features, label, seed=0)
    with pytest.raises(ValueError, match="same model options"):
        made.slope(phi[:-1], *fits, seed=0)


# --- refusals -------------------------------------------------------------------------------------


def test_other_models_and_fan_outs_are_refused() -> None:
    with pytest.raises(ValueError, match="no model of ego-graphs"):
        task(model="gcn")
    with pytest.raises(ValueError, match="fan_out"):
        task(fan_out=0)


# --- the common test ------------------------------------------------------------------------------


def beside(common: Any) -> Any:
    data = site().data
    return SimpleNamespace(
        edges=data.edges.numpy(), x=data.x.numpy(), y=data.y.numpy(), train=data.train.numpy(),
        val=data.val.numpy(), test=data.test.numpy(), common=common,
    )  # fmt: skip


def common_graph() -> Any:
    data, nothing = site(1).data, np.zeros(24, dtype=bool)
    return SimpleNamespace(
        edges=data.edges.numpy(), x=data.x.numpy(), y=data.y.numpy(),
        train=nothing, val=nothing, test=~nothing,
    )  # fmt: skip


@pytest.mark.parametrize("sparse", [False, True])
def test_a_common_test_graph_is_predicted_and_changes_no_training(sparse: bool) -> None:
    both, alone = beside(common_graph()), beside(None)
    if sparse:
        both.x, both.common.x, alone.x = (sp.csr_array(x) for x in (both.x, both.common.x, alone.x))
    made = task(batch=5)
    sites = [Site(NodeData.from_graph(part), seed=7) for part in (both, alone)]
    fitted = [made.fit(start(made), here, epochs=3) for here in sites]
    np.testing.assert_allclose(fitted[0], fitted[1], atol=1e-6)
    seen = made.predict(fitted[0], sites[0])
    assert seen.shape == (48, 3) and sites[0].data.common.numpy().sum() == 24
    np.testing.assert_allclose(seen[:24], made.predict(fitted[0], sites[1]), atol=1e-5)
    np.testing.assert_allclose(seen[24:], made.predict(fitted[0], site(1)), atol=1e-5)
