"""FedPerGNN, FCF and FedMF: what one user's client learns, says and keeps."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from algorithms._item_messages import Holders, ItemGradient, Start
from algorithms._item_users import ROW_SCALE, SHARED_SCALE
from algorithms.evaluation import evaluated
from algorithms.fcf import fcf
from algorithms.fed_avg import fed_avg
from algorithms.fed_mf import fed_mf
from algorithms.fed_per_gnn import fed_per_gnn
from algorithms.nn import _stars, user_gat, user_gcn
from algorithms.nn._ratings import Neighbours
from algorithms.site import Site
from algorithms.tasks import DataSpec
from algorithms.tasks.rating import RatingsData, RatingTask
from protocols.errors import CohortTooSmall, NotAdmitted
from protocols.policy import PrivacyPolicy
from tests.toys.stage import plan_of, play

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
    share = _stars.masked_softmax(scores, seen)
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


@pytest.mark.parametrize("make", [fed_per_gnn, fcf, fed_mf])
def test_constant_ratings_are_learnt(make: Any) -> None:
    model = "user_gat" if make is fed_per_gnn else "user_dot"
    task, all_sites = task_of(model, optimiser="adam", lr=0.02), sites(constant=4.0)
    options = {} if make is fcf else {"user_lr": 0.5}
    algorithm = make(task, decay=0.0, user_decay=0.01, **options)
    policy = PrivacyPolicy.preset("masks")
    state = play(algorithm, all_sites, policy, rounds=40).state.start
    worst = max(np.abs(algorithm.predict(site, state) - 4.0).max() for site in all_sites)
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


def test_o12_strict_trains_only_rows_that_enough_clients_hold() -> None:
    held = [[0, 1, 2, 3, 7, 8], [0, 1, 2, 4, 7, 8], [0, 1, 3, 5, 7, 8], [0, 2, 3, 6, 7, 8]]
    held += [[0, 1, 2, 3, 7, 8]] * 2
    all_sites = [site_of(user, items=items) for user, items in enumerate(held)]
    holders = np.bincount(np.concatenate([items[:4] for items in held]), minlength=ITEMS)
    algorithm = fed_per_gnn(task_of(lr=0.2), holders=4, decay=0.0)
    played = play(algorithm, all_sites, "strict", rounds=3)
    assert played.plan.form == "held_items"
    state = played.state.start
    np.testing.assert_array_equal(state.told, (holders >= 4).astype(np.int64))
    assert 0 < state.told.sum() < (holders > 0).sum()
    begun = algorithm.init(np.random.default_rng(0)).start.weights[: ITEMS * HIDDEN]
    moved = (state.weights[: ITEMS * HIDDEN] != begun).reshape(ITEMS, HIDDEN).any(axis=1)
    np.testing.assert_array_equal(moved, state.told > 0)
    assert any("at least 4 clients" in line for line in played.plan.warnings)


def test_o12_who_holds_what_is_counted_with_the_first_sum_alone() -> None:
    algorithm, site = fed_per_gnn(task_of(), holders=4), site_of(0)
    count = algorithm.forms[1].exchanges[0].answer
    start = algorithm.init(np.random.default_rng(0)).start
    _, first = count(site, start)
    later = Start(step=1, seed=start.seed, weights=start.weights, told=start.told)
    _, second = count(site, later)
    assert type(first) is Holders
    assert (first.held.sum(), second.held.sum()) == (4, 0)


def test_o12_strict_refuses_rows_without_holders() -> None:
    strict = PrivacyPolicy.preset("strict")
    assert strict.admit(fed_per_gnn(task_of())).name == "held_items"
    assert PrivacyPolicy.preset("masks").admit(fed_per_gnn(task_of())).name == "secure_items"
    for few in (fed_per_gnn(task_of(), holders=3), fed_per_gnn(task_of(), cohorts=2)):
        with pytest.raises(NotAdmitted) as refused:
            strict.admit(few)
        assert "asks for 4 (holders)" in refused.value.why


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


def test_published_without_noise_and_decoys_is_the_sum() -> None:
    """Whoever reads every client's rows steps as if it had read their sum."""
    algorithm = fed_per_gnn(task_of())
    clear = PrivacyPolicy.preset("unsafe_plaintext")
    alone = clear.model_copy(update={"messages": ("Start", "ItemRows")})
    of_rows, of_sums = (play(algorithm, sites(), policy) for policy in (alone, clear))
    assert (of_rows.plan.form, of_sums.plan.form) == ("published", "secure_items")
    found, expected = of_rows.state.start.weights, of_sums.state.start.weights
    np.testing.assert_allclose(found, expected, atol=2e-3)  # sums stand on a grid


def test_the_published_policy_says_what_its_epsilon_is() -> None:
    policy = PrivacyPolicy.load("examples/published_policy.yaml")
    algorithm = fed_per_gnn(task_of())
    played = play(algorithm, sites(), policy, rounds=2)
    entries = ITEMS * (HIDDEN + 1) + algorithm.dims["g"]
    said = played.plan.budget
    assert "epsilon = 1 per coordinate, per round" in said
    assert f"and {entries} for a whole message of {entries} coordinates" in said
    assert f"{2 * entries} for the run" in said
    assert "epsilon = infinity for the run" in said
    assert any(line.startswith("UNSAFE") for line in played.plan.warnings)


