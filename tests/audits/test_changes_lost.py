"""What an attack found before is fixed only if the attack ran again, and never by its absence."""

from __future__ import annotations

import pytest

from audits.findings.changes import changes, lost
from tests.audits.test_changes import ROW, moved, snapshot


def _noted(rule: str, severity: str = "low") -> dict[str, object]:
    facts = {"fingerprint": "33" * 32, "rule": rule, "item": "totals", "payload": "P05"}
    if rule == "CLAIM_FALSIFIED":
        facts.update(item="epsilon 4", payload="")
    return {**facts, "severity": severity, "waived": False}


@pytest.mark.parametrize(
    ("rule", "verdict", "move"),
    [
        ("ATTACK_A05", "PASS", "fixed"),
        ("ATTACK_A05", "NOT_TESTED", "no longer measured"),
        ("ATTACK_A05", "INCONCLUSIVE", "no longer measured"),
        ("INCONCLUSIVE_A05", "PASS", "fixed"),
        ("INCONCLUSIVE_A05", "INVALID", "fixed"),
        ("INCONCLUSIVE_A05", "NOT_TESTED", "no longer measured"),
        ("INCONCLUSIVE_A05", "NOT_APPLICABLE", "no longer measured"),
        ("ERROR_A05", "", "no longer measured"),
        ("INVALID_A05", "ERROR", "no longer measured"),
        ("INCONCLUSIVE_A04", "PASS", "no longer measured"),  # another attack ran
        ("NOT_TESTED", "PASS", "fixed"),
        ("NOT_TESTED", "NOT_TESTED", "no longer measured"),
        ("NOT_TESTED_A05", "ERROR", "no longer measured"),
        ("ATTACKS_REFUSED", "PASS", "fixed"),
        ("ATTACKS_REFUSED", "", "no longer measured"),
        ("CLAIM_FALSIFIED", "PASS", "no longer measured"),  # A05 says nothing on a claim
        ("MISSING", "", "fixed"),
    ],
)
def test_a_finding_is_fixed_only_if_its_attack_ran_again(rule, verdict, move):
    rows = (ROW.model_copy(update={"verdict": verdict}),) if verdict else ()
    old, new = snapshot(attacks=rows, findings=(_noted(rule),)), snapshot(attacks=rows)
    assert [m for m, kind, _ in moved(old, new) if kind == "finding"] == [move]


def test_a_payload_that_no_longer_leaves_needs_no_test():
    old = snapshot(attacks=(), findings=(_noted("NOT_TESTED"),))
    found = changes(old, snapshot(attacks=(), sent=())).changes
    assert [c.move for c in found if c.kind == "finding"] == ["fixed"]


def test_a_claim_is_true_again_only_if_it_was_tested_again():
    tested = snapshot(attacks=(ROW.model_copy(update={"id": "A10"}),))
    old = snapshot(attacks=tested.attacks, findings=(_noted("CLAIM_FALSIFIED", "critical"),))
    assert moved(old, tested) == [("fixed", "finding", "critical")]
    (gone,) = [c for c in changes(old, snapshot(attacks=())).changes if c.kind == "finding"]
    assert lost(gone)


@pytest.mark.parametrize("verdict", ["", "NOT_TESTED", "ERROR", "INCONCLUSIVE"])
def test_a_lost_fail_is_as_grave_as_the_fail_was(verdict):
    failed = ROW.model_copy(update={"verdict": "FAIL"})
    rows = (ROW.model_copy(update={"verdict": verdict}),) if verdict else ()
    (gone,) = changes(snapshot(attacks=(failed,)), snapshot(attacks=rows)).changes
    assert (gone.move, gone.severity, gone.waived) == ("no longer measured", "high", False)
    assert lost(gone)
    (passed,) = changes(snapshot(), snapshot(attacks=())).changes
    assert passed.move == "no longer measured" and not lost(passed)
