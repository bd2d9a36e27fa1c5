"""FedPerGNN, FCF and FedMF: what one user's client learns, says and keeps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from algorithms._shared.items import ROW_SCALE, SHARED_SCALE, ItemGradient, Start
from algorithms.fcf import fcf
from algorithms.fed_mf import fed_mf
from algorithms.fed_per_gnn import fed_per_gnn
from algorithms.nn import user_gat, user_gcn
from algorithms.nn._shared import ratings
from algorithms.nn._shared.ratings import Neighbours
from algorithms.tasks import DataSpec, Site
from algorithms.tasks.inputs import RatingsData
from algorithms.tasks.rating import RatingTask
from protocols.policy.policy import PrivacyPolicy
from tests.predicting import predicted
from tests.thinned import thinned
from tests.toys.stage import play

USERS, ITEMS, HIDDEN = 6, 9, 4
SPEC = DataSpec(
    "rating", 0, 1, 16, USERS, True, "toy", users=USERS, items=ITEMS, lowest=1.0, highest=5.0
)
LAYERS = ("user_gat", "user_gcn", "user_ggnn")
MODELS = (*LAYERS, "user_dot")


def task_of(model: str = "user_gat", **options: Any) -> RatingTask:
    chosen = {"hidden": HIDDEN, "weight_decay": 0.0, "optimiser": "sgd", "lr": 0.05, **options}
    return RatingTask(SPEC, model=model, **chosen)


def site_of(user: int, *, constant: float | None = None, items: Any = None) -> Site:
    rng = np.random.default_rng(user)
    item = rng.permutation(ITEMS)[:6] if items is None else np.asarray(items)
    role = np.arange(len(item)) % 6
    rating = rng.integers(1, 6, len(item)) if constant is None else np.full(len(item), constant)
    part = SimpleNamespace(
        user=np.full(len(item), user),
        item=item,
        rating=rating.astype(np.float32),
        train=role < 4,
        val=role == 4,
        test=role == 5,
    )
    return Site(RatingsData.from_ratings(part, USERS, ITEMS), seed=user)


def sites(**options: Any) -> list[Site]:
    return [site_of(user, **options) for user in range(USERS)]


def loss_of(task: RatingTask, weights: torch.Tensor, of: list[Site]) -> torch.Tensor:
    """Half the sum of squared errors over all users' training ratings, by a model of all rows."""
    found = torch.zeros(())
    for site in of:
        data: RatingsData = site.data
        module = task._build()
        names = [name for name, _ in module.named_parameters()]
        sizes = [parameter.numel() for parameter in module.parameters()]
        shapes = [parameter.shape for parameter in module.parameters()]
        parts = torch.split(weights, sizes)
        values = {n: p.reshape(s) for n, p, s in zip(names, parts, shapes, strict=True)}
        items = torch.from_numpy(data.items)
        values["items.table"] = values["items.table"][items]
        values["items.bias"] = values["items.bias"][items]
        graph = data.graph.on_scale(1.0, 4.0)
        train = data.train
        asked = (graph, data.user[train], data.item[train], torch.Generator(), False)
        seen = torch.func.functional_call(module, values, asked)[:, 0]
        found = found + ((seen - (data.rating[train] - 1.0) / 4.0) ** 2).sum() / 2
    return found


