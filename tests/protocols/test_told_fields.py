"""Categories and bounded numbers of one client as messages of a run, told by its own noise."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from crypto.ldp import DrawnCategory, Piecewise
from protocols.disclosures.noised.randomiser import parts_of, randomiser_of
from protocols.errors import NotAdmitted, NotInPlan, Refused
from protocols.forms import Exchange, Form
from protocols.messages import NoisedMessage, SumMessage, Vector, bounded, category, real
from protocols.privacy.noising import run_divergence
from protocols.privacy.renyi import net_epsilon
from tests.protocols.test_noised import with_noise
from tests.protocols.test_own_noise import _never, own, world
from tests.protocols.toys import Start, Toy, toy_plan

ITEM = "tell.up.NOISED"


class Told(NoisedMessage):
    """A category of five, and a number."""

    labels: Vector = category(5, unit="record", meaning="records of a class")
    share: float = bounded(unit="share", meaning="a share")


def tell(site: Toy, given: Start) -> Told:
    if site.answer is not None:
        return site.answer(site, given)
    return Told(labels=np.array([0.0, 3.0, 0.0, 1.0, 0.0]), share=0.75)


TELL = Form("tell", _never, (Exchange("tell", (Start,), (Told,), tell, 0, outside=1),))


def policy(epsilon: float = 8.0, **facts: Any) -> Any:
    budget = {"epsilon": 99.0, "delta": 1e-5}
    return own(noise={"epsilon": epsilon, **facts}, budget=budget)


def test_each_field_is_told_by_its_kind_with_its_share_of_epsilon() -> None:
    plan = toy_plan(TELL, policy(), bfv=None)
    item = plan.item(ITEM)
    assert [field.told for field in item.messages[0].fields] == ["category", "bounded"]
    made = randomiser_of(item.noise, parts_of((Told,), {}), 1.0, item.label)
    labels, share = (one for _, one in made.parts)
    assert isinstance(labels, DrawnCategory) and isinstance(share, Piecewise)
    assert labels.epsilon == share.epsilon == Fraction(item.noise.pure) / 2
    spent = net_epsilon(np.array(run_divergence(plan)), 1e-5, tails=0.0)[0]
    assert 7.9 < spent <= 8.0
    assert "of labels (one drawn of 5) and share (a number)" in plan.budget
    assert "the best round: no data" in plan.budget


def test_the_mean_of_what_is_read_is_near_and_all_bodies_have_one_size() -> None:
    names = [f"client-{n:02d}" for n in range(40)]
    played = world(TELL, policy(20.0), rounds=1, clients=names, d=4)
    played.sites["client-00"].answer = failing
    each = played.start().round(1).each(Told)
    labels = np.mean([one.labels for one in each], axis=0)
    assert len(each) == 40 and labels.shape == (5,)
    assert (
        np.abs(labels - [0, 0.75, 0, 0.25, 0]).max() < 0.5
    )  # seven standard errors of 40 new draws
    assert abs(np.mean([one.share for one in each]) - 0.75) < 0.1
    assert len({len(data) for data in played.wire if ITEM.encode() in data}) == 1


def failing(site: Any, given: Any) -> Any:
    raise ValueError("no labels here")


@pytest.mark.parametrize("change", [{"pure": "7.5"}, {"mechanism": "laplace_vector"}])
def test_a_client_tells_by_no_other_noise_than_its_policy_asks_for(change: Any) -> None:
    asked = policy(4.0)
    played = world(TELL, asked, plan=with_noise(toy_plan(TELL, asked, bfv=None), **change))
    with pytest.raises(Refused) as caught:
        played.start().round(1)
    assert caught.value.code == "plan"
    assert isinstance(played.clients[caught.value.sender].last_error, NotInPlan)


def test_noise_without_a_pure_epsilon_and_useless_means_are_refused() -> None:
    for chain, words in (
        (own(alone="discrete_gaussian"), "discrete_gaussian has none"),
        (own(noise={"epsilon": 0.2, "accept_noise": False}), "accept_noise: true"),
    ):
        with pytest.raises(NotAdmitted) as caught:
            toy_plan(TELL, chain, bfv=None)
        assert words in str(caught.value)


class Mixed(NoisedMessage):
    """A vector and a number."""

    change: Vector = real("d", unit="weight", meaning="change")
    share: float = bounded(unit="share", meaning="a share")


def test_a_vector_is_not_told_beside_a_field_of_its_own() -> None:
    form = Form("bad", _never, (Exchange("bad", (Start,), (Mixed,), _never),))
    with pytest.raises(NotAdmitted) as caught:
        toy_plan(form, own(), bfv=None)
    assert "in answer to two Asks" in str(caught.value)


def test_only_noised_messages_are_told_by_themselves() -> None:
    with pytest.raises(TypeError, match="only a NOISED message"):

        class Summed(SumMessage):
            """A sum."""

            share: float = bounded(unit="share", meaning="a share")
