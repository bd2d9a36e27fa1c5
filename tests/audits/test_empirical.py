"""The word beside every epsilon: what claims make of it, and where a reader finds it."""

from __future__ import annotations

import csv
import io
from typing import Any

import pytest

from audits.accounting.empirical import UNTRIED, empirical
from audits.attacks._shared.models import Claim
from audits.evidence.steps import Case
from audits.formats import render
from audits.report.budget import accounts, spending
from audits.report.build import build_report
from tests.audits.bundle_tools import TOY
from tests.audits.noised_run import NoisedRun


def claim(**facts: Any) -> Claim:
    told = {
        "text": "one release",
        "epsilon_claim": "2.0000",
        "unit": "client",
        "epsilon_lb": "1.2000",
        "ceiling": "6.0000",
        "confidence": "0.95",
        "trials": 1000,
        "status": "not_falsified",
    }
    return Claim.model_validate({**told, **facts})


COMPOSED = claim(epsilon_lb="", ceiling="", confidence="", trials=0, status="untested")


@pytest.mark.parametrize(
    ("epsilon", "unit", "claims", "word"),
    [
        ("4", "client", [claim(), COMPOSED], "not falsified"),
        ("1.1", "client", [claim()], "falsified"),  # a bound above this epsilon
        ("4", "client", [claim(), claim(status="falsified", epsilon_lb="2.5000")], "falsified"),
        ("8", "client", [claim()], "untested"),  # the ceiling is below: it could not have told
        ("6", "client", [claim()], "untested"),
        ("4", "client", [claim(), claim(status="untested")], "untested"),  # one was too weak
        ("4", "client", [COMPOSED], "untested"),
        ("4", "client", [], "untested"),
        ("infinity", "client", [claim(status="falsified")], "untested"),
        ("4", "one training node", [claim()], "untested"),  # of another unit
        ("4", "one training node", [claim(unit="node")], "not falsified"),
        ("4", "node", [claim(unit="node")], "not falsified"),
    ],
)
def test_the_word_follows_from_bounds_and_ceilings(
    epsilon: str, unit: str, claims: list[Claim], word: str
) -> None:
    found = empirical(epsilon, unit, claims)
    assert found.word == word
    assert found.why and (word == "untested" or (found.lower_bound and found.ceiling))


def test_the_largest_bound_and_ceiling_stand_there() -> None:
    found = empirical("4", "client", [claim(), claim(epsilon_lb="1.5000", ceiling="5.0000")])
    assert (found.lower_bound, found.ceiling) == ("1.5000", "6.0000")


def test_every_epsilon_of_a_noised_run_has_its_word() -> None:
    case = Case(NoisedRun().view())
    (bare,) = accounts(case)
    assert bare.empirical == UNTRIED
    finite = float(bare.recorded)
    held = [claim(epsilon_lb=f"{finite / 2:.4f}", ceiling=f"{finite * 3:.4f}")]
    (told,) = accounts(case, held)
    assert told.empirical.word == "not falsified"
    rows = [row for part in spending(case, held) for row in part.rows]
    words = {row.what: row.empirical.word for row in rows}
    assert words["the run, by the ledgers"] == "not falsified"
    assert "falsified" not in words.values()
    above = [claim(epsilon_lb=f"{finite * 2:.4f}", ceiling=f"{finite * 3:.4f}")]
    assert accounts(case, above)[0].empirical.word == "falsified"
    assert {row.empirical for part in spending(case, ()) for row in part.rows} == {UNTRIED}


def test_the_csv_has_every_epsilon_with_its_word() -> None:
    report = build_report(NoisedRun().view())
    held = (
        report.spending[0]
        .rows[0]
        .empirical.model_copy(
            update={
                "word": "falsified",
                "lower_bound": "3.5",
                "ceiling": "6",
                "why": "an attack did",
            }
        )
    )
    first = report.spending[0].rows[0].model_copy(update={"empirical": held})
    spent = report.spending[0].model_copy(update={"rows": (first, *report.spending[0].rows[1:])})
    changed = report.model_copy(update={"spending": (spent, *report.spending[1:])})
    rows = list(csv.DictReader(io.StringIO(render(changed, ["csv"])["budget.csv"].decode())))
    assert rows[0]["what"] == "the run, as stated"
    assert rows[0]["epsilon"] == report.accounting[0].recorded
    told = {row["what"]: row for row in rows}
    assert {row.what for part in report.spending for row in part.rows} <= set(told)
    one = told[first.what]
    assert (one["by_attack"], one["at_least"], one["ceiling"]) == ("falsified", "3.5", "6")
    assert {row["by_attack"] for row in rows if row is not one} == {"untested"}
    bare = list(
        csv.DictReader(
            io.StringIO(render(build_report(TOY.view()), ["csv"])["budget.csv"].decode())
        )
    )
    assert [(row["epsilon"], row["by_attack"]) for row in bare] == [("infinity", "untested")]
