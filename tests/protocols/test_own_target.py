"""One target for all that a client sends; nothing without noise, and no number that is infinite."""

from __future__ import annotations

import re
from typing import Any

import pytest

from protocols.disclosures.names import Disclosure
from protocols.errors import NotAdmitted, NotInPlan, PolicyError, Refused
from protocols.forms import Exchange, Form
from protocols.messages import (
    MatchMessage,
    Matrix,
    Message,
    MixedMessage,
    NoisedMessage,
    SealedMessage,
    SimilarityMessage,
    Vector,
    WeightedSumMessage,
    count,
    real,
)
from protocols.plan.learns import check_covered
from protocols.plan.plan import NoisePlan
from protocols.policy.guards import UnsafeClear
from protocols.policy.policy import PrivacyPolicy
from protocols.privacy.noising import divergence
from protocols.privacy.own_target import check_own, of_plan, own_noises
from tests.protocols.test_own_noise import BOTH, ITEM, SAID, SAY, Reserve, Said, _never, own
from tests.protocols.toys import PULL, Start, toy_plan
from tests.protocols.wire import World


class Boxed(SealedMessage):
    """One row for each member."""

    row: Matrix = real("cohort", "d", unit="weight", meaning="a row for one member")


class Weighed(WeightedSumMessage):
    """A model."""

    model: Vector = real("d", unit="weight", meaning="a model", wire="f4")


class Portrait(SimilarityMessage):
    """What is compared."""

    portrait: Vector = real("d", unit="1", meaning="a portrait")


class Mixtures(MixedMessage):
    """Mixed records."""

    features: Matrix = real("mixtures", "d", unit="1", meaning="mixed records", wire="f4")


class Held(MatchMessage):
    """Items and a vector."""

    items: Vector = count("d", unit="item", meaning="items held", key=True)
    vector: Vector = real("d", unit="1", meaning="a vector", carried=Disclosure.SUM)


BARE: tuple[type[Message], ...] = (Boxed, Weighed, Portrait, Mixtures, Held)


def beside(kind: type[Message]) -> Form[Any]:
    """Return a form, such as a plug-in's, that says a message beside noised ones."""
    form = Form("beside", _never, (*PULL.exchanges, Exchange("more", (Start,), (kind,), _never)))
    return form


def naming(*kinds: type[Message]) -> PrivacyPolicy:
    """Return a policy with own noise that lets other disclosures out in clear."""
    document = own().document()
    rules = dict(document["rules"])
    for kind in kinds:
        rules.setdefault(str(kind.disclosure), [UnsafeClear().model_dump()])
    return PrivacyPolicy.model_validate({**document, "rules": rules})


@pytest.mark.parametrize("kind", BARE, ids=lambda kind: str(kind.disclosure))
def test_nothing_without_noise_stands_beside_own_noise(kind: type[Message]) -> None:
    try:
        policy = naming(kind)
    except ValueError as error:  # two disclosures are refused beside any budget (O16)
        assert "cannot be accounted" in str(error)
        return
    with pytest.raises(NotAdmitted) as caught:
        toy_plan(beside(kind), policy, bfv=None)
    told = str(caught.value)
    assert f"message {kind.__name__} ({kind.disclosure}) would leave a client without noise" in told
    assert "say it as" in told


def test_sealed_rows_are_refused_by_the_preset_too() -> None:
    with pytest.raises(NotAdmitted, match="not admit") as caught:
        toy_plan(beside(Boxed), PrivacyPolicy.preset("ldp"), bfv=None)
    assert "Boxed (SEALED) would leave a client without noise" in str(caught.value)


def test_control_without_own_noise_they_are_admitted() -> None:
    assert toy_plan(beside(Boxed), PrivacyPolicy.preset("masks"), bfv=None).form == "beside"


@pytest.mark.parametrize("bare", ["SUM", "NOISED"])
def test_a_chain_without_own_noise_beside_one_with_it_is_refused(bare: str) -> None:
    document = own().document()
    document["rules"][bare] = {
        "SUM": [{"guard": "clip"}, {"guard": "quantise"}, {"guard": "mask"}, {"guard": "seal"}],
        "NOISED": [{"guard": "unsafe_clear"}],
    }[bare]
    with pytest.raises(NotAdmitted) as caught:
        toy_plan(BOTH, PrivacyPolicy.model_validate(document), bfv=None)
    assert f"put 'own_noise' into the chain of {bare}" in str(caught.value)


