"""Verification of honest runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from audits.checks.documents import OTHER_PLAN
from audits.evidence.steps import SELF_CONSISTENT, WITNESSED, Case, Status, run_checks
from audits.evidence.verify import CHECKS, verify
from tests.audits.forging import sign
from tests.audits.toy_run import maskless, run_toy
from tests.audits.verify_tools import (
    CLIENT,
    fails_at,
    lines,
    step,
)

STEPS = [
    "files",
    "plan",
    "roster",
    "approvals",
    "chain",
    "tree",
    "plan_vs_ledger",
    "receipts",
    "opened",
    "keys",
    "budget",
    "result",
    "witnesses",
    "captured",
    "report",
    "heads",
]


def test_an_honest_run_passes_every_step_in_order(view):
    found = verify(view)
    assert [s.name for s in found.steps] == STEPS == [check.name for check in CHECKS]
    left = {s.name for s in found.steps if s.status is not Status.OK}
    # A simulation has no charter, and a view in memory no captured files.
    assert left == {"approvals", "captured", "heads"}
    assert found.ok


def test_a_later_look_reads_again_what_changed_and_nothing_else(view):
    case = Case(view)
    assert run_checks(case, CHECKS).ok
    costly = {"plan", "plan_digest", "policy", "roster_file", "metrics", "ledger_index"}
    for changed, anew in (
        ({}, set()),
        ({"result_text": b"{}"}, set()),
        ({"ledgers": {**view.ledgers, CLIENT: b"{}\n"}}, {"ledger_index", "exchanges"}),
        ({"roster_text": b"{}"}, {"roster_file", "exchanges"}),
        ({"policy_text": b"{}"}, {"policy", "exchanges"}),
        ({"metrics_text": b"x"}, {"metrics"}),
        ({"plan_text": b"{}"}, {"plan", "plan_digest", "ledger_index", "exchanges"}),
    ):
        later = case.with_files(replace(view, **changed))
        kept = {n: v for n, v in vars(later).items() if n != "view"}
        assert all(value is getattr(case, name) for name, value in kept.items())
        assert set(kept) == (costly | {"exchanges"}) - anew
        assert run_checks(later, CHECKS) == verify(later.view)


def test_without_heads_held_by_others_it_is_self_consistent_only(view):
    found = verify(view)
    assert found.verdict == SELF_CONSISTENT == "self-consistent only"
    assert step(found, "heads") is Status.NOT_CHECKED


def test_with_all_heads_held_by_others_it_is_verified(toy, view):
    found = verify(replace(view, held_heads=toy.checkpoints))
    assert found.verdict == WITNESSED == "verified against heads held by others"


def test_earlier_heads_of_the_same_ledgers_are_prefixes(toy, view):
    early = {p: sign(toy, p, b"".join(lines(view, p)[:3])) for p in view.ledgers}
    found = verify(replace(view, held_heads=early))
    assert found.verdict == SELF_CONSISTENT  # the tail is witnessed by nobody
    assert found.ok and "later than those heads" in found.steps[-1].detail


def test_heads_of_some_parties_only_are_not_enough(toy, view):
    some = {CLIENT: toy.checkpoints[CLIENT]}
    found = verify(replace(view, held_heads=some))
    assert found.verdict == SELF_CONSISTENT
    assert verify(replace(view, held_heads={})).verdict == SELF_CONSISTENT


@pytest.mark.parametrize("policy", ["pilot", "masks", "ckks", "unsafe_plaintext"])
def test_other_policies_pass_too(policy):
    found = verify(run_toy(policy, rounds=1).view())
    assert found.ok, found.failed


def test_a_run_without_masks_passes_too():
    found = verify(run_toy(maskless(), rounds=1).view())
    assert found.ok, found.failed


def test_the_expected_plan_is_compared(toy, view):
    assert verify(replace(view, expected_plan=toy.plan.digest)).ok
    fails_at("plan", replace(view, expected_plan="0" * 64))
    fails_at("plan", replace(view, expected_plan=""))
    fails_at("plan", replace(view, expected_plan="é"))
    assert verify(replace(view, expected_plan="0" * 64)).failed.detail == OTHER_PLAN
    other = view.policy_text.replace(b'"minimum_cohort": 3', b'"minimum_cohort": 4')
    edited = replace(view, policy_text=other, expected_plan="0" * 64)
    assert other != view.policy_text and verify(edited).failed.detail != OTHER_PLAN
