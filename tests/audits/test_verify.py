"""Verification of honest runs, and every tampering at the step that must name it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from audits.models import Dropouts
from audits.report import build_report
from audits.steps import SELF_CONSISTENT, WITNESSED, Status, Verification
from audits.verify import CHECKS, verify
from audits.view import UNREADABLE, RunView
from crypto.signatures import SigningKey
from protocols.errors import RemoteProtocolError
from protocols.ledger import Entry
from protocols.policy import PrivacyPolicy
from protocols.roster import cohort_digest
from protocols.rounds import Ask, Cohort
from tests.audits.toy_run import (
    AGGREGATOR,
    AUTHORITY,
    CLIENTS,
    RESULT,
    WEIGHTS,
    Answer,
    Bus,
    Given,
    Toy,
    edit_last,
    entries_of,
    forge,
    maskless,
    run_toy,
    sign,
    stated,
    text,
    write,
)

STEPS = [
    "files",
    "plan",
    "roster",
    "chain",
    "tree",
    "plan_vs_ledger",
    "receipts",
    "opened",
    "keys",
    "budget",
    "result",
    "report",
    "heads",
]
CLIENT = CLIENTS[1]


@pytest.fixture(scope="module")
def toy() -> Toy:
    return run_toy()


@pytest.fixture(scope="module")
def other() -> Toy:
    return run_toy(rounds=1)


@pytest.fixture
def view(toy: Toy) -> RunView:
    return toy.view()


def step(found: Verification, name: str) -> Status:
    return next(s.status for s in found.steps if s.name == name)


def fails_at(name: str, view: RunView) -> None:
    found = verify(view)
    assert found.failed is not None, "nothing failed"
    assert found.failed.name == name, found.failed
    assert not found.ok
    assert found.verdict == f"FAILED at {name}"


def with_ledger(view: RunView, party: str, data: bytes) -> RunView:
    return replace(view, ledgers={**view.ledgers, party: data})


def lines(view: RunView, party: str) -> list[bytes]:
    return view.ledgers[party].splitlines(keepends=True)


def test_an_honest_run_passes_every_step_in_order(view):
    found = verify(view)
    assert [s.name for s in found.steps] == STEPS == [check.name for check in CHECKS]
    assert {s.name for s in found.steps if s.status is Status.OK} == set(STEPS) - {"heads"}
    assert found.ok


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


# --- tampering without any key -----------------------------------------------------------------


@pytest.mark.parametrize("party", [CLIENT, AGGREGATOR, AUTHORITY])
def test_a_flipped_entry_fails_at_chain(view, party):
    changed = lines(view, party)
    changed[4] = changed[4].replace(b'"seq":4', b'"seq":5')
    fails_at("chain", with_ledger(view, party, b"".join(changed)))
    changed = lines(view, party)
    changed[2] = changed[2].replace(b'"time":"2026', b'"time":"2025')
    fails_at("chain", with_ledger(view, party, b"".join(changed)))


def test_a_flipped_last_entry_fails_at_tree(view):
    # No later entry holds the head of the last one, so only the signed head can tell.
    changed = lines(view, CLIENT)
    changed[-1] = changed[-1].replace(b'"time":"2026', b'"time":"2025')
    fails_at("tree", with_ledger(view, CLIENT, b"".join(changed)))


def test_a_dropped_entry_fails_at_chain(view):
    changed = lines(view, CLIENT)
    del changed[3]
    fails_at("chain", with_ledger(view, CLIENT, b"".join(changed)))


def test_an_inserted_entry_fails_at_chain(view):
    changed = lines(view, CLIENT)
    changed.insert(3, changed[3])
    fails_at("chain", with_ledger(view, CLIENT, b"".join(changed)))


def test_an_appended_entry_fails_at_tree(view):
    entries = write([*_entries(view, CLIENT), _entries(view, CLIENT)[-1]])
    fails_at("tree", with_ledger(view, CLIENT, entries))


def test_swapped_entries_fail_at_chain(view):
    changed = lines(view, CLIENT)
    changed[3], changed[4] = changed[4], changed[3]
    fails_at("chain", with_ledger(view, CLIENT, b"".join(changed)))


@pytest.mark.parametrize("left", [1, 3, -1])
def test_a_cut_tail_fails_at_tree(view, left):
    fails_at("tree", with_ledger(view, CLIENT, b"".join(lines(view, CLIENT)[:left])))


def test_a_cut_last_line_fails_at_chain(view):
    fails_at("chain", with_ledger(view, CLIENT, view.ledgers[CLIENT][:-1]))


def test_a_cut_tail_with_a_head_that_a_stranger_signed_fails_at_tree(toy, view):
    fails_at(
        "tree",
        forge(toy, view, CLIENT, lambda found: found[:-1], key=SigningKey.generate()),
    )


def test_an_older_genuine_head_fails_at_tree(toy, view):
    early = sign(toy, CLIENT, b"".join(lines(view, CLIENT)[:3]))
    fails_at("tree", replace(view, checkpoints={**view.checkpoints, CLIENT: early}))


def test_the_head_of_another_party_fails_at_tree(view):
    stolen = {**view.checkpoints, CLIENT: view.checkpoints[CLIENTS[0]]}
    fails_at("tree", replace(view, checkpoints=stolen))


def test_the_plan_of_another_run_fails_at_plan(view, other):
    fails_at("plan", replace(view, plan_text=other.plan.text().encode()))


def test_another_policy_fails_at_plan(view):
    foreign = PrivacyPolicy.preset("unsafe_plaintext")
    fails_at("plan", replace(view, policy_text=text(foreign.document())))


def test_a_ledger_of_a_run_with_another_plan_fails_at_plan(view, other):
    foreign = other.view()
    changed = with_ledger(view, CLIENT, foreign.ledgers[CLIENT])
    heads = {**view.checkpoints, CLIENT: foreign.checkpoints[CLIENT]}
    fails_at("plan", replace(changed, checkpoints=heads))


def test_a_ledger_of_another_run_of_the_same_plan_fails_at_roster(view):
    foreign = run_toy().view(reports=False)
    changed = with_ledger(view, CLIENT, foreign.ledgers[CLIENT])
    heads = {**view.checkpoints, CLIENT: foreign.checkpoints[CLIENT]}
    fails_at("roster", replace(changed, checkpoints=heads))


def test_another_roster_fails_at_roster(view):
    fails_at("roster", replace(view, roster_text=run_toy().view(reports=False).roster_text))


def test_a_missing_or_foreign_ledger_is_named(view):
    without = {p: d for p, d in view.ledgers.items() if p != CLIENT}
    heads = {p: d for p, d in view.checkpoints.items() if p != CLIENT}
    fails_at("roster", replace(view, ledgers=without, checkpoints=heads))
    strange = {**view.ledgers, "stranger": view.ledgers[CLIENT]}
    notes = {**view.checkpoints, "stranger": view.checkpoints[CLIENT]}
    fails_at("roster", replace(view, ledgers=strange, checkpoints=notes))
    fails_at("files", replace(view, checkpoints=heads))
    fails_at("files", replace(view, ledgers=without))
    fails_at("files", with_ledger(view, CLIENT, b""))


@pytest.mark.parametrize("name", ["plan_text", "policy_text", "roster_text"])
@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b"null", b"\xff", b"{" * 5000, b"NaN"])
def test_an_unreadable_paper_fails_at_files_and_all_else_is_not_checked(view, name, content):
    found = verify(replace(view, **{name: content}))
    assert found.failed is not None
    assert found.failed.name == "files"
    assert {s.status for s in found.steps[1:]} == {Status.NOT_CHECKED}


@pytest.mark.parametrize(
    "name", ["report.html", "report.json", "report.md", "inventory.csv", "findings.csv"]
)
def test_an_edited_report_fails_at_report(view, name):
    edited = {**view.reports, name: view.reports[name].replace(b"e", b"a", 1)}
    assert edited != view.reports
    fails_at("report", replace(view, reports=edited))


@pytest.mark.parametrize("name", ["report-final.html", "report.HTML", "report.pdf", "notes.txt"])
def test_a_planted_file_fails_at_report(view, name):
    fails_at("report", replace(view, reports={**view.reports, name: b"x"}))


def test_an_edited_result_fails_at_report(view):
    # Values that no ledger covers: only the report's digest of the whole file tells.
    fails_at("report", replace(view, result_text=text({**RESULT, "wall_s": 1.0})))
    fails_at("report", replace(view, result_text=view.result_text + b"\n"))


def test_metrics_and_models_are_those_that_the_aggregator_recorded(view):
    bare = replace(view, reports={})  # a forger renders the report anew
    assert step(verify(bare), "result") is Status.OK
    lines = bare.metrics_text.splitlines(keepends=True)
    other = {**RESULT, "metrics": {**RESULT["metrics"], "test_accuracy": 0.75}}
    last = {**RESULT, "metrics": {"best_round": 2, "test_accuracy": 0.75, "val_accuracy": 0.375}}
    for changed in (
        {"metrics_text": b"".join(lines[:-1])},
        {"metrics_text": b"".join([lines[1], lines[0], lines[2]])},
        {"metrics_text": bare.metrics_text.replace(b"0.75", b"0.85")},
        {"metrics_text": bare.metrics_text + b"\n"},
        {"result_text": b""},
        {"result_text": text(other)},
        {"result_text": text(last)},  # equal on validation records, and not the first
        {"result_text": text({**RESULT, "metrics": {**RESULT["metrics"], "best_round": 2}})},
        {"result_text": text({**RESULT, "metrics": {"test_accuracy": 0.5}})},
        {"result_text": text({**RESULT, "metrics": 1})},
        {"result_text": text({**RESULT, "model_sha256": "ab" * 32})},
        {"result_text": text({**RESULT, "model_sha256": None})},
        {"result_text": text({k: v for k, v in RESULT.items() if k != "model_sha256"})},
        {"weights": {**WEIGHTS, "final": "ab" * 32}},
        {"weights": {**WEIGHTS, "best": WEIGHTS["final"]}},
        {"weights": {**WEIGHTS, "best": UNREADABLE}},
        {"weights": {"final": WEIGHTS["final"]}},
        {"weights": {**WEIGHTS, "better": WEIGHTS["final"]}},
        {"weights": {}},
    ):
        fails_at("result", replace(bare, **changed))


@pytest.mark.parametrize(
    "broken",
    [b"{}x", b"[]", b"null", b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":1e999}', b"\xff", b"\n"],
)
def test_a_malformed_result_or_metrics_line_fails_at_files(view, broken):
    fails_at("files", replace(view, result_text=broken))
    if broken.strip():
        fails_at("files", replace(view, metrics_text=view.metrics_text + broken))


def test_without_models_the_ledger_says_so(toy, view):
    none = {**stated(), "model": "", "best": ""}
    bare = forge(toy, view, AGGREGATOR, edit_last("close", result=none))
    fails_at("result", replace(bare, weights={}))
    bare = replace(bare, weights={}, result_text=text({**RESULT, "model_sha256": None}))
    assert step(verify(bare), "result") is Status.OK


def test_a_run_that_did_not_finish_has_no_result_to_check(view):
    early = refused().view(reports=False)
    found = verify(early)
    assert found.ok
    assert step(found, "result") is Status.NOT_CHECKED
    assert "did not finish" in next(s.detail for s in found.steps if s.name == "result")
    fails_at("result", replace(early, result_text=view.result_text))  # planted afterwards


def test_only_the_aggregator_states_a_result_and_once(toy, view):
    fails_at("result", forge(toy, view, CLIENT, edit_last("close", result=stated())))
    again = forge(toy, view, AGGREGATOR, lambda entries: [*entries, dict(entries[-1])])
    fails_at("result", again)


@pytest.mark.parametrize(
    "change", [{"model": "AB" * 32}, {"model": 1}, {"metrics": ""}, {"more": "ab" * 32}]
)
def test_a_result_in_another_form_fails_at_chain(toy, view, change):
    facts = {**stated(), **change}
    fails_at("chain", forge(toy, view, AGGREGATOR, edit_last("close", result=facts)))


def test_o26_the_transport_is_the_one_that_every_ledger_began_with(toy, view):
    # Were the word in roster.json all there is, one edit would take the label SIMULATION off.
    for party in view.ledgers:
        fails_at("roster", forge(toy, view, party, edit_last("plan", transport="nvflare")))
    relabelled = view.roster_text.replace(b'"memory"', b'"nvflare"')
    fails_at("files", replace(view, roster_text=relabelled))


def test_without_report_files_the_report_is_not_checked(toy):
    found = verify(toy.view(reports=False))
    assert step(found, "report") is Status.NOT_CHECKED
    assert found.ok


# --- tampering by a party that holds its own key ------------------------------------------------


def _entries(view: RunView, party: str) -> list[Entry]:
    return entries_of(view.ledgers[party])


def test_metrics_may_be_absent_altogether_and_only_then(toy, view):
    """A policy under which no score leaves: nothing to be best by, and no best model."""
    metrics = dict.fromkeys(
        ("best_round", "test_accuracy", "test_accuracy_client_mean", "val_accuracy")
    )
    digest = hashlib.sha256(b"").hexdigest()
    facts = {**stated(), "metrics": digest, "best": ""}
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


def without(kind: str, **facts: object) -> Callable[[list[Entry]], list[Entry]]:
    """Drop the last entry of a kind with these facts."""

    def change(entries: list[Entry]) -> list[Entry]:
        place = max(
            n
            for n, e in enumerate(entries)
            if e["kind"] == kind and all(e[k] == v for k, v in facts.items())
        )
        return [*entries[:place], *entries[place + 1 :]]

    return change


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


def test_more_releases_than_planned_fail_at_plan_vs_ledger(toy, view):
    def again(entries):
        last = max(n for n, e in enumerate(entries) if e["kind"] == "release")
        return [*entries, {**entries[last], "commitment": "ab" * 32}]

    fails_at("plan_vs_ledger", forge(toy, view, CLIENT, again))


def test_a_hidden_release_fails_at_receipts(toy, view):
    fails_at("receipts", forge(toy, view, CLIENT, without("release")))


def test_a_denied_receipt_fails_at_receipts(toy, view):
    denied = without("receipt", sender=CLIENT)
    fails_at("receipts", forge(toy, view, AGGREGATOR, denied))


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
        return [{**e, **moved} if e.get("exchange") == 2 else e for e in entries]

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


# --- runs that ended early ----------------------------------------------------------------------


def refused(policy: str = "he") -> Toy:
    """A run in which the third client's update holds NaN: it refuses, and the run ends."""
    bus = Bus(
        PrivacyPolicy.preset(policy),
        2,
        CLIENTS,
        lambda name: float("nan") if name == CLIENTS[2] else 0.25,
        synthetic=True,
    )
    with pytest.raises(RemoteProtocolError):
        bus.play(2)
    return bus.finish(whole=False)


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
    asks = bus.aggregator.ask(Ask(Cohort(CLIENTS), given=given, back=Answer), 2)
    for parcel in asks[:reached]:
        bus.others[parcel.to].receive(parcel.data)
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


def test_in_clear_a_denied_upload_is_told_as_a_client_that_vanished():
    """Nothing is opened, so no count contradicts the aggregator; with four, the round is lost."""
    denied = without("receipt", sender=CLIENTS[-1])
    toy = run_toy("unsafe_plaintext", rounds=1, clients=(*CLIENTS, "client-5"))
    found = verify(forge(toy, toy.view(), AGGREGATOR, denied))
    assert found.ok
    said = next(s.detail for s in found.steps if s.name == "receipts")
    assert said.endswith("vanished: client-4 in round 1")
    toy = run_toy("unsafe_plaintext", rounds=1)
    fails_at("result", forge(toy, toy.view(), AGGREGATOR, denied))
