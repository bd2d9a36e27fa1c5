"""Policies of one's own: the example file, and what a file without masks says about itself."""

from __future__ import annotations

from pathlib import Path

from protocols.disclosures.names import Disclosure
from protocols.disclosures.sum.disclosure import ACTIVE_AGGREGATOR, KEY_THEFT
from protocols.disclosures.sum.guards import He
from protocols.policy.guards import Clip, Quantise, Seal
from protocols.policy.policy import PrivacyPolicy
from secure_fgl import Federation

OWN = Path(__file__).resolve().parents[2] / "examples" / "own_policy.yaml"


def job(policy: PrivacyPolicy) -> Federation:
    return Federation("synthetic_banks", partition="by_owner", clients=5, rounds=2, policy=policy)


def maskless() -> PrivacyPolicy:
    policy = PrivacyPolicy.preset("he").document()
    policy["name"] = "maskless"
    policy["rules"][str(Disclosure.SUM)] = [
        guard.model_dump() for guard in (Clip(), Quantise(), He(), Seal())
    ]
    return PrivacyPolicy.model_validate(policy)


def test_the_example_policy_runs_and_verifies(tmp_path: Path) -> None:
    run = job(PrivacyPolicy.load(OWN)).run(tmp_path / "own")
    assert run.verify().ok and run.result["backend"] == "masks"
    assert run.metrics["test_accuracy"] > 0.3


def test_encryption_without_masks_gives_the_same_model_and_says_what_it_lacks(
    tmp_path: Path,
) -> None:
    bare, masked = job(maskless()), job(PrivacyPolicy.preset("he"))
    assert {ACTIVE_AGGREGATOR, KEY_THEFT} <= set(bare.plan().warnings)
    assert not {ACTIVE_AGGREGATOR, KEY_THEFT} & set(masked.plan().warnings)
    one, other = bare.run(tmp_path / "bare"), masked.run(tmp_path / "masked")
    assert one.model_sha256 == other.model_sha256 is not None
    assert one.metrics == other.metrics
    for run, expected in ((one, True), (other, False)):
        text = (run.path / "report" / "report.json").read_text("utf-8")
        assert ("ACTIVE_AGGREGATOR" in text) is expected