@pytest.mark.parametrize("cohorts", [1, 2])
def test_calibrated_noise_covers_a_user_for_the_whole_run(cohorts: int) -> None:
    policy = PrivacyPolicy.preset("calibrated")
    plan = plan_of(fed_per_gnn(task_of(), cohorts=cohorts), policy, 10, 2)
    assert plan.form == "secure_items"
    assert plan.budget.startswith("epsilon <= 8")
    assert "unit: client" in plan.budget
    assert "infinity" not in plan.budget


def test_o18_the_users_policy_counts_on_the_honest_of_its_smallest_cohort() -> None:
    policy = PrivacyPolicy.load("examples/users_dp_policy.yaml")
    few = plan_of(fed_per_gnn(task_of()), policy, 794, 12)
    assert few.form == "secure_items" and "700 honest shares" in few.budget
    assert few.budget.startswith("epsilon <= 8") and "unit: client" in few.budget
    with pytest.raises(CohortTooSmall):
        plan_of(fed_per_gnn(task_of()), policy, 793, 12)


def test_o12_colluders_are_no_holders() -> None:
    """They take their own rows off the total; what is left must rest on enough others."""
    strict = PrivacyPolicy.preset("strict").model_copy(update={"colluders": 1})
    with pytest.raises(NotAdmitted) as refused:
        strict.admit(fed_per_gnn(task_of(), holders=4))
    assert "asks for 5" in refused.value.why
    assert strict.admit(fed_per_gnn(task_of(), holders=5)).name == "held_items"


def test_o12_a_policy_with_holders_lets_nobody_show_rows() -> None:
    document = PrivacyPolicy.load("examples/published_policy.yaml").document()
    policy = PrivacyPolicy.model_validate({**document, "holders": 4})
    with pytest.raises(NotAdmitted) as refused:
        policy.admit(fed_per_gnn(task_of()))
    assert "rows of message ItemRows are one client's" in refused.value.why
    every = PrivacyPolicy.model_validate({**document, "holders": 4, "messages": None})
    assert every.admit(fed_per_gnn(task_of())).name == "held_items"
    with pytest.raises(NotAdmitted):
        every.admit(fed_per_gnn(task_of(), cohorts=2))


def test_a_refused_protected_form_is_no_way_into_the_clear() -> None:
    """Only a policy that names ItemRows, or protects nothing, runs a form that shows them."""
    document = PrivacyPolicy.load("examples/published_policy.yaml").document()
    rules = {
        **document["rules"],
        "SUM": PrivacyPolicy.preset("calibrated").document()["rules"]["SUM"],
    }
    budget = {"epsilon": 10.0, "delta": 1e-5}
    more = {"rules": rules, "budget": budget, "messages": None}
    policy = PrivacyPolicy.model_validate({**document, **more})
    algorithm = fed_per_gnn(task_of())
    first, *rest = algorithm.forms
    counted = replace(algorithm, forms=tuple(rest))
    assert first.name == "secure_items"
    with pytest.raises(NotAdmitted) as refused:  # held_items holds counts, which noise cannot cover
        policy.admit(counted)
    assert "would leave in clear" in refused.value.why
    assert PrivacyPolicy.load("examples/published_policy.yaml").admit(algorithm).name == "published"


@pytest.mark.parametrize("model", ["dot", "user_dot"])
def test_o12_strict_refuses_weights_of_items_whatever_algorithm_says_them(model: str) -> None:
    task = RatingTask(SPEC, model=model, hidden=4)
    strict = PrivacyPolicy.preset("strict")
    with pytest.raises(NotAdmitted) as refused:
        strict.admit(evaluated(fed_avg(task), task))
    assert "weights of items that one client may hold" in refused.value.why
    PrivacyPolicy.preset("masks").admit(evaluated(fed_avg(task), task))
    own = task_of()
    assert strict.admit(evaluated(fed_per_gnn(own), own)).name == "held_items"


def test_the_plan_says_what_rows_of_one_contributor_tell() -> None:
    plan = plan_of(fed_per_gnn(task_of()), PrivacyPolicy.preset("masks"), 6, 1)
    assert any("the vector tells which rows of several users" in line for line in plan.warnings)
    strict = plan_of(fed_per_gnn(task_of()), PrivacyPolicy.preset("strict"), 6, 1)
    assert any("if the aggregator is semi-honest" in line for line in strict.warnings)
    shown = plan_of(
        fed_per_gnn(task_of()), PrivacyPolicy.load("examples/published_policy.yaml"), 6, 1
    )
    assert "no noise is added" not in shown.budget
    assert any("rows that stay are the client's own" in line for line in shown.warnings)


def test_the_ledger_says_that_shown_rows_were_clipped() -> None:
    document = PrivacyPolicy.load("examples/published_policy.yaml").document()
    for guard in document["rules"]["NOISED"]:
        if guard["guard"] == "clip":
            guard["bound"] = 1e-3
    played = play(fcf(task_of("user_dot")), sites(), PrivacyPolicy.model_validate(document))
    lines = [line for line in played.ledgers["client-1"].lines.splitlines() if b"ItemRows" in line]
    assert lines
    assert all(b'"clipped":true' in line for line in lines)


def test_the_published_clip_is_of_the_gradient_itself() -> None:
    algorithm, site = fed_per_gnn(task_of()), site_of(0)
    start = algorithm.init(np.random.default_rng(0)).start
    dense = algorithm.forms[0].exchanges[0].answer(site_of(0), start)
    shown = algorithm.forms[2].exchanges[0].answer(site, start)._partial.fields
    np.testing.assert_allclose(shown["rows"], dense.rows[shown["number"]] / ROW_SCALE)
    np.testing.assert_allclose(shown["shared"], dense.shared / SHARED_SCALE)
