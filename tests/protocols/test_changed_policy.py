"""A policy object that was changed after it was made is checked again, or refused."""

from __future__ import annotations

import pytest

from protocols.disclosures.names import Disclosure
from protocols.errors import PolicyError
from protocols.policy.guards import Clip, Quantise, UnsafeClear
from protocols.policy.policy import PrivacyPolicy
from tests.protocols.wire import World


def without_he() -> PrivacyPolicy:
    policy = PrivacyPolicy.preset("pilot")
    policy.rules[Disclosure.SUM] = (Clip(), Quantise())
    return policy


def hollow() -> PrivacyPolicy:
    return PrivacyPolicy.preset("pilot").model_copy(update={"minimum_cohort": -4})


def empty() -> PrivacyPolicy:
    policy = PrivacyPolicy.preset("pilot")
    policy.rules[Disclosure.SUM] = ()
    return policy


@pytest.mark.parametrize("make", [without_he, hollow, empty])
def test_a_policy_that_is_none_any_more_plans_nothing(make) -> None:
    with pytest.raises(PolicyError):
        make().checked()
    with pytest.raises((PolicyError, KeyError)):
        World(policy=make())


def test_a_change_into_another_valid_policy_shows_in_the_digest() -> None:
    policy = PrivacyPolicy.preset("pilot")
    before = policy.digest
    policy.rules[Disclosure.SUM] = (Clip(), Quantise(), UnsafeClear())
    assert policy.checked().digest != before
    assert PrivacyPolicy.preset("pilot").digest == before
