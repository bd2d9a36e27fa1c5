"""What moved since an earlier report: each kind, each direction, and nothing by itself."""

from __future__ import annotations

import json

import pytest

from audits.attacks._shared.models import AttackRow, Value
from audits.findings.changes import (
    STILL,
    Measured,
    Sent,
    Snapshot,
    Spent,
    changes,
    excerpt,
    read_snapshot,
    since,
    text,
)
from audits.findings.rules import made
from audits.formats import render
from audits.report.build import build_report
from audits.report.sections import Waived
from protocols.errors import EvidenceError
from tests.audits.toy_run import run_toy

ROW = Measured(
    id="A05",
    payload="P05",
    what="totals",
    metric="AUC",
    verdict="PASS",
    value="0.52",
    low="0.49",
    high="0.55",
)
ROUTE = Sent(
    item="step.up",
    payloads=("P05", "P03"),
    sender="client",
    recipient="aggregator",
    unsafe=False,
    protection=("clip", "mask", "seal"),
    fields=("Answer.count", "Answer.delta"),
    count=10,
    bytes=1000,
)
BUDGET = Spent(unit="client", scope="run", epsilon="4", recorded="3.5", delta="0.00001")


def snapshot(**facts: object) -> Snapshot:
    """A snapshot with one attack, one epsilon and one route."""
    return Snapshot.model_validate(
        {
            "run": "00" * 16,
            "algorithm": "toy",
            "dataset": "toy",
            "policy": "he",
            "plan_digest": "11" * 32,
            "report_digest": "22" * 32,
            "broken": False,
            "drifted": False,
            "findings": (),
            "attacks": (ROW,),
            "spent": (BUDGET,),
            "sent": (ROUTE,),
            **facts,
        }
    )


def moved(old: Snapshot, new: Snapshot) -> list[tuple[str, str, str]]:
    return [(c.move, c.kind, c.severity) for c in changes(old, new).changes]


def test_a_report_against_itself_has_not_moved(report):
    found = changes(excerpt(report), excerpt(report))
    assert found.changes == () and found.notes == ()
    assert found.same == len(report.findings) + len(report.accounting) + len(report.egress)


def test_two_runs_of_one_plan_have_not_moved(report):
    again = build_report(run_toy().view(reports=False))
    assert again.subject.run != report.subject.run
    assert changes(excerpt(report), excerpt(again)).changes == ()


@pytest.mark.parametrize(
    ("old", "new", "move"),
    [
        ({}, {}, None),
        ({}, {"value": "0.55"}, None),  # at the end of the interval, not beyond it
        ({}, {"value": "0.56"}, "worse"),
        ({}, {"value": "0.48"}, "better"),
        ({}, {"verdict": "FAIL"}, "worse"),
        ({"verdict": "FAIL"}, {}, "fixed"),
        ({}, {"verdict": "INCONCLUSIVE"}, "no longer measured"),
        ({"verdict": "FAIL"}, {"verdict": "ERROR"}, "no longer measured"),
        ({"verdict": "INCONCLUSIVE"}, {"verdict": "FAIL"}, "new"),
        ({"verdict": "INVALID"}, {}, "better"),
        ({"verdict": "INVALID"}, {"verdict": "ERROR"}, None),
    ],
)
def test_an_attack_moves_by_verdict_then_beyond_its_interval(old, new, move):
    before = snapshot(attacks=(ROW.model_copy(update=old),))
    after = snapshot(attacks=(ROW.model_copy(update=new),))
    assert [m for m, _, _ in moved(before, after)] == ([move] if move else [])


def test_an_attack_that_was_not_run_again_is_not_fixed():
    failed = ROW.model_copy(update={"verdict": "FAIL"})
    finding = made("ATTACK_A05", "high", "m", "r", item="totals", payload="P05")
    noted = finding.model_dump(include={"fingerprint", "rule", "severity", "item", "payload"})
    old = snapshot(attacks=(failed,), findings=({**noted, "waived": False},))
    gone = changes(old, snapshot(attacks=())).changes
    assert {(c.kind, c.move) for c in gone} == {
        ("attack", "no longer measured"),
        ("finding", "no longer measured"),
    }
    assert {c.move for c in changes(old, snapshot()).changes} == {"fixed"}


@pytest.mark.parametrize(
    ("attack", "severity"),
    [("A05", "high"), ("A09", "high"), ("A04", "medium"), ("A07", "medium"), ("A10", "critical")],
)
def test_a_failed_attack_is_as_grave_as_what_it_reads(attack, severity):
    row = ROW.model_copy(update={"id": attack, "verdict": "FAIL"})
    assert moved(snapshot(attacks=()), snapshot(attacks=(row,))) == [("new", "attack", severity)]


