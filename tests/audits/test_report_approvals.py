"""Who approved a run, and what an epsilon is worth: the report says neither more than is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from audits.evidence.steps import Case
from audits.exporters import EXPORTERS
from audits.formats import render
from audits.report.budget import Worst, budget_line
from audits.report.build import build_report
from audits.report.models import Account, Line, Report
from audits.report.roles import role_views
from protocols.plan.learns import grade, odds
from protocols.policy.policy import PrivacyPolicy
from tests.audits.attack_tools import attacked, row
from tests.audits.toy_run import Toy, countless, run_toy

QUESTION = "Who approved this?"


def line_of(report: Report, question: str) -> Line:
    (found,) = [line for line in report.verdict_strip if line.question == question]
    return found


def texts(toy: Toy) -> Iterator[tuple[str, str]]:
    """Yield what is made of a run, in every format and for every reader."""
    report = build_report(attacked(toy.view(), row()))
    for name, data in render(report, ["html", "json", "md", "csv"]).items():
        yield name, data.decode()
    for name, export in EXPORTERS.items():
        yield name, export(report, toy.plan.text()).decode()


def test_nobody_is_said_to_have_approved_what_no_signature_stands_under() -> None:
    toy = run_toy("he")
    line = line_of(build_report(toy.view()), QUESTION)
    assert line.state == "NOBODY" and "no signature" in line.answer
    page = render(build_report(toy.view()), ["html"])["report.html"].decode()
    assert '<span class="state nobody">' in page and ".state.nobody" in page
    for name, text in texts(toy):
        assert not re.search(r"(?i)\bapproved\b", text.replace(QUESTION.rstrip("?"), "")), name


def test_an_approval_that_does_not_hold_is_a_failure() -> None:
    view = replace(run_toy("he").view(), approvals_text=b'{"approvals":[]}')
    assert line_of(build_report(view), QUESTION).state == "FAIL"


def spent(epsilon: str, **changes: object) -> Account:
    """Return the statement of a run in which every message is covered."""
    facts: dict[str, object] = {
        "unit": "client", "scope": "run", "mechanism": "discrete gaussian", "epsilon": epsilon,
        "recorded": epsilon, "target": epsilon, "borne_out": True, "delta": "1e-05",
        "covered": ("train.up.SUM",), "not_covered": (), "statement": "s",
    }  # fmt: skip
    return Account.model_validate({**facts, **changes})


@pytest.mark.parametrize("epsilon", ["0.5", "8", "51", "infinity"])
def test_no_epsilon_is_green_while_the_worst_view_is_not(epsilon: str) -> None:
    line = budget_line([spent(epsilon)], Worst(local=False, value="infinity"))
    assert line.state == "ATTENTION"
    for part in (
        "one client",
        "train.up.SUM",
        "against the aggregator",
        "% sure",
        "the worst view",
    ):
        assert part in line.answer
    assert f"epsilon {epsilon} at delta" in line.answer and "epsilon infinity" in line.answer


def test_an_epsilon_is_graded_by_size_and_said_in_odds() -> None:
    assert [grade(e) for e in ("5", "5.1", "20", "51", "infinity")] == [
        "conservative", *["less conservative"] * 2, *["too large to protect by itself"] * 2,
    ]  # fmt: skip
    assert "can be 73.11 % sure" in odds("1", "client")
    assert "can be more than 99.99 % sure" in odds("51", "client")
    assert "data of one client are" in odds("1", "client")
    assert "data of one training node are" in odds("1", "one training node")


def test_green_needs_the_worst_view_all_messages_and_the_ledgers() -> None:
    """With noise of one's own the worst view is that of anybody."""
    local = Worst(local=True, value="2")
    assert budget_line([spent("2")], local).state == "OK"
    assert budget_line([spent("2", not_covered=("Score",))], local).state == "ATTENTION"
    assert budget_line([spent("2", borne_out=False)], local).state == "FAIL"
    assert budget_line([spent("51")], Worst(local=True, value="51")).state == "ATTENTION"


def test_single_records_stand_beside_the_client_as_a_whole() -> None:
    client = spent("infinity", covered=(), mechanism="none", delta="not applicable")
    line = budget_line([client, spent("3", unit="one training node")], None)
    assert line.state == "ATTENTION"
    assert "Of one training node: epsilon 3" in line.answer
    assert "Of a client as a whole: infinity, the worst view" in line.answer


def test_a_noised_run_names_its_worst_view() -> None:
    run = run_toy("calibrated", algorithm=countless())
    report = build_report(run.view())
    line = line_of(report, "How much privacy budget was spent?")
    assert line.state == "ATTENTION" and "all other clients together" in line.answer
    assert "less conservative by NIST SP 800-226" in line.answer
    view = line.answer.partition("together, the worst view: ")[2].partition(". ")[0].rstrip(".")
    assert view and run.plan.budget.endswith(f"all other clients together, the worst view: {view}")
    labels = {one.what: one.epsilon.value for spent in report.spending for one in spent.rows}
    told = [value for what, value in labels.items() if "the worst view" in what]
    assert told and view.startswith(f"epsilon {told[0]},")


@pytest.mark.parametrize(("others", "there"), [(2, True), (3, False)])
def test_two_clients_have_a_row_where_a_total_may_be_of_three(others: int, there: bool) -> None:
    policy = PrivacyPolicy.preset("masks").model_copy(update={"minimum_cohort": others})
    case = Case(run_toy("masks").view())
    case.__dict__["policy"] = policy
    views = {view.viewer: " ".join(view.sees) for view in role_views(case)}
    assert ("two clients" in views) is there
    assert not there or "the third one's update, exactly" in views["two clients"]


@pytest.mark.parametrize(("model", "steers"), [("recomputed", True), ("as sent", False)])
def test_nothing_else_of_a_single_client_stands_with_who_can_steer(
    model: str, steers: bool
) -> None:
    case = Case(run_toy("masks").view())
    items = tuple(item.model_copy(update={"model": model}) for item in case.plan.items)
    case.__dict__["plan"] = case.plan.model_copy(update={"items": items})
    views = {view.viewer: " ".join(view.sees) for view in role_views(case)}
    told = views["aggregator and one client"]
    assert "nothing else of a single client" in told
    assert ("unless that client steers the model" in told) is steers


def test_references_stand_in_a_table_under_the_labels_of_run() -> None:
    toy = run_toy("he")
    told = {**json.loads(toy.view().result_text), "references": {"local": 0.5, "propagation": 0.25}}
    report = build_report(replace(toy.view(), result_text=json.dumps(told).encode()))
    assert [(fact.name, fact.value) for fact in report.references] == [
        ("local only", "0.5000"), ("labels on edges", "0.2500"),
    ]  # fmt: skip
    files = render(report, ["html", "md"])
    assert "| labels on edges | 0.2500 |" in files["report.md"].decode()
    assert '<th scope="row">labels on edges</th>' in files["report.html"].decode()
