"""Every tampering without any key, at the step that must name it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from audits.evidence.run_files import UNREADABLE
from audits.evidence.steps import Status
from audits.evidence.verify import verify
from audits.report.spreadsheets import FILES
from crypto.signing import SigningKey
from protocols.policy.policy import PrivacyPolicy
from tests.audits.forging import edit_last, forge, sign, write
from tests.audits.toy_run import (
    AGGREGATOR,
    AUTHORITY,
    CLIENTS,
    RESULT,
    WEIGHTS,
    run_toy,
    stated,
    text,
)
from tests.audits.verify_tools import (
    CLIENT,
    _entries,
    fails_at,
    lines,
    refused,
    step,
    with_ledger,
)


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


@pytest.mark.parametrize("name", ["report.html", "report.json", "report.md", *FILES])
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
    none = {**stated(model_sha256=None), "model": "", "best": ""}
    bare = forge(toy, view, AGGREGATOR, edit_last("close", result=none))
    fails_at("result", replace(bare, weights={}))
    bare = replace(bare, weights={}, result_text=text({**RESULT, "model_sha256": None}))
    assert step(verify(bare), "result") is Status.OK


def test_references_are_those_with_which_the_ledger_ends(toy, view):
    measured = {"references": {"local": 0.4}, "test_records": 8}
    ends = edit_last("close", result=stated(**measured))
    made = replace(forge(toy, view, AGGREGATOR, ends), result_text=text({**RESULT, **measured}))
    assert step(verify(made), "result") is Status.OK
    timed = text({**RESULT, **measured, "wall_s": 1.0, "run_dir": "/srv", "verdict": "x"})
    assert step(verify(replace(made, result_text=timed)), "result") is Status.OK  # the machine's
    for edit in ({"references": {"local": 0.6}}, {"references": {}}, {"test_records": 9}):
        fails_at("result", replace(made, result_text=text({**RESULT, **measured, **edit})))
    fails_at("result", replace(made, result_text=text({**RESULT, **measured, "bytes_up": 1})))


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
        fails_at("roster", forge(toy, view, party, edit_last("plan", transport="broker")))
    relabelled = view.roster_text.replace(b'"memory"', b'"broker"')
    fails_at("roster", replace(view, roster_text=relabelled))
    unknown = view.roster_text.replace(b'"memory"', b'"pigeons"')
    fails_at("files", replace(view, roster_text=unknown))


def test_without_report_files_the_report_is_not_checked(toy):
    found = verify(toy.view(reports=False))
    assert step(found, "report") is Status.NOT_CHECKED
    assert found.ok
