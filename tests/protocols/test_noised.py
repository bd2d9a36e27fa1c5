"""Noise in secure sums: reserved before it is drawn, as planned, in the total, and never seeded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from protocols.disclosures.sum import disclosure as protect
from protocols.disclosures.sum.guards import He, Mask, Noise
from protocols.disclosures.sum.layout import SumLayout
from protocols.errors import (
    BudgetExceeded,
    LocalProtocolError,
    NotAdmitted,
    NotInPlan,
    PolicyError,
    Refused,
)
from protocols.plan.plan import Plan
from protocols.policy.guards import Clip, Quantise, Seal, UnsafeClear
from protocols.policy.policy import PRESETS, PrivacyPolicy
from protocols.privacy.accounting import ORDERS
from protocols.privacy.noising import run_divergence
from tests.protocols.toys import PULL, Pull, toy_algorithm, toy_plan
from tests.protocols.wire import World

ITEM = "pull.up.SUM"
STEP = 1.0 / (2**15 - 1)  # bound 1, 16 bits


class Reserve:
    """A site's budget that records what is asked of it, and refuses on demand."""

    def __init__(self, refuse: bool = False) -> None:
        self.refuse, self.asked, self.events = refuse, [], []

    def __call__(self, **facts: Any) -> dict[str, str | int]:
        self.events.append("reserve")
        self.asked.append(facts)
        if self.refuse:
            raise BudgetExceeded("The budget of this data set is spent.")
        return {"dataset": facts["dataset"], "delta": "1e-05", "entries": len(self.asked),
                "epsilon": "8.0", "head": "0" * 64}  # fmt: skip


def noised(mechanism: str = "discrete_gaussian", epsilon: float = 8.0, **facts: Any) -> Any:
    chain = (
        Clip(norm="l2", bound=1.0), Quantise(),
        Noise(mechanism=mechanism, epsilon=epsilon, delta=1e-5), Mask(), Seal(),
    )  # fmt: skip
    document = PRESETS["calibrated"].document()
    rules = {**document["rules"], "SUM": [g.model_dump() for g in chain]}
    return PrivacyPolicy.model_validate({**document, "name": "noised", "rules": rules, **facts})


def running(policy: Any = "calibrated", reserve: Any = None, **facts: Any) -> World:
    return World(PULL, policy, reserve=reserve or Reserve(), **facts)


@pytest.mark.parametrize("mechanism", ["discrete_gaussian", "discrete_laplace"])
def test_o14_the_total_carries_the_planned_noise_of_every_client(mechanism: str) -> None:
    d, rounds = 400, 3
    policy = noised(mechanism)
    world = running(policy, d=d, rounds=rounds)
    noise = world.plan.item(ITEM).noise
    for site in world.sites.values():
        site.delta = np.zeros(d)
    world.start()
    seen = []
    for number in range(1, rounds + 1):
        seen.append(world.round(number).total(Pull).change / STEP)
    drawn, sigma = np.concatenate(seen), float(noise.sigma)
    variance = 5 * sigma**2 * (2 if mechanism == "discrete_laplace" else 1)
    assert np.all(np.abs(drawn - np.rint(drawn)) < 1e-6)  # whole grid steps
    assert abs(np.var(drawn) / variance - 1) < 0.4  # 1200 draws: eight sigma and more
    assert abs(np.mean(drawn)) < 7 * np.sqrt(variance / drawn.size)
    assert np.max(np.abs(drawn)) <= noise.margin


def test_o15_neither_noise_nor_rounding_follows_a_seed() -> None:
    found = [running().start().round(1).total(Pull).change for _ in range(2)]
    assert not np.array_equal(*found)
    keys = []
    real = protect.Stream
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protect, "Stream", lambda key: keys.append(key) or real(key))
        for _ in range(2):  # the same learning seed twice
            running().start().round(1)
    assert len(keys) == 2 * 2 * 5 and len(set(keys)) == len(keys)


def test_o15_control_without_noise_the_rounding_follows_the_seed() -> None:
    world = World(policy="masks").start(), World(policy="masks").start()
    keys: list[bytes] = []
    real = protect.Stream
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(protect, "Stream", lambda key: keys.append(key) or real(key))
        for each in world:
            each.round(1)
    assert keys[:5] == keys[5:]


