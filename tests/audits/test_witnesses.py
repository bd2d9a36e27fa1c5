"""The step `witnesses`: every client's ledger holds the heads of all the others."""

from __future__ import annotations

import pytest

from audits.evidence.steps import Status
from audits.evidence.verify import verify
from tests.audits.forging import rewrite
from tests.audits.lies import both, drop, finds, setting
from tests.audits.toy_run import run_toy

POLICIES = ["unsafe_plaintext", "masks", "he"]
OWN = setting("client-1", {"kind": "plan"}, time="2001-01-01T00:00:00Z")


@pytest.mark.parametrize("policy", POLICIES)
def test_an_honest_run_has_witnesses(policy):
    step = next(s for s in verify(run_toy(policy).view()).steps if s.name == "witnesses")
    assert step.status is Status.OK and "roots over all clients' heads" in step.detail


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("honest", ["client-2", "client-4"])
def test_one_honest_client_gives_all_the_others_away(policy, honest):
    whole = run_toy(policy)
    view = rewrite(whole, whole.view(reports=False), OWN, honest={honest})
    finds("witnesses", f"{honest} holds another root over all heads", view)


def test_control_without_an_honest_client_a_rewritten_ledger_passes():
    whole = run_toy("masks")
    assert verify(rewrite(whole, whole.view(reports=False), OWN)).ok


def test_an_aggregator_that_rewrites_its_own_heads_alone_is_found():
    whole = run_toy("masks")
    change = setting("aggregator", {"kind": "heads", "exchange": 2}, root="0" * 64)
    view = rewrite(whole, whole.view(reports=False), change, honest={"aggregator"})
    finds("witnesses", "is not over the heads that these ledgers hold", view)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (drop("client-2", kind="heads", exchange=3), "wrote down no heads of the others"),
        (setting("client-2", {"kind": "heads"}, received=7), "told of another receipt"),
        (setting("client-2", {"kind": "heads"}, items=7), "told of another receipt"),
        (setting("client-2", {"kind": "heads"}, exchange=1), "two roots in exchange 1"),
    ],
)
def test_a_client_that_spoils_its_own_notes_is_found(change, text):
    whole = run_toy("masks")
    view = rewrite(whole, whole.view(reports=False), change, honest={"client-2"})
    finds("witnesses", text, view)


def test_two_roots_of_one_exchange_are_found():
    whole = run_toy("masks")
    change = both(setting("aggregator", {"kind": "heads"}, exchange=1))
    view = rewrite(whole, whole.view(reports=False), change, honest={"aggregator"})
    finds("witnesses", "two roots in exchange 1", view)
