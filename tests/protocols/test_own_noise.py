"""Noise of one client's own: enough whoever colludes, never a refusal that tells, all composed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from crypto.ldp_vectors import LEVELS
from protocols.disclosures.noised.randomiser import plan_own, randomiser_of
from protocols.disclosures.sum import disclosure as protect
from protocols.disclosures.sum.guards import Mask
from protocols.errors import NotAdmitted, NotInPlan, Refused
from protocols.forms import Exchange, Form
from protocols.messages import NoisedMessage, SumMessage, Vector, count, real
from protocols.policy.guards import Clip, OwnNoise, Quantise, Seal, UnsafeClear
from protocols.policy.policy import PRESETS, PrivacyPolicy
from protocols.privacy.noising import divergence, noises, run_divergence
from protocols.privacy.own_noise import check_useful
from protocols.privacy.renyi import net_epsilon
from tests.protocols.test_noised import LESS, Reserve, with_noise
from tests.protocols.toys import PULL, Pull, Start, Toy, toy_plan
from tests.protocols.wire import World

ITEM, SAID = "pull.up.SUM", "say.up.NOISED"


class Said(NoisedMessage):
    """Real values that one client shows under its own noise."""

    change: Vector = real("d", unit="weight", meaning="change")


def say(site: Toy, given: Start) -> Said:
    site.asked += 1
    if site.answer is not None:
        return site.answer(site, given)
    return Said(change=site.delta)


def _never(*_: Any) -> Any:
    raise NotImplementedError


SAY = Form("say", _never, (Exchange("say", (Start,), (Said,), say),))
BOTH = Form("both", _never, (PULL.exchanges[0], SAY.exchanges[0]))


def own(mechanism: str = "discrete_gaussian", alone: str = "sqkr", **facts: Any) -> PrivacyPolicy:
    """Return a policy like `ldp` that accepts noise."""
    noise = {"epsilon": 8.0, "delta": 1e-5, "accept_noise": True, **facts.pop("noise", {})}
    norm = "l1" if alone == "discrete_laplace" else "l2"
    rules = {
        **PRESETS["ldp"].document()["rules"],
        "SUM": [
            g.model_dump()
            for g in (Clip(norm="l2", bound=1.0), Quantise(),
                      OwnNoise(mechanism=mechanism, **noise), Mask(), Seal())
        ],
        "NOISED": [
            g.model_dump()
            for g in (Clip(norm=norm, bound=1.0), OwnNoise(mechanism=alone, **noise), Seal())
        ],
    }  # fmt: skip
    document = {**PRESETS["ldp"].document(), "name": "own", "rules": rules, **facts}
    return PrivacyPolicy.model_validate(document)


def world(form: Form[Any] = PULL, policy: Any = None, **facts: Any) -> World:
    return World(form, policy or own(), reserve=Reserve(), **facts)


@pytest.mark.parametrize("mechanism", ["discrete_gaussian", "discrete_laplace"])
def test_o18_nobody_elses_noise_is_counted_on(mechanism: str) -> None:
    found = {}
    for clients in (5, 20):
        noise = toy_plan(
            PULL, own(mechanism), bfv=None, clients=[f"c{n:02d}" for n in range(clients)]
        ).item(ITEM).noise  # fmt: skip
        assert noise.honest == 1 and noise.local and noise.apart == 2.0
        found[clients] = float(noise.sigma)
        spent = net_epsilon(3 * np.array(divergence(noise, 1)), 1e-5, tails=0.0)[0]
        assert 0.999 * 8.0 < spent <= 8.0
    assert found[20] == pytest.approx(found[5], rel=1e-3)


def test_any_two_vectors_are_twice_as_far_apart_as_one_from_none() -> None:
    """Control: with the zero-out sensitivity half of the noise would do."""
    noise = toy_plan(PULL, own(), bfv=None).item(ITEM).noise
    once = np.array(divergence(noise.model_copy(update={"adjacency": "zero-out"}), 1))
    assert np.allclose(np.array(divergence(noise, 1)), 4.0 * once)


def test_each_upload_carries_all_of_its_noise() -> None:
    played = world(d=1000)  # an honest total is beyond the limits below once in 10^12 times
    for site in played.sites.values():
        site.delta = np.zeros(1000)
    sigma = float(played.plan.item(ITEM).noise.sigma)
    total = played.start().round(1).total(Pull).change * (2**15 - 1)
    assert 0.7 < np.var(total) / (5 * sigma**2) < 1.4


def test_the_plan_states_each_messages_share_and_what_holds_no_data() -> None:
    plan = toy_plan(PULL, own(), bfv=None)
    text = plan.budget
    for label in ("unit: client", "adjacency: replace-one", "model: local", "scope: run",
                  "delta = 1e-05", "assumptions:"):  # fmt: skip
        assert label in text
    assert "by Renyi composition" in text and "by basic" in text and "a round" in text
    assert "pull.vote: no data" in text and "pull.shares: no data" in text
    sent = {item.id for item in plan.items if item.sender == "client" and item.noise is None}
    silent = {name for name in sent if f"{name}: no data (" in text}
    assert sent - silent == {"refusal.client"}
    assert "not covered: refusals" in text


def test_a_run_of_both_disclosures_has_one_target() -> None:
    """Control: each calibrated to the whole target spends it nearly twice."""
    plan = toy_plan(BOTH, own(), bfv=None)
    shared = noises(plan.items)
    assert {noise.epsilon for noise in shared.values()} == {"8.0"}

    def spent(found: Any) -> float:
        parts = [np.array(divergence(n, 1)) * n.releases for n in found]
        return net_epsilon(sum(parts), 1e-5, tails=0.0)[0]

    assert np.allclose(
        run_divergence(plan), sum(np.array(divergence(n, 1)) * n.releases for n in shared.values())
    )
    assert 7.99 < spent(shared.values()) <= 8.0
    alone = [*noises(toy_plan(PULL, own(), bfv=None).items).values(),
             *noises(toy_plan(SAY, own(), bfv=None).items).values()]  # fmt: skip
    assert spent(alone) > 8.5
    assert "against the aggregator and all other clients together, the worst view" in plan.budget
    assert "less conservative by NIST SP 800-226" in plan.budget and "% sure" in plan.budget
    assert "epsilon <= 8.000" in plan.budget or "epsilon <= 7.99" in plan.budget
    for item in (ITEM, SAID):
        assert f"{item}: " in plan.budget


def test_two_targets_for_one_run_are_refused_with_the_smaller() -> None:
    document = own().document()
    document["rules"]["NOISED"][1]["epsilon"] = 4.0
    with pytest.raises(ValidationError, match="set epsilon to 4 and delta to 1e-05 in each"):
        PrivacyPolicy.model_validate(document)


@pytest.mark.parametrize("name", sorted(set(LESS) - {"a larger epsilon", "none"}))
def test_a_client_draws_no_other_noise_than_its_policy_asks_for(name: str) -> None:
    policy = own()
    honest = toy_plan(PULL, policy, bfv=None)
    played = world(policy=policy, plan=with_noise(honest, **LESS[name]))
    with pytest.raises(Refused) as caught:
        played.start().round(1)
    assert caught.value.code == "plan"


@pytest.mark.parametrize("change", [{"pure": "1.5"}, {"mechanism": "laplace_vector"},
                                    {"adjacency": "zero-out"}, {"releases": 1}])  # fmt: skip
def test_a_client_uses_no_other_randomiser_than_its_policy_asks_for(change: Any) -> None:
    policy = own()
    honest = toy_plan(SAY, policy, bfv=None)
    played = world(SAY, policy, plan=with_noise(honest, **change))
    with pytest.raises(Refused) as caught:
        played.start().round(1)
    assert caught.value.code == "plan"
    client = played.clients[caught.value.sender]
    assert isinstance(client.last_error, NotInPlan)


@pytest.mark.parametrize("alone", ["sqkr", "discrete_gaussian", "discrete_laplace"])
def test_noised_messages_are_read_one_by_one_and_their_mean_is_near(alone: str) -> None:
    policy = own(alone=alone, noise={"epsilon": 20.0}, budget={"epsilon": 99.0, "delta": 1e-5})
    played = world(SAY, policy, rounds=1, clients=[f"client-{n:02d}" for n in range(40)], d=4)
    vector = np.array([0.3, -0.2, 0.1, 0.0])
    for site in played.sites.values():
        site.delta = vector
    each = played.start().round(1).each(Said)
    assert len(each) == 40
    found = np.mean([message.change for message in each], axis=0)
    noise = played.plan.item(SAID).noise
    error = randomiser_of(noise, 4, 1.0, SAID).variance(40)
    assert np.sum((found - vector) ** 2) < 9 * error
    sizes = {len(data) for data in played.wire if SAID.encode() in data}
    assert len(sizes) == 1


@pytest.mark.parametrize("form", [PULL, SAY])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_vector_that_is_none_is_answered_like_any_other(form: Any, bad: float) -> None:
    """A refusal, or silence, would tell of the value."""
    played = world(form)
    played.sites["client-1"].delta = np.full(5, bad)
    reply = played.start().round(1)
    assert reply.answers == 5
    kind = Pull if form is PULL else Said
    assert np.isfinite(
        reply.total(kind).change if form is PULL else reply.each(kind)[0].change
    ).all()


@pytest.mark.parametrize("form", [PULL, SAY])
def test_training_that_runs_away_is_answered_with_noise(form: Any) -> None:
    def away(site: Any, given: Any) -> Any:
        raise FloatingPointError("overflow")

    played = world(form)
    played.sites["client-2"].answer = away
    assert played.start().round(1).answers == 5


def test_control_without_own_noise_such_a_client_refuses() -> None:
    played = World(PULL, "masks")
    played.sites["client-1"].delta = np.full(5, math.nan)
    with pytest.raises(Refused) as caught:
        played.start().round(1)
    assert caught.value.code == "unfit"


def test_noise_beyond_its_head_room_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    played = world().start()
    noise = played.plan.item(ITEM).noise
    sampler = protect.SAMPLERS[noise.mechanism]
    monkeypatch.setattr(
        sampler, "sample", lambda self, stream, size: np.full(size, noise.margin + 70000)
    )
    monkeypatch.setattr("protocols.disclosures.sum.layout.SumLayout.decode", lambda *a, **k: {})
    with pytest.raises(Exception) as caught:
        played.round(1)
    assert not isinstance(caught.value, Refused), "a client told that its noise was large"


def test_the_same_vector_never_meets_the_same_noise_twice() -> None:
    bodies = []
    for _ in range(2):
        played = world(SAY).start()
        bodies.append([message.change for message in played.round(1).each(Said)])
    assert not np.allclose(np.array(bodies[0]), np.array(bodies[1]))


class Weighted(SumMessage):
    """Weighted by a private count."""

    change: Vector = real("d", unit="weight", meaning="change", scale="records")


class Counted(NoisedMessage):
    """An exact count."""

    many: int = count(unit="record", meaning="records")


@pytest.mark.parametrize(
    ("kind", "words"), [(Weighted, "private count"), (Counted, "real numbers")]
)
def test_what_own_noise_cannot_cover_is_refused(kind: Any, words: str) -> None:
    form = Form("bad", _never, (Exchange("bad", (Start,), (kind,), _never),))
    with pytest.raises(NotAdmitted) as caught:
        toy_plan(form, own(), bfv=None)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("noise", "words"),
    [
        ({"epsilon": 0.0}, "take 0.1 to 16"),
        ({"epsilon": -1.0}, "take 0.1 to 16"),
        ({"epsilon": math.inf}, "take 0.1 to 16"),
        ({"delta": 0.0}, "take 1e-5"),
        ({"delta": 0.25}, "take 1e-5"),
        ({"delta": 1e-12}, "take 1e-9"),
        ({"delta": 0.05}, None),
        ({"unit": "record"}, "'training'"),
    ],
)
def test_bad_targets_are_refused_with_the_nearest_lawful_one(noise: Any, words: Any) -> None:
    if words is None:
        own(noise=noise)  # below 1/4: lawful for the smallest cohort, and see the next test
        return
    with pytest.raises(ValidationError, match=words):
        own(noise=noise)


def test_delta_lies_below_one_over_the_clients() -> None:
    with pytest.raises(ValidationError, match=r"not below 1/21: .* set delta to 0.005 or less"):
        own(noise={"delta": 0.05}, minimum_cohort=20)
    names = [f"c{n:02d}" for n in range(20)]
    for form in (PULL, SAY):
        with pytest.raises(NotAdmitted) as caught:
            toy_plan(form, own(noise={"delta": 0.05}), bfv=None, clients=names)
        assert "set delta of own_noise to 0.005" in str(caught.value)
        toy_plan(form, own(noise={"delta": 0.049}), bfv=None, clients=names)


@pytest.mark.parametrize("bound", [0.0, math.inf, -1.0, math.nan])
def test_a_clip_that_bounds_nothing_is_refused(bound: float) -> None:
    document = own().document()
    document["rules"]["SUM"][0]["bound"] = bound
    with pytest.raises(ValidationError, match=r"take a number above 0, at most 1e6, such as 1\.0"):
        PrivacyPolicy.model_validate(document)


@pytest.mark.parametrize(
    ("disclosure", "chain"),
    [
        ("SUM", (Clip(), Quantise(), OwnNoise(epsilon=1, delta=1e-6), Mask(), Seal())),
        ("SUM", (Clip(norm="l1"), Quantise(), OwnNoise(epsilon=1, delta=1e-6), Mask(), Seal())),
        ("SUM", (Clip(norm="l2"), Quantise(), OwnNoise(epsilon=1, delta=1e-6), UnsafeClear())),
        ("SUM", (Clip(norm="l2"), Quantise(), OwnNoise(epsilon=1, delta=1e-6), Seal())),
        ("SUM", (Clip(norm="l2"), Quantise(),
                 OwnNoise(mechanism="sqkr", epsilon=1, delta=1e-6), Mask(), Seal())),
        ("SUM", (Clip(norm="l1"), Quantise(), Mask(), Seal())),
        ("NOISED", (Clip(norm="l2"), OwnNoise(epsilon=1, delta=1e-6), UnsafeClear())),
        ("NOISED", (Clip(), OwnNoise(epsilon=1, delta=1e-6), Seal())),
        ("NOISED", (Clip(norm="l2"),
                    OwnNoise(mechanism="discrete_laplace", epsilon=1, delta=1e-6), Seal())),
        ("NOISED", (OwnNoise(epsilon=1, delta=1e-6), Seal())),
        ("NOISED", (Seal(),)),
    ],
)  # fmt: skip
def test_o14_own_noise_stands_behind_its_clip_and_before_a_seal(
    disclosure: str, chain: Any
) -> None:
    document = own().document()
    rules = {**document["rules"], disclosure: [g.model_dump() for g in chain]}
    with pytest.raises(ValidationError, match=disclosure):
        PrivacyPolicy.model_validate({**document, "rules": rules})


def test_o20_own_noise_needs_a_budget() -> None:
    with pytest.raises(ValidationError, match="needs a budget"):
        own(budget=None)


@pytest.mark.parametrize("form", [PULL, SAY])
def test_a_mean_that_says_nothing_is_refused_unless_it_is_accepted(form: Any) -> None:
    with pytest.raises(NotAdmitted) as caught:
        toy_plan(form, PRESETS["ldp"], bfv=None, d=5000)
    told = str(caught.value)
    assert "accept_noise: true" in told and "minimum_cohort" in told
    toy_plan(form, own(), bfv=None, d=5000)


def test_the_refusal_names_a_cohort_that_is_admitted() -> None:
    check_useful(1.0, 1.0, 4, accepted=False)
    with pytest.raises(NotAdmitted, match="2 times the clip") as caught:
        check_useful(2.0, 1.0, 4, accepted=False)
    assert "at least 16 clients" in str(caught.value)


def test_the_longest_vector_decides_and_every_message_counts() -> None:
    chain = own(alone="discrete_gaussian").chain(Said.disclosure)
    few, many = (plan_own(chain, [(5, times)], 5, 4) for times in (3, 12))
    assert few is not None and many is not None
    assert float(many.sigma) > 1.9 * float(few.sigma)
    mixed = plan_own(chain, [(5, 3), (50, 9)], 5, 4)
    assert mixed is not None and (mixed.coordinates, mixed.releases) == (50, 12)
    assert float(few.l2) == LEVELS