@pytest.mark.parametrize(
    ("old", "new", "move"),
    [
        ({}, {"epsilon": "4.02"}, None),  # less than STILL
        ({}, {"epsilon": "5"}, "worse"),
        ({}, {"epsilon": "infinity"}, "worse"),
        ({}, {"epsilon": "3"}, "better"),
        ({"epsilon": "infinity"}, {}, "better"),
        ({}, {"recorded": "3.9"}, "worse"),
        ({}, {"epsilon": "3", "delta": "0.001"}, "worse"),  # smaller by a weaker promise
    ],
)
def test_an_epsilon_moves_with_any_of_its_three_numbers(old, new, move):
    before = snapshot(spent=(BUDGET.model_copy(update=old),))
    after = snapshot(spent=(BUDGET.model_copy(update=new),))
    assert [m for m, _, _ in moved(before, after)] == ([move] if move else [])
    assert STILL < 0.02


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"bytes": 1009}, []),
        ({"bytes": 1011}, [("worse", "egress", "low")]),
        ({"bytes": 500}, [("better", "egress", "low")]),
        ({"protection": ("clip", "seal")}, [("worse", "egress", "high")]),
        ({"protection": ("clip", "noise", "mask", "seal")}, [("better", "egress", "low")]),
        (
            {"protection": ("clip", "mask", "seal", "unsafe_clear"), "unsafe": True},
            [("worse", "egress", "critical")],
        ),
        ({"protection": ("clip(2)", "mask", "seal")}, [("worse", "egress", "high")]),
        ({"fields": ("Answer.count", "Answer.delta", "Answer.x")}, [("new", "egress", "high")]),
        ({"fields": ("Answer.count",)}, [("fixed", "egress", "low")]),
        ({"recipient": "matcher"}, [("new", "egress", "high"), ("fixed", "egress", "low")]),
    ],
)
def test_egress_moves_by_item_recipient_field_guard_and_bytes(facts, expected):
    after = snapshot(sent=(ROUTE.model_copy(update=facts),))
    assert moved(snapshot(), after) == expected


def test_what_is_no_longer_in_clear_is_better():
    clear = ROUTE.model_copy(update={"protection": ("clip", "unsafe_clear"), "unsafe": True})
    assert moved(snapshot(sent=(clear,)), snapshot()) == [("better", "egress", "low")]


@pytest.mark.parametrize(
    ("payloads", "severity"), [(("P18",), "low"), (("P18", "P05"), "high"), ((), "high")]
)
def test_a_new_item_is_low_only_if_it_is_nothing_but_control_plane(payloads, severity):
    key = ROUTE.model_copy(update={"item": "key.offer", "payloads": payloads})
    assert moved(snapshot(), snapshot(sent=(ROUTE, key))) == [("new", "egress", severity)]
    bare = key.model_copy(update={"fields": ()})
    assert moved(snapshot(), snapshot(sent=(ROUTE, bare))) == [("new", "egress", "low")]


def test_a_finding_moves_by_its_fingerprint_not_by_its_values():
    def noted(severity: str, waived: bool = False) -> dict[str, object]:
        facts = {"fingerprint": "33" * 32, "rule": "R", "item": "", "payload": ""}
        return {**facts, "severity": severity, "waived": waived}

    low, high = snapshot(findings=(noted("low"),)), snapshot(findings=(noted("high"),))
    assert moved(low, high) == [("worse", "finding", "high")]
    assert moved(high, low) == [("better", "finding", "low")]
    assert moved(snapshot(), high) == [("new", "finding", "high")]
    assert moved(high, snapshot()) == [("fixed", "finding", "high")]
    accepted = changes(snapshot(), snapshot(findings=(noted("high", True),)))
    assert [c.waived for c in accepted.changes] == [True]


def test_a_failed_attack_whose_finding_is_waived_is_waived_too():
    row = ROW.model_copy(update={"verdict": "FAIL"})
    facts = {"fingerprint": "33" * 32, "rule": "ATTACK_A05", "severity": "high", "item": "totals"}
    for payload, expected in (("P05", True), ("P06", False)):
        finding = {**facts, "payload": payload, "waived": True}
        found = changes(snapshot(attacks=()), snapshot(attacks=(row,), findings=(finding,)))
        assert [c.waived for c in found.changes if c.kind == "attack"] == [expected]


