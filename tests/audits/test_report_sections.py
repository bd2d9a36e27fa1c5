"""Sections 0 to 12 of the report: all there, in their order, and each with what this run gives."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from datetime import date

import pytest

from audits.evidence.drift import Yardstick
from audits.evidence.steps import Case
from audits.findings.changes import excerpt
from audits.findings.changes import text as snapshot_text
from audits.findings.waivers import taken
from audits.formats import FORMATS, render
from audits.report.budget import MOST_POINTS, _timeline
from audits.report.build import build_report
from audits.report.models import REPORT_VERSION
from audits.report.page import sections
from audits.report.scope import MOST_ROUNDS, rounds
from audits.report.summary import SIMULATION
from protocols.plan.plan import Plan, at_most
from protocols.policy.policy import PrivacyPolicy
from tests.audits.attack_tools import attacked, claim, row
from tests.audits.report_tools import Page
from tests.audits.toy_run import RESULT, countless, run_toy, text

TITLES = (
    "Who computed what", "Did anything leave that was not in the plan", "What left, to whom",
    "How much privacy budget", "Can a person be singled out", "Do the claims stand up",
    "Findings", "What changed since", "evidence for which obligation", "How was it measured",
    "Is the evidence intact",
)  # fmt: skip


@pytest.fixture(scope="module")
def noised():
    policy = PrivacyPolicy.preset("calibrated")
    return run_toy(policy, algorithm=countless(), rounds=3)


def test_all_sections_stand_in_the_page_in_their_order(page, report):
    heads = re.findall(r"<h2 [^>]*>(.*?)</h2>", page)
    found = [re.sub(r"<[^>]*>", "", head) for head in heads if 'class="no"' in head]
    assert len(found) == len(TITLES) == len(sections(report)) == 11
    for number, (head, title) in enumerate(zip(found, TITLES, strict=True), 1):
        assert head.startswith(str(number)) and title in head
    targets = [v for v in Page(page).values("href") if v != "#main"]
    assert targets[:12] == [f"#{section.id}" for section in sections(report)]


def test_all_sections_stand_in_the_markdown(report):
    said = render(report, ["md"])["report.md"].decode()
    numbers = [int(n) for n in re.findall(r"^## (\d+)\. ", said, re.MULTILINE)]
    assert numbers == list(range(1, 12))


def test_o26_the_strip_begins_with_the_simulation_in_every_format(report, page):
    first = report.verdict_strip[0]
    assert first.answer.startswith(f"{SIMULATION}. ")
    strip = page[page.index('<ol class="strip"') : page.index("</ol>")]
    assert re.sub(r"<[^>]*>", "", strip).index(SIMULATION) < strip.index("What left")
    said = render(report, ["md"])["report.md"].decode()
    assert f"**OK** | {SIMULATION}" in said


def test_the_scope_lists_every_flow_and_what_people_must_add(report, page):
    flows = report.scope.flows
    assert sum(flow.count for flow in flows) == report.plan_diff.seen
    assert sum(flow.bytes for flow in flows) == sum(row.bytes for row in report.egress)
    assert [f for f in flows if f.recipient == "roster"]
    assert "toy" in report.scope.purpose
    assert any("purpose in law" in text for text in report.scope.unknown)
    assert all(text in page for text in report.scope.unknown)


def test_the_rounds_add_up_to_what_was_planned_and_seen(toy, report):
    assert [row.round for row in report.rounds] == [0, 1, 2]
    assert sum(r.seen for r in report.rounds) == sum(c.seen_bytes for c in report.plan_diff.items)
    counts = {c.item: c for c in report.plan_diff.items}
    plan = Case(toy.view()).plan
    assert sum(r.planned for r in report.rounds) == at_most(
        plan.items, lambda item: counts[item.id].planned_bytes
    )
    assert report.plan_diff.planned == at_most(plan.items, lambda item: counts[item.id].planned)
    # A sum goes one of two ways, and nobody reads them as one that goes both.
    assert report.plan_diff.planned < sum(c.planned for c in report.plan_diff.items)
    for found in report.rounds:
        assert found.seen == sum(part.bytes for part in found.parts) <= found.planned
    assert report.rounds[1].seen == report.rounds[2].seen


def test_what_the_plan_ties_to_no_round_counts_outside_them_whenever_it_left(toy):
    case = Case(toy.view())
    yardstick = Yardstick(case.plan, case.policy, case.roster)
    late = [
        replace(sent, facts={**sent.facts, "round": 2}) if sent.item == "pair.rows" else sent
        for sent in case.ledger_index.releases()
    ]
    assert any(sent.facts["round"] == 2 and sent.item == "pair.rows" for sent in late)
    assert rounds(case.plan, late, yardstick) == build_report(toy.view()).rounds


def test_a_plan_of_endless_rounds_does_not_make_an_endless_report(toy):
    plan = Plan.model_validate_json(toy.view().plan_text).model_copy(update={"rounds": 10**12})
    report = build_report(replace(toy.view(), plan_text=plan.text().encode()))
    assert len(report.rounds) == MOST_ROUNDS + 1
    assert b"The first 400" in render(report, ["html"])["report.html"]


def test_c1_every_epsilon_of_the_budget_carries_its_labels(noised):
    (spent,) = build_report(noised.view()).spending
    assert [row.epsilon.scope for row in spent.rows] == [
        "message", "message", "round", "round", "run", "run", "run",
    ]  # fmt: skip
    assert spent.rows[-1].what.endswith("all other clients together, the worst view")
    assert all(row.epsilon.assumptions and row.epsilon.unit == "client" for row in spent.rows)
    assert [share.missing for share in spent.shares] == [0, 1, 2, 3]
    page = noised.view().reports["report.html"].decode()
    for label in ("zero-out", "distributed-sum", "1e-05", "no credit for sampling"):
        assert label in page


def test_the_timeline_ends_at_what_the_report_says_was_spent(noised):
    report = build_report(noised.view())
    (spent,) = report.spending
    values = [float(point.value) for point in spent.timeline]
    assert [point.round for point in spent.timeline] == [0, 1, 2, 3]
    assert values[0] == 0 and values == sorted(values) and values[1] < values[3]
    assert spent.timeline[-1].value == report.accounting[0].recorded
    assert spent.timeline[1].value == spent.rows[3].epsilon.value  # one round, by the ledgers


@pytest.mark.parametrize("rounds", [1, 2, MOST_POINTS, MOST_POINTS + 5, 10**30])
def test_a_timeline_over_many_rounds_is_thinned_out_between_its_ends(rounds):
    points = [point.round for point in _timeline(rounds, [1], float)]
    assert len(points) <= MOST_POINTS + 2 and points == sorted(set(points))
    assert points[0] == 0 and points[1] == 1 and points[-1] == rounds


def test_without_noise_there_is_no_timeline(toy, report):
    assert report.spending == ()
    assert "over the rounds, by the ledgers" not in toy.view().reports["report.html"].decode()


def test_obligations_point_to_evidence_and_never_judge(report, page):
    assert any("Article 35" in row.regime for row in report.obligations)
    for found in report.obligations:
        assert found.evidence and found.people
        assert all(re.match(r"\d+ \w", said) for said in found.evidence)
        assert not re.search(r"\b(met|fulfilled|complies|lawful)\b", " ".join(found.evidence))
        assert found.regime in page


def test_the_method_says_seeds_and_versions_only_where_they_are_recorded(toy):
    plain = build_report(toy.view())
    names = {fact.name for fact in plain.method.facts}
    assert names == {"Report version"}
    assert plain.method.facts[0].value == str(REPORT_VERSION) == "9"
    result = {**RESULT, "version": "0.3.1", "seed": 7, "code_digest": "x\ny"}
    view = replace(toy.view(), result_text=text(result))
    facts = {f.name: f.value for f in build_report(attacked(view, row())).method.facts}
    assert facts["version (result.json)"] == "0.3.1" and facts["seed (result.json)"] == "7"
    assert "code_digest (result.json)" not in facts
    assert facts["Profile of the attacks"] == "quick"
    assert not any(name.startswith("Seed") for name in facts)  # of the attacks: nobody chose one


@pytest.mark.parametrize(
    ("name", "rule"), [("baseline", "BASELINE_REFUSED"), ("waivers", "WAIVERS_REFUSED")]
)
@pytest.mark.parametrize("spoilt", [b"{", b"[]", b'{"more": NaN}', b"\xff", b"[" * 99_999])
def test_a_spoilt_baseline_or_waiver_is_a_finding_and_no_crash(toy, report, name, rule, spoilt):
    made = build_report(replace(toy.view(), **{f"{name}_text": spoilt}))
    (finding,) = [f for f in made.findings if f.rule == rule]
    assert finding.severity == "medium"
    assert made.changes is None and not any(f.waiver for f in made.findings)
    assert len(made.findings) == len(report.findings) + 1
    assert [f.id for f in made.findings] == [f"F{n:02d}" for n in range(1, len(made.findings) + 1)]


def test_every_change_can_be_seen_and_a_report_equals_its_baseline(toy, report):
    kept = snapshot_text(excerpt(render(report, ["json"])["report.json"]))
    still = build_report(replace(toy.view(), baseline_text=kept)).changes
    assert still is not None and still.changes == () and still.same
    view = replace(attacked(toy.view(), row(), claims=(claim(),)), baseline_text=kept)
    made = build_report(view)
    assert made.changes is not None and made.changes.baseline_run == report.subject.run
    moves = {(change.move, change.kind) for change in made.changes.changes}
    assert ("better", "attack") in moves and ("fixed", "finding") in moves
    files = render(made, FORMATS)
    assert b"no baseline to compare" not in files["report.html"]
    assert json.loads(files["report.json"])["changes"]["baseline_run"] == report.subject.run


def test_a_waived_finding_stays_in_sight_and_no_longer_counts_as_open(toy):
    entry = {"rule": "NOT_TESTED", "payload": "P19", "owner": "A. Officer", "reason": "later"}
    kept = taken(json.dumps([{**entry, "until": "2026-12-31"}]).encode(), date(2026, 6, 1))
    before, made = (build_report(replace(toy.view(), waivers_text=t)) for t in (b"", kept))
    (finding,) = [f for f in made.findings if f.waiver]
    assert (finding.rule, finding.payload) == ("NOT_TESTED", "P19")
    said = made.verdict_strip[4].answer
    assert f"{finding.id} is accepted by A. Officer until 2026-12-31" in said
    assert f"{len(before.findings)} open findings" in before.verdict_strip[4].answer
    assert f"{len(before.findings) - 1} open findings" in said
    low = sum(found.severity == "low" for found in before.findings)
    assert f"{low} low" in before.verdict_strip[4].answer and f"{low - 1} low" in said
    for name, data in render(made, FORMATS).items():
        if name in ("report.html", "report.md", "report.json", "findings.csv"):
            assert "A. Officer" in data.decode() and "2026-12-31" in data.decode()