@pytest.mark.parametrize("model", MODELS)
def test_one_step_is_the_centralised_gradient_step(model: str) -> None:
    task, all_sites = task_of(model), sites()
    algorithm = fed_per_gnn(task, user_steps=1, decay=0.0, user_decay=0.0, user_lr=0.3)
    state = algorithm.init(np.random.default_rng(0))
    begun = np.random.default_rng(1).normal(0.0, 0.2, task.base).astype(np.float32)
    start = Start(step=0, seed=state.start.seed, weights=begun, told=np.ones(ITEMS, np.int64))
    first = algorithm.forms[0].exchanges[0].answer
    said = [first(site, start) for site in all_sites]
    total = ItemGradient(rows=sum(one.rows for one in said), shared=sum(one.shared for one in said))
    head = task.initial(np.random.default_rng(state.start.seed))[task.base :]
    whole = torch.tensor(np.concatenate([begun, head]), requires_grad=True)
    (slope,) = torch.autograd.grad(loss_of(task, whole, all_sites), whole)
    expected = slope.numpy()[: task.base]
    table = total.rows / ROW_SCALE
    found = [table[:, :-1].ravel(), table[:, -1], total.shared / SHARED_SCALE]
    np.testing.assert_allclose(np.concatenate(found), expected, atol=1e-5)
    assert np.abs(expected).max() > 0.1
    site, own = all_sites[0], torch.tensor(np.concatenate([begun, head]), requires_grad=True)
    (mine,) = torch.autograd.grad(loss_of(task, own, [site]), own)
    moved = head - 0.3 / site.count * mine.numpy()[task.base :]
    np.testing.assert_allclose(site.memory["head"], moved, atol=1e-6)


@pytest.mark.parametrize("model", LAYERS)
def test_a_rating_never_takes_part_in_its_own_prediction(model: str) -> None:
    task, site = task_of(model), site_of(0)
    weights = task.initial(np.random.default_rng(0))
    weights += np.random.default_rng(1).normal(0.0, 0.05, weights.shape).astype(np.float32)
    before = task.predict(weights, site)[:, 0]
    data: RatingsData = site.data
    place = int(np.flatnonzero(data.train.numpy())[0])
    rating = data.rating.numpy().copy()
    rating[place] = 6.0 - rating[place] if rating[place] != 3.0 else 5.0
    part = SimpleNamespace(
        user=data.users[data.user.numpy()], item=data.items[data.item.numpy()], rating=rating,
        train=data.train.numpy(), val=data.val.numpy(), test=data.test.numpy(),
    )  # fmt: skip
    changed = Site(RatingsData.from_ratings(part, USERS, ITEMS), seed=0)
    after = task.predict(weights, changed)[:, 0]
    assert after[place] == before[place]
    others = np.delete(np.arange(len(before)), place)
    assert (after[others] != before[others]).any()


def test_soft_max_is_masked_and_empty_rows_are_zero() -> None:
    scores = torch.tensor([[1.0, 2.0, 50.0], [3.0, 4.0, 5.0]])
    seen = torch.tensor([[True, True, False], [False, False, False]])
    share = ratings.masked_softmax(scores, seen)
    raised = np.exp([1.0, 2.0])
    np.testing.assert_allclose(share[0], [*(raised / raised.sum()), 0.0], rtol=1e-6)
    np.testing.assert_array_equal(share[1], [0.0, 0.0, 0.0])


def test_neighbours_join_an_item_by_masked_attention() -> None:
    module = user_gcn.build(1, 3, 2, 1, 0.0, "degree")
    rng = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=rng))
    site = site_of(0, items=[0, 1, 2])
    graph = site.data.graph.on_scale(1.0, 4.0)
    vectors = torch.randn((3, 4, 2), generator=rng)
    known = torch.tensor([[True, True, False, False], [False] * 4, [True] * 4])
    graph.neighbours = Neighbours(vectors, known)
    found = module._vectors(graph, torch.tensor([0, 1])).detach()
    q = module.items.table.detach()
    scores = torch.softmax(vectors[0, :2] @ q[0], dim=0)
    expected = q[0] + (scores @ vectors[0, :2]) @ module.layer.around.detach()
    np.testing.assert_allclose(found[0], expected, rtol=1e-5)
    np.testing.assert_array_equal(found[1], q[1])


def test_neighbours_of_the_item_that_is_asked_for_change_nothing() -> None:
    """They reach a prediction through the items that the user rated; of others none are known."""
    module = user_gcn.build(1, 3, 2, 1, 0.0, "degree")
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw))
    graph = site_of(0, items=[0, 1, 2]).data.graph.on_scale(1.0, 4.0)
    vectors = torch.randn((3, 1, 2), generator=draw)

    def rated(item: int, neighbours: list[bool]) -> float:
        graph.neighbours = Neighbours(vectors, torch.tensor(neighbours)[:, None])
        asked = torch.zeros(1, dtype=torch.int64), torch.tensor([item])
        return float(module(graph, *asked, draw, False).detach())

    assert rated(0, [True, False, False]) == rated(0, [False] * 3)
    assert rated(1, [True, False, False]) != rated(1, [False] * 3)