def test_a_failed_attack_has_the_severity_of_its_finding():
    row = ROW.model_copy(update={"id": "A09", "verdict": "FAIL"})
    facts = {"fingerprint": "33" * 32, "rule": "ATTACK_A09", "item": "totals", "payload": "P05"}
    finding = {**facts, "severity": "low", "waived": False}
    found = changes(snapshot(attacks=()), snapshot(attacks=(row,), findings=(finding,)))
    assert [c.severity for c in found.changes if c.kind == "attack"] == ["low"]


def test_what_makes_two_runs_hard_to_compare_is_said():
    other = snapshot(policy="masks", plan_digest="44" * 32)
    notes = changes(snapshot(broken=True), other).notes
    assert [word in " ".join(notes) for word in ("policy", "plans", "broken")] == [True] * 3
    assert changes(snapshot(), snapshot()).notes == ()


def test_a_snapshot_comes_back_from_its_text(report):
    kept = text(excerpt(report))
    assert read_snapshot(kept) == excerpt(report)
    assert since(kept, report).changes == ()
    spellings = (kept + b"\n", kept.replace(b'"broken":false', b'"broken":0'), b"{}", b"\xff")
    for spoilt in spellings:
        with pytest.raises(EvidenceError):
            read_snapshot(spoilt)


def test_the_bytes_of_a_report_and_the_report_give_the_same_excerpt(report):
    data = render(report, ["json"])["report.json"]
    assert excerpt(data) == excerpt(report)


def test_attacks_and_waivers_of_a_report_are_in_the_excerpt(report):
    value = Value(value="0.9", low="0.8", high="0.95", n=4)
    row = AttackRow.model_validate(
        {
            **{"id": "A05", "name": "grad-span", "question": "?", "payload": "P05"},
            **{"what": "totals", "profile": "quick", "n_clients": 4, "n_pos": 1, "n_neg": 1},
            **{"seed": "0" * 64, "metric": "AUC", "chance": "0.5", "margin": "0.05"},
            **{"prior": value, "raw": value, "null": value, "protected": value, "gap": value},
            **{
                "raw_gap": value,
                "excess": value,
                "gate": "0.15",
                "verdict": "FAIL",
                "reason": "because",
            },
        }
    )
    waiver = Waived(owner="o", reason="r", until="2030-01-01", judged="2026-01-01")
    accepted = report.findings[0].model_copy(update={"waiver": waiver})
    facts = {"attacks": (row,), "findings": (accepted, *report.findings[1:])}
    found = excerpt(report.model_copy(update=facts))
    assert found.attacks[0].value == "0.9" and found.attacks[0].verdict == "FAIL"
    assert [f.waived for f in found.findings].count(True) == 1


def test_a_report_of_version_1_can_be_a_baseline(report):
    document = json.loads(render(report, ["json"])["report.json"])
    document["schema_version"] = 1
    del document["attacks"]
    for finding in document["findings"]:
        del finding["payload"], finding["waiver"]
    found = excerpt(json.dumps(document).encode())
    assert found.attacks == () and len(found.findings) == len(report.findings)


@pytest.mark.parametrize(
    "edit",
    [
        lambda d: d.pop("egress"),
        lambda d: d.update(schema_version=99),
        lambda d: d.update(findings=[{"rule": 3}]),
        lambda d: d.update(egress="all"),
        lambda d: d["subject"].update(run=5),
    ],
)
def test_what_is_no_report_is_refused_and_never_a_crash(report, edit):
    document = json.loads(render(report, ["json"])["report.json"])
    edit(document)
    with pytest.raises(EvidenceError):
        excerpt(json.dumps(document).encode())
    for data in (b"", b"[]", b"3", b'"x"', b"[" * 100_000):
        with pytest.raises(EvidenceError):
            excerpt(data)


def test_broken_evidence_and_drift_are_told_apart(report):
    def with_failed(*steps: str, unplanned: bool) -> Snapshot:
        document = json.loads(render(report, ["json"])["report.json"])
        for step in document["integrity"]["steps"]:
            step["status"] = "FAIL" if step["name"] in steps else "OK"
        entry = {"party": "client-1", "entry": 1, "item": "x", "what": "was not planned"}
        document["plan_diff"]["unplanned"] = [entry] if unplanned else []
        return excerpt(json.dumps(document).encode())

    found = with_failed("plan_vs_ledger", unplanned=True)
    assert (found.broken, found.drifted) == (False, True)
    found = with_failed("plan_vs_ledger", unplanned=False)
    assert (found.broken, found.drifted) == (True, False)
    assert with_failed("chain", "plan_vs_ledger", unplanned=True).broken
