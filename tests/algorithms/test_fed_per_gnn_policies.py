"""FedPerGNN under policies: which form leaves, what its plan says, and which rows are trained."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from algorithms._shared.items import ROW_SCALE, SHARED_SCALE, Holders, Start
from algorithms.fcf import fcf
from algorithms.fed_avg import fed_avg
from algorithms.fed_per_gnn import fed_per_gnn
from algorithms.tasks.evaluation import evaluated
from algorithms.tasks.rating import RatingTask
from protocols.errors import CohortTooSmall, NotAdmitted
from protocols.policy.policy import PrivacyPolicy
from tests.algorithms.test_fed_per_gnn import HIDDEN, ITEMS, SPEC, site_of, sites, task_of
from tests.toys.stage import plan_of, play


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
