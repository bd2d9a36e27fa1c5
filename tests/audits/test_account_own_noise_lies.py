"""A plan under own noise that states less than its guards add is not counted with."""

from __future__ import annotations

from typing import Any

import pytest

from audits.accounting.account import account_of
from audits.checks.documents import plan as plan_step
from audits.evidence.steps import Case, Verification
from audits.report.budget import accounts
from protocols.disclosures.names import Disclosure
from protocols.errors import EvidenceError, NotAdmitted
from protocols.plan.learns import check_covered
from protocols.plan.steps import Service
from protocols.policy.policy import PrivacyPolicy
from tests.audits.noised_run import NoisedRun, message
from tests.audits.test_account_own_noise import run
from tests.protocols.test_own_noise import own


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


def bare(kind: str) -> NoisedRun:
    """Return a run in which something left a client without its own noise."""
    made = run(both=False)
    if kind == "protection":
        made.protection = ("clip(norm=l2, bound=1)", "quantise(bits=16)", "mask", "seal")
        return made
    sealed = {"disclosure": Disclosure.SEALED, "guards": ("seal",)}
    if kind == "planned":
        made.more = (made.item("leak.up.SEALED", (message("Leak"),), **sealed),)
    made.sent = ("leak.up.SEALED",)
    return made


@pytest.mark.parametrize("kind", ["protection", "planned", "unplanned"])
def test_what_left_without_noise_falsifies_the_claim(kind: str) -> None:
    """Control: without a claim of its own noise it is said to be uncovered, and no more."""
    found = bare(kind).account()
    assert found.verdict == "FALSIFIED", found.reasons
    assert any("without noise of its own" in reason for reason in found.reasons)
    assert not accounts(Case(bare(kind).view()))[0].borne_out
    other = bare(kind)
    other.policy = PrivacyPolicy.preset("calibrated")
    other.noise = {}
    if kind == "unplanned":
        assert other.account().verdict == "NOT FALSIFIED"


def test_a_plan_without_any_of_the_policys_noise_falsifies_the_claim() -> None:
    case = Case(run(both=False).view())
    items = tuple(item.model_copy(update={"noise": None}) for item in case.plan.items)
    case.__dict__["plan"] = case.plan.model_copy(update={"items": items})
    assert account_of(case, Verification(())).verdict == "FALSIFIED"
    assert not accounts(case)[0].borne_out


def test_a_refusal_is_not_covered_and_falsifies_nothing() -> None:
    made = run(both=False)
    made.refusals = ("client-01",)
    found = made.account()
    assert found.verdict == "NOT FALSIFIED" and found.statement.startswith("ε = ∞")


def test_an_algorithms_message_is_not_the_layers_own_by_its_part() -> None:
    """A plan may call what an algorithm says a service of the layer's."""
    made = bare("planned")
    item = made.more[0].model_copy(update={"part": Service.ASK})
    assert check_of(made.plan().items) and not check_of(run(both=False).plan().items)
    assert check_of((item,))


def check_of(items: Any) -> str:
    """Return why a client refuses a plan of these items under own noise; empty if it does not."""
    try:
        check_covered(items, own())
    except NotAdmitted as error:
        return error.what
    return ""


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
