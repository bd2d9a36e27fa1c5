"""A plan under own noise that states less than its guards add is not counted with."""

from __future__ import annotations

from typing import Any

import pytest

from audits.checks.documents import plan as plan_step
from audits.evidence.steps import Case
from protocols.errors import EvidenceError
from tests.audits.noised_run import NoisedRun
from tests.audits.test_account_own_noise import run


def lying(**lies: Any) -> NoisedRun:
    """Return a run of sums whose planned noise is too small, and says what hides that."""
    made = run(both=False)
    made.noise = {**made.noise, "sigma": repr(float(made.noise["sigma"]) / 2.0), **lies}
    return made


def test_control_too_little_noise_falsifies_the_claim() -> None:
    assert lying().account().verdict == "FALSIFIED"


def test_noise_on_sums_has_no_pure_epsilon() -> None:
    """Its scale would not be looked at."""
    with pytest.raises(EvidenceError):
        lying(pure="0.001").account()


@pytest.mark.parametrize("mechanism", ["gaussian_vector", "laplace_vector"])
def test_a_randomiser_has_a_pure_epsilon_or_none_as_its_mechanism_does(mechanism: str) -> None:
    pure = {"gaussian_vector": "0.001", "laplace_vector": ""}[mechanism]
    lie = {"mechanism": mechanism, "pure": pure, "sigma": "9e9", "l2": "65536.0", "l1": "1e6"}
    with pytest.raises(EvidenceError):
        run(both=True, **lie).account()


@pytest.mark.parametrize("honest", [1, 4])
def test_own_noise_is_not_counted_as_if_it_were_shared(honest: int) -> None:
    """Zero-out counts half of the distance, and others' shares."""
    found = lying(adjacency="zero-out", honest=honest).account()
    assert found.verdict == "FALSIFIED" or found.not_covered


@pytest.mark.parametrize(
    "lie",
    [{}, {"sigma": "1.0"}, {"sigma": "9e9"}, {"l1": "1.0"}, {"l2": "9.0"}, {"margin": 7},
     {"coordinates": 99}, {"pure": "0.5"}, {"mechanism": "sqkr"}],
    ids=str,
)  # fmt: skip
def test_what_a_randomiser_is_said_to_draw_by_is_computed_again(lie: Any) -> None:
    """A Laplace vector draws by its pure epsilon; what stands beside it is nobody's word."""
    made = run(both=True, alone="discrete_laplace", **lie)
    found = made.account()
    if not lie:  # control: the honest plan
        assert found.verdict == "NOT FALSIFIED", found.reasons
        assert "name this plan" in plan_step(Case(made.view()))
        return
    (name,) = lie
    assert found.verdict == "FALSIFIED"
    assert any(f"states another {name}" in reason for reason in found.reasons)
    with pytest.raises(EvidenceError, match="not what the policy's target needs") as caught:
        plan_step(Case(made.view()))
    assert caught.value.step == "plan"