def test_a_client_begins_no_run_whose_plan_lets_something_out_without_noise() -> None:
    """The aggregator's plan, approved in haste: an answer's item is of a kind that has no noise."""
    policy, plan = own(), toy_plan(PULL, own(), bfv=None)
    bare = toy_plan(beside(Boxed), PrivacyPolicy.preset("masks"), bfv=None).item("more.up.SEALED")
    with pytest.raises(NotAdmitted, match=r"more\.up\.SEALED would leave a client without noise"):
        check_covered((*plan.items, bare), policy)
    forged = plan.model_copy(update={"items": (*plan.items, bare)})
    reserve = Reserve()
    with pytest.raises((Refused, NotAdmitted)):
        World(PULL, policy, reserve=reserve, plan=forged).start().round(1)
    assert not reserve.asked


def test_each_share_is_smaller_the_more_there_is_to_say() -> None:
    one = {Disclosure.SUM: ((5, 3),)}
    both = {**one, Disclosure.NOISED: ((5, 3),)}
    alone, shared = (own_noises(own(), found, 5)[Disclosure.SUM] for found in (one, both))
    assert float(shared.sigma) > float(alone.sigma) and shared.epsilon == alone.epsilon
    assert max(divergence(shared, 1)) < max(divergence(alone, 1))


@pytest.mark.parametrize("name", sorted(NoisePlan.model_fields))
def test_every_number_of_a_planned_noise_follows_from_the_policy(name: str) -> None:
    """Also what nothing is drawn by: a Laplace vector's sigma beside its pure epsilon."""
    policy = own(alone="discrete_laplace")
    plan = toy_plan(BOTH, policy, bfv=None)
    check_own(plan, policy)
    for id in (ITEM, SAID):
        noise = plan.item(id).noise
        assert noise is not None
        given = getattr(noise, name)
        lie = given + 1 if isinstance(given, int) else _other(name, given)
        items = tuple(
            item.model_copy(update={"noise": noise.model_copy(update={name: lie})})
            if item.id == id else item
            for item in plan.items
        )  # fmt: skip
        with pytest.raises(NotInPlan) as caught:
            check_own(plan.model_copy(update={"items": items}), policy)
        assert f"another {name}" in str(caught.value)


def _other(name: str, given: str) -> str:
    if name in ("mechanism", "adjacency"):
        return {"mechanism": "sqkr", "adjacency": "zero-out"}[name]
    return repr(2.0 * float(given)) if given else "1.0"


def test_a_plan_without_the_noise_or_with_noise_that_no_policy_asks_for_is_none() -> None:
    policy, plan = own(), toy_plan(PULL, own(), bfv=None)
    bare = tuple(item.model_copy(update={"noise": None}) for item in plan.items)
    with pytest.raises(NotInPlan, match="not what the policy's target needs"):
        check_own(plan.model_copy(update={"items": bare}), policy)
    with pytest.raises(NotInPlan, match="not what the policy's target needs"):
        check_own(plan, PrivacyPolicy.preset("masks"))
    assert of_plan(plan) == {Disclosure.SUM: (((("", 5),), 3),)}


@pytest.mark.parametrize("form", [PULL, SAY, BOTH], ids=lambda form: str(form.name))
@pytest.mark.parametrize("mechanism", ["discrete_laplace", "discrete_gaussian"])
def test_an_epsilon_that_nobody_can_state_is_refused_with_the_largest_that_can(
    form: Any, mechanism: str
) -> None:
    def with_epsilon(epsilon: float) -> Any:
        policy = own(mechanism, mechanism, noise={"epsilon": epsilon})
        return toy_plan(form, policy, bfv=None)

    with pytest.raises(PolicyError) as caught:
        with_epsilon(300.0)
    told = re.search(r"set epsilon of own_noise to (\d+) or less", str(caught.value))
    assert told is not None
    nearest = float(told[1])
    assert 100 < nearest < 300
    if mechanism == "discrete_laplace":  # Gaussian noise would be too small for the grid of NOISED
        assert "infinity" not in with_epsilon(nearest).budget


class Also(NoisedMessage):
    """A second message of the same records in one answer."""

    more: Vector = real("d", unit="weight", meaning="more of the same")


def test_several_messages_of_one_answer_are_refused_or_counted() -> None:
    """Read one by one they would each need a share; one message with both fields has one."""
    both = Form("both", _never, (Exchange("say", (Start,), (Said, Also), _never),))
    with pytest.raises(NotAdmitted) as caught:
        toy_plan(both, own(), bfv=None)
    assert "say holds two NOISED messages; one is possible" in str(caught.value)
    twice = Form("twice", _never, (*SAY.exchanges, Exchange("again", (Start,), (Also,), _never)))
    noise = toy_plan(twice, own(), bfv=None).item(SAID).noise
    alone = toy_plan(SAY, own(), bfv=None).item(SAID).noise
    assert noise is not None and alone is not None
    assert noise.releases == 2 * alone.releases and float(noise.pure) < float(alone.pure)