@pytest.mark.parametrize("make", thinned([fed_per_gnn, fcf, fed_mf], 3))
def test_constant_ratings_are_learnt(make: Any) -> None:
    model = "user_gat" if make is fed_per_gnn else "user_dot"
    task, all_sites = task_of(model, optimiser="adam", lr=0.02), sites(constant=4.0)
    options = {} if make is fcf else {"user_lr": 0.5}
    algorithm = make(task, decay=0.0, user_decay=0.01, **options)
    policy = PrivacyPolicy.preset("masks")
    state = play(algorithm, all_sites, policy, rounds=40).state.start
    worst = max(np.abs(predicted(algorithm, task, site, state) - 4.0).max() for site in all_sites)
    assert worst < 0.1


@pytest.mark.parametrize("make", [fed_per_gnn, fcf, fed_mf])
def test_the_user_s_part_and_rows_of_other_items_stay_at_home(make: Any) -> None:
    task = task_of("user_dot")
    algorithm, site = make(task), site_of(0)
    start = algorithm.init(np.random.default_rng(0)).start
    assert len(start.weights) == task.base == task.size - HIDDEN - 1
    said = algorithm.forms[0].exchanges[0].answer(site, start)
    assert type(said) is ItemGradient
    trained = site.data.items[site.data.item[site.data.train].numpy()]
    rows = np.flatnonzero(np.abs(said.rows).sum(axis=1))
    assert len(rows) > 0
    assert set(rows) <= set(trained)  # held-out items of the user are none of them
    assert site.memory["head"].shape == (HIDDEN + 1,)


def test_fcf_solves_for_its_user() -> None:
    task, site = task_of("user_dot"), site_of(1)
    algorithm = fcf(task, user_decay=0.5)
    start = algorithm.init(np.random.default_rng(0)).start
    algorithm.forms[0].exchanges[0].answer(site, start)
    whole = torch.tensor(site.memory["trained"], requires_grad=True)
    (slope,) = torch.autograd.grad(loss_of(task, whole, [site]), whole)
    stationary = slope[task.base :] + 0.5 * whole[task.base :]
    np.testing.assert_allclose(stationary.detach(), 0.0, atol=1e-5)


@pytest.mark.parametrize("cohorts", [1, 2])
def test_fixed_cohorts_are_disjoint_and_the_same_in_every_round(cohorts: int) -> None:
    all_sites = [site_of(user % USERS) for user in range(10)]
    algorithm = fed_per_gnn(task_of(), cohorts=cohorts)
    played = play(algorithm, all_sites, "masks", rounds=2)
    ups = [e.header for e in played.tap.envelopes("gradient.up")]
    asked = {(h.round, h.sender): h.cohort for h in ups}
    assert len(asked) == len(ups) == 2 * len(all_sites)
    together = [
        {frozenset(s for (r, s), c in asked.items() if r == n and c == d) for d in asked.values()}
        for n in (1, 2)
    ]
    groups = [{group for group in found if group} for found in together]
    assert groups[0] == groups[1]
    assert len(groups[0]) == cohorts


def test_a_client_of_two_users_is_refused() -> None:
    part = SimpleNamespace(
        user=np.array([0, 1]), item=np.array([0, 1]), rating=np.array([1.0, 2.0], np.float32),
        train=np.ones(2, bool), val=np.zeros(2, bool), test=np.zeros(2, bool),
    )  # fmt: skip
    site = Site(RatingsData.from_ratings(part, USERS, ITEMS), seed=0)
    algorithm = fed_per_gnn(task_of())
    start = algorithm.init(np.random.default_rng(0)).start
    with pytest.raises(ValueError, match="sites of one user"):
        algorithm.forms[0].exchanges[0].answer(site, start)
    with pytest.raises(ValueError, match="model of one user"):
        fed_per_gnn(RatingTask(SPEC, model="dot"))
    assert user_gat.ALONE