@pytest.mark.parametrize("mechanism", ["discrete_gaussian", "discrete_laplace"])
def test_o20_the_whole_run_is_reserved_before_anything_is_drawn(
    mechanism: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = Reserve()
    sampler = protect.SAMPLERS[mechanism]
    real = sampler.sample

    def watched(self: Any, stream: Any, count: int) -> Any:
        reserve.events.append("sample")
        return real(self, stream, count)

    monkeypatch.setattr(sampler, "sample", watched)
    world = running(noised(mechanism), reserve)
    assert reserve.events == ["reserve"] * 5
    world.start().round(1)
    assert reserve.events == ["reserve"] * 5 + ["sample"] * 5
    for facts in reserve.asked:
        assert facts["dataset"] == "toy" and facts["run"] == world.run
        assert facts["cap"] == world.policy.budget
        assert len(facts["rdp"]) == len(ORDERS) and min(facts["rdp"]) > 0
        assert tuple(facts["rdp"]) == run_divergence(world.plan)
    (entry,) = [e for e in world.entries("client-1") if e["kind"] == "budget"]
    assert (entry["dataset"], entry["epsilon"]) == ("toy", "8.0")


def test_o20_a_budget_that_refuses_ends_the_session_before_anything_left() -> None:
    reserve = Reserve(refuse=True)
    with pytest.raises(BudgetExceeded):
        running(reserve=reserve)
    assert reserve.events == ["reserve"]


def test_o20_without_a_budget_no_noise_is_drawn() -> None:
    with pytest.raises(LocalProtocolError, match="no privacy budget"):
        World(PULL, "calibrated")
    with pytest.raises(ValueError, match="needs a budget"):
        noised(budget=None)


@pytest.mark.parametrize("rounds", [1, 3, 10])
def test_more_rounds_need_more_noise_and_spend_the_same_target(rounds: int) -> None:
    plans = [toy_plan(PULL, noised(), rounds=r, bfv=None) for r in (rounds, rounds + 1)]
    one, other = (float(plan.item(ITEM).noise.sigma) for plan in plans)
    assert 1 < other / one < 2
    assert plans[0].item(ITEM).noise.releases == rounds
    assert plans[0].item(ITEM).noise.honest == 4  # the smallest cohort (O18)
    two = toy_plan(PULL, noised(colluders=1), rounds=rounds, clients=tuple("abcde"), bfv=None)
    assert two.item(ITEM).noise.honest == 4 and two.smallest_cohort == 5


def with_noise(plan: Plan, **facts: Any) -> Plan:
    items = tuple(
        item
        if item.noise is None
        else item.model_copy(
            update={"noise": item.noise.model_copy(update=facts) if facts else None}
        )
        for item in plan.items
    )
    return plan.model_copy(update={"items": items})


LESS = {
    "a smaller sigma": {"sigma": "8.5"},
    "a little smaller": {"sigma": "18095.0"},
    "more honest shares": {"honest": 5},
    "fewer releases": {"releases": 1},
    "a smaller sensitivity": {"l2": "1.0"},
    "a smaller norm": {"l1": "1.0"},
    "a larger epsilon": {"epsilon": "9.0"},
    "a larger delta": {"delta": "0.01"},
    "fewer coordinates": {"coordinates": 1},
    "less head-room": {"margin": 1},
    "another mechanism": {"mechanism": "discrete_laplace"},
    "none": {},
}


@pytest.mark.parametrize("name", LESS)
def test_o18_a_client_draws_no_other_noise_than_its_policy_asks_for(name: str) -> None:
    honest = toy_plan(PULL, PRESETS["calibrated"], bfv=None)
    world = running(PRESETS["calibrated"], plan=with_noise(honest, **LESS[name]))
    with pytest.raises(Refused) as caught:
        world.start().round(1)
    assert caught.value.code == "plan"
    assert isinstance(world.clients[caught.value.sender].last_error, NotInPlan)
    assert not [e for e in world.entries(caught.value.sender) if e.get("item") == ITEM]


def test_a_plan_with_noise_that_no_policy_asks_for_is_not_run() -> None:
    noise = toy_plan(PULL, PRESETS["calibrated"], bfv=None).item(ITEM).noise
    plain = toy_plan(PULL, PRESETS["masks"], bfv=None)
    items = tuple(
        item.model_copy(update={"noise": noise}) if item.id == ITEM else item
        for item in plain.items
    )
    with pytest.raises((LocalProtocolError, Refused)):
        changed = plain.model_copy(update={"items": items})
        World(PULL, PRESETS["masks"], plan=changed).start().round(1)


def test_o17_exact_counts_are_not_noised_and_so_not_admitted() -> None:
    with pytest.raises(NotAdmitted) as caught:
        toy_plan(policy=PRESETS["calibrated"], bfv=None)
    assert "exact counts" in str(caught.value)


@pytest.mark.parametrize(
    "chain",
    [
        (Clip(), Quantise(), Noise(epsilon=1.0, delta=1e-6), Mask(), Seal()),  # linf
        (Clip(norm="l2"), Noise(epsilon=1.0, delta=1e-6), Quantise(), Mask(), Seal()),
        (Clip(norm="l2"), Quantise(), Mask(), Noise(epsilon=1.0, delta=1e-6), Seal()),
        # Without masks an upload is seen alone, and one share of noise is not the sum's (O18).
        (Clip(norm="l2"), Quantise(), Noise(epsilon=1.0, delta=1e-6), UnsafeClear()),
        (Clip(norm="l2"), Quantise(), Noise(epsilon=1.0, delta=1e-6), He(), Seal()),
    ],
)
def test_o14_noise_stands_behind_an_l2_clip_and_the_grid(chain: Any) -> None:
    document = PRESETS["calibrated"].document()
    rules = {**document["rules"], "SUM": [g.model_dump() for g in chain]}
    with pytest.raises(ValueError, match="SUM"):
        PrivacyPolicy.model_validate({**document, "rules": rules})


def test_o14_the_rounded_vector_keeps_the_norm_that_is_accounted_for() -> None:
    world = running(d=300)
    noise, layouts = world.plan.item(ITEM).noise, []
    real = SumLayout.encode

    def watched(self: Any, *args: Any, **facts: Any) -> Any:
        levels, clipped = real(self, *args, **facts)
        layouts.append((levels - self.columns[0].grid.levels, facts["limit"]))
        return levels, clipped

    for site in world.sites.values():
        site.delta = np.full(300, 1e6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SumLayout, "encode", watched)
        world.start().round(1)
    assert len(layouts) == 5
    for levels, limit in layouts:
        assert limit == float(noise.l2)
        assert 32000 < np.linalg.norm(levels) <= limit
        assert np.abs(levels).sum() <= float(noise.l1)


def test_o19_noise_beyond_its_head_room_does_not_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = PrivacyPolicy.model_validate(
        {**noised().document(), "rules": he_rules(), "name": "noised_he"}
    )
    world = running(policy).start()
    noise = world.plan.item(ITEM).noise
    sampler = protect.SAMPLERS[noise.mechanism]
    monkeypatch.setattr(
        sampler, "sample", lambda self, stream, count: np.full(count, noise.margin + 70000)
    )
    with pytest.raises(Refused) as caught:
        world.round(1)
    assert caught.value.code == "unfit"


def he_rules() -> dict[str, Any]:
    chain = (
        Clip(norm="l2", bound=1.0), Quantise(), Noise(epsilon=8.0, delta=1e-5), Mask(), He(), Seal()
    )  # fmt: skip
    return {**PRESETS["calibrated"].document()["rules"], "SUM": [g.model_dump() for g in chain]}


@pytest.mark.parametrize("gone", [0, 1])
def test_noise_survives_encryption_and_drop_outs(gone: int) -> None:
    policy = PrivacyPolicy.model_validate(
        {**noised().document(), "rules": he_rules(), "name": "noised_he"}
    )
    world = running(policy, d=200).start()
    for site in world.sites.values():
        site.delta = np.zeros(200)
    world.lost = lambda item, sender, to: to in world.names[:gone] and item == "pull.down"
    total = world.round(1).total(Pull).change / STEP
    variance = (5 - gone) * float(world.plan.item(ITEM).noise.sigma) ** 2
    assert 0.4 < np.var(total) / variance < 1.8  # beyond: once in 10^10 times


def test_o16_the_plan_says_what_the_target_covers() -> None:
    plan = toy_plan(PULL, PRESETS["calibrated"], bfv=None)
    assert plan.budget.startswith("epsilon <= 8.0, delta = 1e-05")
    assert ITEM in plan.budget
    assert "infinity" in toy_plan(PULL, PRESETS["masks"], bfv=None).budget
    assert toy_algorithm(PULL).forms == (PULL,)


def test_a_target_that_no_grid_reaches_is_no_plan() -> None:
    with pytest.raises(PolicyError):
        toy_plan(PULL, noised(epsilon=1e-6), rounds=10_000, bfv=None)
