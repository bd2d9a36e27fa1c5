"""The report: deterministic, closed, and honest about its limits."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest

from audits.evidence.steps import Case, Status
from audits.evidence.verify import verify
from audits.findings.rules import findings
from audits.formats import FORMATS, file_names, render, schema
from audits.report.build import build_report
from audits.report.models import Report
from audits.report.summary import SIMULATION, notes
from protocols.disclosures.sum.disclosure import ACTIVE_AGGREGATOR
from protocols.errors import EvidenceError
from tests.audits.forging import edit_last, forge
from tests.audits.toy_run import CLIENTS, RESULT, maskless, run_toy, text
from tests.audits.verify_tools import refused

SENT = ("self_shares", "up.SUM")


def test_two_reports_of_one_run_are_byte_equal(toy):
    first = render(build_report(toy.view()), FORMATS)
    assert first == render(build_report(toy.view()), FORMATS)
    assert set(first) == {name for kind in FORMATS for name in file_names(kind)}


def test_what_a_verifier_brings_along_does_not_enter(toy, report):
    view = replace(toy.view(), held_heads=toy.checkpoints, expected_plan=toy.plan.digest)
    assert build_report(view) == report


def test_the_order_of_the_files_does_not_enter(toy, report):
    view = toy.view()
    turned = {party: view.ledgers[party] for party in reversed(list(view.ledgers))}
    assert render(build_report(replace(view, ledgers=turned)), FORMATS) == render(report, FORMATS)


def test_the_json_validates_against_its_own_closed_schema(report):
    document = json.loads(render(report, ["json"])["report.json"])
    jsonschema.Draft202012Validator.check_schema(schema())
    validator = jsonschema.Draft202012Validator(schema())
    validator.validate(document)
    assert not validator.is_valid({**document, "more": 1})
    assert not validator.is_valid({**document, "subject": {**document["subject"], "more": 1}})
    assert Report.model_validate(document) == report


def test_an_unknown_format_is_named():
    with pytest.raises(ValueError, match="html, json, md"):
        render(build_report(run_toy(rounds=1).view()), ["pdf"])


def test_the_inventory_counts_what_every_client_sent(toy, report):
    for client in CLIENTS:
        rows = {r.item: r for r in report.inventory if r.sender == client}
        assert list(rows) == sorted(
            ("heads.ack", "pair.boxes", "pair.rows", *(f"step.{k}" for k in SENT))
        )
        row = rows["step.up.SUM"]
        assert (row.count, row.recipient) == (2, "aggregator")
        assert (row.first_round, row.last_round) == (1, 2)
        assert row.bytes == 2 * toy.plan.item("step.up.SUM").bytes
        assert not any(row.unsafe for row in rows.values())
    assert sum(row.count for row in report.inventory) == report.plan_diff.seen == 62
    (up,) = [row for row in report.egress if row.item == "step.up.SUM"]
    assert (up.sender_role, up.senders, up.count) == ("client", 4, 8)
    assert [field.name for message in up.messages for field in message.fields] == [
        "delta",
        "count",
    ]
    assert up.learns["aggregator"].startswith("only the cohort's total")


def test_plan_and_actual_of_an_honest_run_agree(report):
    diff = report.plan_diff
    assert not diff.unplanned
    assert not diff.missing
    assert not diff.denied
    assert report.verdict_strip[0].state == "OK"
    assert len(report.verdict_strip) == 7
    answer = report.verdict_strip[1].answer
    assert "8 envelopes of Answer (" in answer and "PairBoxes" not in answer
    assert "of keys, shares, votes and receipts (" in answer


def test_o16_the_budget_says_infinity_and_covers_nothing(report):
    (account,) = report.accounting
    assert account.epsilon == "infinity"
    assert account.covered == ()
    assert account.not_covered == ("Answer",)
    assert "epsilon = infinity" in account.statement


def test_o26_simulation_and_synthetic_data_are_said_first(report, page):
    assert report.notes == (
        "SIMULATION: roles are not separated",
        "SYNTHETIC DATA: generated, about nobody",
    )
    for note in report.notes:
        assert page.index(note) < page.index("Seven questions")


def test_a_separated_run_on_real_data_carries_neither_banner():
    # No transport of this version separates roles, so the words are asked for one that would.
    view = run_toy(maskless(), synthetic=False, rounds=1).view(reports=False)
    case, report = Case(view), build_report(view)
    about = case.plan, report.egress, verify(view)
    assert notes(*about, simulated=False) == ()
    assert notes(*about, simulated=True) == report.notes == (SIMULATION,)
    facts = (report.plan_diff, report.egress, report.dropouts, report.accounting)
    found = findings(case.plan, *facts, about[2], case.result, simulated=False)
    assert {f.rule for f in found if not f.item.startswith("heads.")} == {"ACTIVE_AGGREGATOR"}
    (kept,) = report.accounting  # of a run with noise on rows there is one of a node, too
    over = kept.model_copy(update={"unit": "one node", "borne_out": False})
    facts = (*facts[:3], (kept, over))
    found = findings(case.plan, *facts, about[2], case.result, simulated=False)
    (said,) = [f for f in found if f.rule == "BUDGET_EXCEEDED"]
    assert said.item == "one node" and "(one node)" in said.message and said.severity == "high"


@pytest.mark.parametrize("value", [1.5, -0.01, 10**30, "0.5", True, [0.5]])
def test_a_metric_that_cannot_be_is_a_high_finding(toy, report, value):
    assert not any(f.rule == "IMPOSSIBLE_METRIC" for f in report.findings)
    metrics = {**RESULT["metrics"], "test_accuracy": value}
    made = build_report(replace(toy.view(), result_text=text({**RESULT, "metrics": metrics})))
    (finding,) = [f for f in made.findings if f.rule == "IMPOSSIBLE_METRIC"]
    assert finding.severity == "high"
    assert finding.message.startswith("1 metric of result.json")


def test_metrics_at_both_ends_are_possible(toy):
    metrics = {"best_round": 99, "test_accuracy": 1, "val_accuracy": 0.0}
    made = build_report(replace(toy.view(), result_text=text({"metrics": metrics})))
    assert not any(f.rule == "IMPOSSIBLE_METRIC" for f in made.findings)


def test_o4_without_masks_an_active_aggregator_is_a_finding_and_a_limit(report):
    assert not any(f.rule == "ACTIVE_AGGREGATOR" for f in report.findings)
    assert not any(ACTIVE_AGGREGATOR in limit for limit in report.limits)
    report = build_report(run_toy(maskless(), rounds=1).view())
    (finding,) = [f for f in report.findings if f.rule == "ACTIVE_AGGREGATOR"]
    assert finding.severity == "medium"
    assert any(ACTIVE_AGGREGATOR in limit for limit in report.limits)


def test_unsafe_messages_are_critical_and_said_in_word_shape_and_colour():
    view = run_toy("unsafe_plaintext", rounds=1).view()
    report = build_report(view)
    (finding,) = [f for f in report.findings if f.rule == "UNSAFE_CLEAR"]
    assert (finding.severity, finding.recipient_role) == ("critical", "aggregator")
    assert report.notes[0].startswith("UNSAFE")
    assert report.verdict_strip[1].state == "FAIL"
    page = view.reports["report.html"].decode()
    assert "UNSAFE: in clear" in page
    assert "url(#egress-hatch)" in page


def test_a_refusal_is_a_high_finding_and_its_reason_stays_in_the_ledger():
    toy = refused()
    report = build_report(toy.view())
    (finding,) = [f for f in report.findings if f.severity == "high"]
    assert finding.rule == "REFUSED_UNFIT"
    assert report.plan_diff.denied[0].party == CLIENTS[2]
    detail = "holds NaN or Inf"
    assert any(detail.encode() in store.lines for store in toy.stores.values())
    assert all(detail.encode() not in data for data in toy.view().reports.values())


def test_items_that_never_left_are_missing_with_low_severity():
    report = build_report(refused().view())
    assert "step.open" in report.plan_diff.missing
    assert {f.severity for f in report.findings if f.rule == "MISSING"} == {"low"}


def test_clipped_values_are_counted_and_nothing_more_is_said():
    toy = run_toy(site=lambda name: 9.0 if name == CLIENTS[0] else 0.25)
    report = build_report(toy.view())
    (finding,) = [f for f in report.findings if f.rule == "CLIPPED"]
    assert finding.message.startswith("In 2 of 8 envelopes")
    assert finding.severity == "info"


def test_an_unplanned_release_is_critical_and_the_evidence_is_called_broken(toy):
    view = forge(toy, toy.view(), CLIENTS[0], edit_last("release", item="secret.up.SUM"))
    report = build_report(view)
    rules = {f.rule: f.severity for f in report.findings}
    assert rules["UNPLANNED"] == rules["EVIDENCE_BROKEN"] == "critical"
    assert report.notes[0].startswith("EVIDENCE BROKEN")
    assert report.verdict_strip[0].state == report.verdict_strip[5].state == "FAIL"
    assert report.plan_diff.unplanned[0].item == "secret.up.SUM"
    assert "secret.up.SUM" in render(report, ["html"])["report.html"].decode()


def test_a_fingerprint_names_rule_item_and_role_but_no_count(toy, report):
    again = build_report(run_toy(rounds=1).view())
    prints = [{f.rule: f.fingerprint for f in r.findings} for r in (report, again)]
    assert prints[0] == prints[1]
    assert len(set(prints[0].values())) == len(prints[0])


def test_integrity_lists_the_steps_without_the_report_itself(report):
    steps = {s.name: s.status for s in report.integrity.steps}
    assert "report" not in steps
    assert steps["heads"] == Status.NOT_CHECKED
    assert report.integrity.verdict == "self-consistent only"


def test_a_run_whose_documents_cannot_be_read_has_no_report(toy):
    with pytest.raises(EvidenceError) as raised:
        build_report(replace(toy.view(), plan_text=b"{}"))
    assert raised.value.step == "files"


def test_values_of_the_result_are_bounded_text(toy):
    result = {
        "metrics": {f"m{n}": n / 3 for n in range(200)} | {"nested": {"x": 1}, "flag": True},
        "backend": "b" * 9000,
        "model_sha256": "line\nbreak",
        "wall_s": 1.5,
    }
    facts = build_report(replace(toy.view(), result_text=text(result))).results
    assert len(facts) <= 64
    assert all(len(fact.value) <= 120 and fact.value.isprintable() for fact in facts)
    assert not any("wall" in fact.name or "nested" in fact.name for fact in facts)
