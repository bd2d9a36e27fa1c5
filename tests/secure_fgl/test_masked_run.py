"""The policy file in examples/ masks inside the ciphertext, and the model stays the same."""

from __future__ import annotations

from pathlib import Path

from protocols.policy import PrivacyPolicy
from secure_fgl import Federation

POLICY = Path(__file__).resolve().parents[2] / "examples" / "masked_policy.yaml"


def job(policy: PrivacyPolicy) -> Federation:
    return Federation("synthetic_banks", partition="by_owner", clients=5, rounds=2, policy=policy)


def test_a_masked_run_ends_with_the_same_model_and_verifies(tmp_path: Path) -> None:
    masked = job(PrivacyPolicy.load(POLICY)).run(tmp_path / "masked")
    plain = job(PrivacyPolicy.preset("he")).run(tmp_path / "he")
    assert masked.model_sha256 == plain.model_sha256 is not None
    assert masked.metrics == plain.metrics
    outcome = masked.verify()
    assert outcome.ok and outcome.verdict == "self-consistent only"
    assert "ACTIVE_AGGREGATOR" not in (masked.path / "report" / "report.json").read_text("utf-8")
    assert "ACTIVE_AGGREGATOR" in (plain.path / "report" / "report.json").read_text("utf-8")
