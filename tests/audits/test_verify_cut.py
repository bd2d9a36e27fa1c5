"""Runs that ended early."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from audits.checks.bundle import verify_run
from audits.evidence.steps import Status
from audits.evidence.verify import verify
from audits.report.build import build_report
from audits.report.models import Dropouts
from protocols.errors import EvidenceError
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Ask, Cohort
from secure_fgl.attack_inputs.replayed import verified
from secure_fgl.store.finished_run import Run
from tests.audits.forging import forge, rewrite
from tests.audits.lies import drop
from tests.audits.toy_run import AGGREGATOR, CLIENTS, Answer, Bus, Given, run_toy, save
from tests.audits.verify_tools import (
    fails_at,
    lines,
    refused,
    step,
    with_ledger,
    without,
)
from tests.secure_fgl.cli_tools import invoke


@pytest.mark.parametrize("policy", ["he", "masks", "unsafe_plaintext"])
def test_a_run_that_a_refusal_ended_verifies_and_says_so(policy):
    toy = refused(policy)
    found = verify(toy.view())
    assert found.ok, found.failed
    said = next(s.detail for s in found.steps if s.name == "receipts")
    assert "ended early" in said and "vanished" not in said
    assert build_report(toy.view()).dropouts == Dropouts(vanished=(), lost=())


@pytest.mark.parametrize("reached", [0, 1, 4])
def test_a_run_that_was_interrupted_verifies(reached):
    bus = Bus(PrivacyPolicy.preset("he"), 2, CLIENTS, lambda name: 0.25, synthetic=True)
    bus.play(1)
    given = Given(weights=np.zeros(8, np.float32))
    exchanges = bus.aggregator.ask(Ask(Cohort(CLIENTS), given=given, back=Answer), 2)
    for delivery in exchanges[:reached]:
        bus.others[delivery.to].receive(delivery.data)
    found = verify(bus.finish(whole=False).view())
    assert found.ok, found.failed


def test_a_run_that_ended_before_the_first_round_verifies():
    bus = Bus(PrivacyPolicy.preset("he"), 2, CLIENTS, lambda name: 0.25, synthetic=True)
    bus.aggregator.start()
    found = verify(bus.finish(whole=False).view())
    assert found.ok, found.failed


@pytest.mark.parametrize("policy", ["he", "masks"])
def test_a_denied_receipt_is_not_excused_when_the_exchange_was_complete(policy):
    # The last exchange is complete, so "the run ended early" is no excuse for its last upload.
    toy = run_toy(policy, rounds=1)
    denied = without("receipt", sender=CLIENTS[-1], item="step.up.SUM")
    fails_at("receipts", forge(toy, toy.view(), AGGREGATOR, denied))


def test_in_clear_a_denied_upload_is_found_by_whoever_got_something_later():
    """Nothing is opened, so no count contradicts the aggregator."""
    denied = without("receipt", sender=CLIENTS[-1], item="step.up.SUM")
    toy = run_toy("unsafe_plaintext", rounds=1, clients=(*CLIENTS, "client-5"))
    fails_at("receipts", forge(toy, toy.view(), AGGREGATOR, denied))


def test_control_only_all_together_deny_an_upload_in_clear():
    toy = run_toy("unsafe_plaintext", rounds=1, clients=(*CLIENTS, "client-5"))
    denied = drop(AGGREGATOR, kind="receipt", sender=CLIENTS[-1], item="step.up.SUM")
    view = toy.view(reports=False)
    fails_at("witnesses", rewrite(toy, view, denied, honest={"client-1"}))
    found = verify(rewrite(toy, view, denied))
    assert found.ok
    said = next(s.detail for s in found.steps if s.name == "receipts")
    assert said.endswith("vanished: client-4 in round 1")


def test_a_run_that_goes_on_states_how_far_it_holds(tmp_path: Path) -> None:
    """A client's ledger was read a moment before the others, which is no sign of a forger."""
    bus = Bus(PrivacyPolicy.preset("he"), 3, CLIENTS, lambda name: 0.25, synthetic=True)
    bus.play(2)
    bus.toy.finished = False
    whole = replace(bus.toy.view(reports=False), metrics_text=b"")
    early = b"".join(lines(whole, CLIENTS[0])[:-3])
    view = with_ledger(whole, CLIENTS[0], early)
    found = verify_run(view)
    assert found.ok, found.failed
    count = sum(data.count(b"\n") for data in view.ledgers.values())
    assert found.verdict == f"no end recorded: 2 rounds, {count} entries verified so far"
    assert step(found, "plan_vs_ledger") is Status.OK
    assert {step(found, name) for name in ("tree", "receipts", "report")} == {Status.NOT_CHECKED}
    path = save(view, tmp_path / "run")
    shown = invoke("audit", "verify", path)
    assert shown.exit_code == 4 and "Verdict: no end recorded: 2 rounds" in shown.stdout
    assert "Integrity: no end recorded: 2 rounds" in " ".join(shown.stdout.split())
    assert json.loads(invoke("audit", "verify", path, "--format", "json").stdout)["ok"] is False
    forged = with_ledger(view, CLIENTS[0], early.replace(b"release", b"receipt", 1))
    broken = verify_run(forged)
    assert broken.verdict == "FAILED at chain" and not broken.so_far
    ended = verify_run(replace(run_toy(rounds=1).view(), checkpoints={}))
    assert ended.verdict == "FAILED at files"


def test_nothing_but_verify_takes_a_run_without_an_end(tmp_path: Path) -> None:
    """Whoever takes away all ends, heads and the result of a finished run gains nothing by it."""
    whole = run_toy(rounds=1).view()
    ledgers = {
        name: b"".join(line for line in data.splitlines(keepends=True) if b'"close"' not in line)
        for name, data in whole.ledgers.items()
    }
    view = replace(whole, ledgers=ledgers, checkpoints={}, result_text=b"", metrics_text=b"")
    assert verify_run(view).so_far  # the control: this one is read as a run that goes on
    fails_at("files", view)
    assert build_report(view).verdict_strip[5].state == "FAIL"
    run = Run(save(view, tmp_path / "run"))
    with pytest.raises(EvidenceError, match="nothing of the run was used further"):
        verified(run)
    shown = invoke("audit", "attack", run.path)
    assert shown.exit_code == 5
