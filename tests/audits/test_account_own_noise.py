"""The account of runs under clients' own noise: local, any two data sets, all that was sent."""

from __future__ import annotations

from typing import Any

import pytest

from protocols.disclosures.names import Disclosure
from protocols.disclosures.noised.randomised import plan_own
from protocols.policy.guard import describe, guard_of
from protocols.policy.guards import OwnNoise
from protocols.privacy.noising import plan_noise
from tests.audits.noised_run import ENTRIES, NoisedRun, message
from tests.protocols.test_own_noise import own

SAID = "say.up.NOISED"
ROUNDS, CLIENTS = 3, 6


def run(*, both: bool, **lies: Any) -> NoisedRun:
    """Return a run whose sums have own noise, and other messages too if `both`."""
    policy = own()
    guard = guard_of(policy.chain(Disclosure.SUM), OwnNoise)
    assert guard is not None
    noise = plan_noise(guard, 2**15 - 1, ENTRIES, ROUNDS, 1, CLIENTS).model_dump()
    del noise["releases"]
    made = NoisedRun(clients=CLIENTS, rounds=ROUNDS, policy=policy, noise=noise)
    if both:
        chain = policy.chain(Disclosure.NOISED)
        randomised = plan_own(chain, [(ENTRIES, ROUNDS)], CLIENTS, policy.smallest_cohort)
        assert randomised is not None
        made.more = (
            made.item(
                SAID, (message("Said"),), disclosure=Disclosure.NOISED,
                guards=tuple(describe(g) for g in chain),
                noise=randomised.model_copy(update=lies),
            ),
        )  # fmt: skip
        made.sent = (SAID,)
    return made


def test_own_noise_is_local_and_the_same_against_everybody() -> None:
    found = run(both=False).account()
    assert found.verdict == "NOT FALSIFIED", found.reasons
    assert (found.epsilon.model, found.epsilon.adjacency) == ("local", "replace-one")
    assert {view.epsilon.value for view in found.views} == {found.epsilon.value}
    assert 7.99 < found.epsilon.as_float() <= 8.0 and not found.honest_share


def test_two_disclosures_compose_and_each_keeps_to_its_target() -> None:
    found = run(both=True).account()
    assert found.verdict == "NOT FALSIFIED", found.reasons
    assert set(found.covered) >= {SAID}
    assert 8.5 < found.epsilon.as_float() < 16.0
    assert found.target is not None
    assert found.target.as_float() == pytest.approx(found.epsilon.as_float(), rel=1e-6)


@pytest.mark.parametrize("lie", [{"pure": "6.0"}, {"releases": 30}])
def test_a_disclosure_beyond_its_own_target_falsifies_the_claim(lie: Any) -> None:
    found = run(both=True, **lie).account()
    assert found.verdict == "FALSIFIED"


def test_control_half_of_the_noise_falsifies_the_claim() -> None:
    doubled = run(both=False)
    doubled.noise = {**doubled.noise, "sigma": repr(float(doubled.noise["sigma"]) / 2.0)}
    assert doubled.account().verdict == "FALSIFIED"
