"""Runs that ended early."""

from __future__ import annotations

import numpy as np
import pytest

from audits.evidence.verify import verify
from audits.report.build import build_report
from audits.report.models import Dropouts
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Ask, Cohort
from tests.audits.forging import forge, rewrite
from tests.audits.lies import drop
from tests.audits.toy_run import AGGREGATOR, CLIENTS, Answer, Bus, Given, run_toy
from tests.audits.verify_tools import (
    fails_at,
    refused,
    without,
)


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
