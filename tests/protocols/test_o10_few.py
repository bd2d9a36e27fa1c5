"""O10 where hardly enough others are there: what is refused, and what the plan says of the rest."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crypto.homomorphic.weighted import flatten
from protocols.disclosures.weighted_sum.disclosure import EVEN, ROWS
from protocols.errors import NotAdmitted
from protocols.policy.policy import PrivacyPolicy
from tests.protocols.pub import PUB, changed, pub
from tests.protocols.rows_tools import softmax
from tests.protocols.toys import names_of, toy_algorithm, toy_plan


@pytest.mark.parametrize(("others", "top"), [(3, 1), (3, 3), (5, 5)])
def test_a_form_that_weighs_too_few_others_is_refused(others, top):
    """With no more than the smallest group, all of it is weighed alike, or nobody."""
    policy = changed(minimum_cohort=others)
    with pytest.raises(NotAdmitted) as refused:
        policy.admit(toy_algorithm(replace(PUB, top=top)))
    assert f"{top} others at most (top)" in refused.value.why
    assert f"more than {others}" in refused.value.why
    assert policy.admit(toy_algorithm(replace(PUB, top=others + 1))).top == others + 1
    assert PrivacyPolicy.preset("unsafe_plaintext").admit(toy_algorithm(replace(PUB, top=top)))


@pytest.mark.parametrize(("minimum", "clients"), [(3, 4), (4, 5)])
def test_the_plan_says_that_weights_mean_nothing_among_the_fewest(minimum, clients):
    policy = changed(minimum_cohort=minimum)
    warned, control = (pub(policy, clients=n).plan.warnings for n in (clients, clients + 1))
    assert EVEN in warned and EVEN not in control and ROWS in control
    assert EVEN not in toy_plan(policy=policy, clients=names_of(clients)).warnings  # totals only


def test_and_so_it_is():
    alike = np.random.default_rng(1).normal(size=(4, 4))
    wanted = softmax(alike, 2.0)
    table = flatten(wanted, 3).table
    for place, row in enumerate(table):
        assert np.ptp(np.delete(row, place)) == 0
    five = flatten(softmax(np.random.default_rng(1).normal(size=(5, 5)), 0.5), 3).table
    assert all(np.ptp(np.delete(row, i)) > 0 for i, row in enumerate(five))  # the control
