"""Tampering by a party that holds its own key."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

import numpy as np
import pytest

from audits.bundle.archive import digests_text
from audits.checks.parties import Forgotten, note_of
from audits.evidence.run_files import read_plan
from audits.evidence.steps import SELF_CONSISTENT, Status
from audits.evidence.verify import verify
from audits.report.build import build_report
from crypto.signing import canonical
from protocols.evidence.ledger import Entry
from protocols.policy.policy import PrivacyPolicy
from protocols.rounds import Ask, Cohort
from protocols.wire.roster import cohort_digest
from secure_fgl.store.files import Folder
from secure_fgl.store.sides.party_side import weights_of
from tests.audits.forging import edit_last, forge, sign
from tests.audits.toy_run import (
    AGGREGATOR,
    AUTHORITY,
    CLIENTS,
    RESULT,
    WEIGHTS,
    Answer,
    Bus,
    Given,
    run_toy,
    stated,
    text,
)
from tests.audits.verify_tools import (
    CLIENT,
    fails_at,
    step,
    without,
)


def test_metrics_may_be_absent_altogether_and_only_then(toy, view):
    """A policy under which no score leaves: nothing to be best by, and no best model."""
    metrics = dict.fromkeys(
        ("best_round", "test_accuracy", "test_accuracy_client_mean", "val_accuracy")
    )
    digest = hashlib.sha256(b"").hexdigest()
    facts = {**stated(metrics=metrics), "metrics": digest, "best": ""}
    bare = forge(toy, view, AGGREGATOR, edit_last("close", result=facts))
    bare = replace(bare, metrics_text=b"", weights={"final": WEIGHTS["final"]})
    none = replace(bare, result_text=text({**RESULT, "metrics": metrics}))
    assert step(verify(none), "result") is Status.OK
    assert not any(f.rule == "IMPOSSIBLE_METRIC" for f in build_report(none).findings)
    for changed in (
        {**metrics, "best_round": 1},
        {**metrics, "val_accuracy": 0.5},
        {},
        None,
        {k: v for k, v in metrics.items() if k != "val_accuracy"},
    ):
        fails_at("result", replace(bare, result_text=text({**RESULT, "metrics": changed})))
    fails_at("result", replace(none, weights=dict(WEIGHTS)))
    fails_at("result", replace(view, reports={}, result_text=none.result_text))
    kept = forge(toy, view, AGGREGATOR, edit_last("close", result={**stated(), "metrics": digest}))
    fails_at("result", replace(kept, metrics_text=b"", result_text=none.result_text))


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ({"round": 1, "test_accuracy": 0.5}, "no validation score"),
        ({"round": "1", "test_accuracy": 0.5, "val_accuracy": 0.375}, "names no round"),
    ],
)
def test_a_line_of_metrics_without_score_or_round_fails_at_result(toy, view, line, why):
    lines = json.dumps(line).encode() + b"\n"
    facts = {**stated(), "metrics": hashlib.sha256(lines).hexdigest()}
    changed = forge(toy, view, AGGREGATOR, edit_last("close", result=facts))
    metrics = {"best_round" if name == "round" else name: value for name, value in line.items()}
    result = text({**RESULT, "metrics": metrics})
    changed = replace(changed, metrics_text=lines, result_text=result)
    fails_at("result", changed)
    assert why in verify(changed).failed.detail


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"item": "step.up.NOISED"}, "no planned item"),
        ({"item": "step.down"}, "not for this role"),
        ({"recipient": "client-1"}, "another role"),
        ({"recipient": "nobody"}, "another role"),
        ({"sender": "client-1"}, "another sender"),
        ({"bytes": 10**9}, "larger"),
        ({"round": 3}, "beyond the plan"),
        ({"disclosure": "NOISED"}, "discloses something else"),
        ({"messages": "Answer+Secret"}, "other messages"),
        ({"protection": ["unsafe_clear"]}, "protected in another way"),
        ({"protection": []}, "protected in another way"),
        ({"unsafe": True}, "protected in another way"),
    ],
)
def test_a_release_that_is_not_as_planned_fails_at_plan_vs_ledger(toy, view, facts, why):
    changed = forge(toy, view, CLIENT, edit_last("release", **facts))
    fails_at("plan_vs_ledger", changed)
    assert why in verify(changed).failed.detail


@pytest.mark.parametrize("beyond", [0, 1])
def test_a_release_is_as_large_as_planned_at_most(toy, view, beyond):
    planned = {item.id: item.bytes for item in read_plan(view.plan_text).items}

    def grown(entries):
        last = max(n for n, e in enumerate(entries) if e["kind"] == "release")
        large = {"bytes": planned[entries[last]["item"]] + beyond}
        return [{**e, **large} if n == last else e for n, e in enumerate(entries)]

    failed = {
        s.name for s in verify(forge(toy, view, CLIENT, grown)).steps if s.status is Status.FAIL
    }
    assert ("plan_vs_ledger" in failed) is bool(beyond)


def test_more_releases_than_planned_fail_at_plan_vs_ledger(toy, view):
    def again(entries):
        last = max(n for n, e in enumerate(entries) if e["kind"] == "release")
        return [*entries, {**entries[last], "commitment": "ab" * 32}]

    fails_at("plan_vs_ledger", forge(toy, view, CLIENT, again))


def test_a_hidden_release_fails_at_receipts(toy, view):
    fails_at("receipts", forge(toy, view, CLIENT, without("release")))


def test_a_denied_receipt_fails_at_receipts(toy, view):
    denied = without("receipt", sender=CLIENT, item="step.up.SUM")
    fails_at("receipts", forge(toy, view, AGGREGATOR, denied))


def test_an_acknowledged_farewell_that_is_denied_is_no_loss(toy, view):
    denied = without("receipt", sender=CLIENT, item="heads.ack")
    assert verify(forge(toy, view, AGGREGATOR, denied)).ok  # nothing rests on it


def test_a_cut_tail_signed_by_the_party_itself_fails_at_receipts(toy, view):
    fails_at("receipts", forge(toy, view, CLIENT, lambda entries: entries[:-3]))


def test_a_client_that_denies_the_key_fails_at_receipts(toy, view):
    fails_at("receipts", forge(toy, view, CLIENT, without("receipt", item="key.offer")))


def test_reordered_receipts_fail_at_receipts(toy, view):
    def swap(entries):
        mine = [n for n, e in enumerate(entries) if e["kind"] == "receipt" and "down" in e["item"]]
        first, last = mine[0], mine[-1]
        entries[first], entries[last] = entries[last], entries[first]
        return entries

    # The releases in between move to other heads, and those heads travelled in signed headers.
    fails_at("receipts", forge(toy, view, CLIENT, swap))


def test_a_receipt_written_twice_fails_at_receipts(toy, view):
    def twice(entries):
        last = max(n for n, e in enumerate(entries) if e["kind"] == "receipt")
        return [*entries[: last + 1], entries[last], *entries[last + 1 :]]

    fails_at("receipts", forge(toy, view, AUTHORITY, twice))


def test_a_receipt_of_something_else_fails_at_receipts(toy, view):
    for facts in ({"bytes": 1}, {"given": "ab" * 32}, {"commitment": "ab" * 32}):
        fails_at("receipts", forge(toy, view, CLIENT, edit_last("receipt", **facts)))


def test_a_sender_that_rewrote_its_past_fails_at_receipts(toy, view):
    # Every fact of the release stays; only an entry before it changed, which moves its head.
    changed = forge(toy, view, CLIENT, edit_last("key", key="ab" * 16))
    fails_at("receipts", changed)
    assert "saw another ledger" in verify(changed).failed.detail


def test_a_rewritten_end_is_seen_only_with_heads_held_by_others(toy, view):
    # Nobody else has a record of a party's last entry: this is what held heads are for.
    changed = forge(toy, view, CLIENT, edit_last("close", state="DEAD"))
    found = verify(changed)
    assert found.verdict == SELF_CONSISTENT
    fails_at("heads", replace(changed, held_heads=toy.checkpoints))


def test_a_run_whose_keys_were_all_replaced_fails_at_heads(toy):
    forged = run_toy().view(reports=False)
    assert verify(forged).verdict == SELF_CONSISTENT
    fails_at("heads", replace(forged, held_heads=toy.checkpoints))


def test_a_held_head_of_a_longer_ledger_fails_at_heads(toy, view):
    longer = sign(toy, CLIENT, view.ledgers[CLIENT] + b"{}\n")
    fails_at("heads", replace(view, held_heads={CLIENT: longer}))
    fails_at("heads", replace(view, held_heads={"stranger": longer}))
    fails_at("heads", replace(view, held_heads={CLIENT: "no head"}))


def test_o5_a_total_that_was_opened_unrecorded_fails_at_opened(toy, view):
    found = verify(forge(toy, view, AUTHORITY, without("open")))
    assert step(found, "opened") is Status.FAIL


def test_o5_an_exchange_opened_twice_fails_at_opened(toy, view):
    def twice(entries):
        last = max(n for n, e in enumerate(entries) if e["kind"] == "open")
        return [*entries[: last + 1], entries[last], *entries[last + 1 :]]

    found = verify(forge(toy, view, AUTHORITY, twice))
    assert step(found, "opened") is Status.FAIL
    assert "twice" in next(s.detail for s in found.steps if s.name == "opened")


@pytest.mark.parametrize("facts", [{"members": 3}, {"cohort": "ab" * 32}, {"exchange": 9}])
def test_o10_an_opening_for_another_cohort_fails_at_opened(toy, view, facts):
    found = verify(forge(toy, view, AUTHORITY, edit_last("open", **facts)))
    assert step(found, "opened") is Status.FAIL


def test_o5_overlapping_cohorts_of_one_round_fail_at_opened():
    bus = Bus(
        PrivacyPolicy.preset("he"), 2, (*CLIENTS, "client-5"), lambda name: 0.25, synthetic=True
    )
    names = bus.toy.plan.clients
    _two_cohorts(bus, names[:4], names[1:])
    toy = bus.finish()
    view = toy.view()
    assert verify(view).ok  # two rounds: allowed

    def into_round_one(entries: list[Entry]) -> list[Entry]:
        digest = cohort_digest(toy.run, toy.plan.digest, 1, 1, names[1:])
        moved = {"round": 1, "cohort": digest}
        return [{**e, **moved} if e.get("exchange") == 2 and "cohort" in e else e for e in entries]

    for party in view.ledgers:
        view = forge(toy, view, party, into_round_one)
    found = verify(view)
    assert step(found, "opened") is Status.FAIL
    assert "overlapping" in next(s.detail for s in found.steps if s.name == "opened")


def _two_cohorts(bus: Bus, *groups: tuple[str, ...]) -> None:
    bus.deliver(bus.aggregator.start())
    for number, group in enumerate(groups, 1):
        given = Given(weights=np.zeros(8, np.float32))
        bus.ask(Ask(Cohort(group), given=given, back=Answer), number)


def test_nobody_signs_a_simulation_with_a_charter_or_an_empty_list_of_approvals(toy, view):
    """Names of organisations in a report are of a charter that all signed, and of no other."""
    names = {name: "St Mary" for name in (*CLIENTS, AGGREGATOR, AUTHORITY)}
    made_up = canonical(
        {
            **dict.fromkeys(("run", "nonce", "plan", "policy", "config"), ""),
            "parties": [], "carriers": {}, "signatures": {}, "organisations": names,
        }
    )  # fmt: skip
    nobody = canonical({"approvals": []})
    named = (p.organisation for p in build_report(view).parties)
    assert step(verify(view), "approvals") is Status.NOT_CHECKED and not any(named)  # control
    for changed in (
        {"approvals_text": nobody},
        {"charter_text": made_up},
        {"approvals_text": nobody, "charter_text": made_up},
    ):
        forged = replace(view, **changed)
        fails_at("approvals", forged)
        assert "St Mary" not in build_report(forged).model_dump_json()


def test_models_that_are_away_are_excused_by_a_signed_note_alone(toy, view, tmp_path):
    """Where a note lies, digests stand in for models; an empty file is no note."""
    digests, run = {"final": hashlib.sha256(b"gone").hexdigest()}, Folder(tmp_path)
    run.write("checkpoints.json", digests_text(digests))
    assert weights_of(run, gathered=False) == {}
    run.write(f"forgotten/{AGGREGATOR}.jsonl", b"")
    assert weights_of(run, gathered=False) == digests  # so that it must be signed
    fails_at("captured", replace(view, forgotten={AGGREGATOR: b""}))
    key, named = toy.identities[AGGREGATOR].signing, {"run": toy.run, "party": AGGREGATOR}
    note = note_of(key, Forgotten(("models",), "2026-01-01T00:00:00Z"), **named)
    assert verify(replace(view, forgotten={AGGREGATOR: note}, reports={})).ok  # the control
