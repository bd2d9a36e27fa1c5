"""The account of runs under clients' own noise: local, any two data sets, all that was sent."""

from __future__ import annotations

from typing import Any

import pytest

from protocols.disclosures.names import Disclosure
from protocols.policy.guard import describe
from protocols.privacy.own_target import own_noises
from tests.audits.noised_run import ENTRIES, NoisedRun, message
from tests.protocols.test_own_noise import own

SAID = "say.up.NOISED"
ROUNDS, CLIENTS = 3, 6


def run(*, both: bool, alone: str = "sqkr", **lies: Any) -> NoisedRun:
    """Return a run whose sums have own noise, and other messages too if `both`."""
    policy, sent = own(alone=alone), ((ENTRIES, ROUNDS),)
    vectors = {Disclosure.SUM: sent, **({Disclosure.NOISED: sent} if both else {})}
    noises = own_noises(policy, vectors, CLIENTS)
    noise = noises[Disclosure.SUM].model_dump()
    del noise["releases"]
    made = NoisedRun(clients=CLIENTS, rounds=ROUNDS, policy=policy, noise=noise)
    if both:
        chain = policy.chain(Disclosure.NOISED)
        made.more = (
            made.item(
                SAID, (message("Said"),), disclosure=Disclosure.NOISED,
                guards=tuple(describe(g) for g in chain),
                noise=noises[Disclosure.NOISED].model_copy(update=lies),
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


def test_two_disclosures_share_one_target() -> None:
    found = run(both=True).account()
    assert found.verdict == "NOT FALSIFIED", found.reasons
    assert set(found.covered) >= {SAID}
    assert 7.99 < found.epsilon.as_float() <= 8.0
    assert found.target is not None and found.target.as_float() == 8.0


def test_control_two_targets_spend_twice() -> None:
    """Each calibrated to the whole target, as if the other were not there."""
    made, alone = run(both=True), run(both=False)
    made.noise = alone.noise
    found = made.account()
    assert found.verdict == "FALSIFIED" and found.epsilon.as_float() > 8.2


@pytest.mark.parametrize("lie", [{"pure": "6.0"}, {"releases": 30}])
def test_a_disclosure_beyond_its_own_target_falsifies_the_claim(lie: Any) -> None:
    found = run(both=True, **lie).account()
    assert found.verdict == "FALSIFIED"


def test_control_half_of_the_noise_falsifies_the_claim() -> None:
    doubled = run(both=False)
    doubled.noise = {**doubled.noise, "sigma": repr(float(doubled.noise["sigma"]) / 2.0)}
    assert doubled.account().verdict == "FALSIFIED"
