"""What readers see of attacks: sentences first, codes in brackets, counts in buckets."""

from __future__ import annotations

import csv
import io
import re

import pytest

from audits.attacks import attacks
from audits.attacks._methods.statistics import Interval
from audits.attacks._shared.models import bucket
from audits.attacks._shared.payloads import PAYLOADS
from audits.attacks._shared.verdicts import _beside, _within
from audits.attacks.mechanism import CODE, PROVED
from audits.attacks.structure import ALL_ROUNDS, COHORT, ONE_ROUND, SINGLETONS
from audits.formats import render
from audits.report import attack_words
from audits.report.attack_rows import severity, tally, undecided
from audits.report.attack_words import NAMES, sentence, verdict
from audits.report.build import build_report
from tests.audits.attack_tools import BLANK, LEAK, SINGLED, UNSURE, attacked, row
from tests.audits.toy_run import run_toy

CLAIM = {
    "id": "A10", "payload": "P06", "metric": PROVED.metric, "n_clients": 0, "chance": "0",
    "prior": "3 3 3", "null": "0 0 0", "protected": "1 1 1", "raw": "7 7 7", "raw_gap": "4 4 4",
    "gap": "-2 -2 -2",
}  # fmt: skip
ROUNDS = {**SINGLED, "id": "A09", "what": ALL_ROUNDS}


def answered(toy, *rows):
    return build_report(attacked(toy.view(), *rows)).verdict_strip[2]


def test_a_leak_is_said_in_one_sentence_that_begins_with_no_code(toy):
    said = answered(toy, row(**LEAK)).answer
    assert said.startswith(
        "Whoever receives the totals over a cohort (P05) can tell which records were used for "
        "training: right in 93 of 100 pairs, against 50 without them (A05). "
    )
    assert "No attack looked at" in said and "the released model (P19)" in said
    assert not re.search(r"(^|[.:,;] )[AP]\d\d|AUC|raw|prior", said)


@pytest.mark.parametrize("one", attacks(), ids=lambda one: one.id)
@pytest.mark.parametrize("word", ["FAIL", "PASS", "INCONCLUSIVE", "INVALID", "ERROR", "NOT_TESTED"])
def test_every_attack_says_every_verdict_in_words_before_its_code(one, word):
    for rule in one.rules:
        made = row(id=one.id, metric=rule.metric, verdict=word, payload="P06")
        said = sentence(made)
        assert said[0].isupper() and not re.match(r"[AP]\d", said)
        assert said.endswith(f"({one.id})" if word not in ("INVALID", "ERROR") else f"{word})")
        assert one.id == "A10" or "(P06)" in said
    assert attack_words.reading(one.id) != attack_words.reading("A99")


def test_every_payload_has_a_name_for_sentences():
    assert NAMES.keys() == PAYLOADS.keys()


def test_shares_that_would_look_alike_get_a_decimal():
    assert attack_words._hundred("0.504", "0.496") == ["50.4", "49.6"]
    assert attack_words._hundred("0.7276", "0.5332") == ["73", "53"]


def test_structure_tells_its_questions_apart():
    told = {
        what: sentence(row(**{**SINGLED, "id": "A09", "what": what}))
        for what in (COHORT, ONE_ROUND, ALL_ROUNDS)
    }
    assert len(set(told.values())) == 3 and told[ALL_ROUNDS].startswith("A warning, no proof")
    blank = row(**{**BLANK, "id": "A09", "what": SINGLETONS}, verdict="NOT_TESTED", reason="no")
    assert "comes from one client alone" in sentence(blank)


def test_a_warning_of_all_rounds_is_a_medium_finding_and_no_fail_of_the_strip(toy):
    assert severity(row(**ROUNDS)) == "medium"
    assert severity(row(**{**ROUNDS, "what": ONE_ROUND})) == "high"
    report = build_report(attacked(toy.view(), row(**ROUNDS)))
    (finding,) = [f for f in report.findings if f.rule == "ATTACK_A09"]
    assert finding.severity == "medium"
    assert report.verdict_strip[2].state == "ATTENTION"
    hard = answered(toy, row(**ROUNDS), row(**{**ROUNDS, "what": ONE_ROUND}))
    assert hard.state == "FAIL" and "A warning" not in hard.answer


def test_a_claim_that_stands_is_never_called_a_pass(toy):
    stands = row(**CLAIM)
    assert verdict(stands) == "NOT FALSIFIED"
    assert verdict(row(**{**CLAIM, "metric": CODE.metric})) == "PASS"
    assert "was not falsified, which does not prove it (A10)" in sentence(stands)
    files = render(build_report(attacked(toy.view(), stands)), ["html", "md"])
    page = files["report.html"].decode()
    assert "NOT FALSIFIED" in page and "NOT FALSIFIED" in files["report.md"].decode()
    assert "Prior is the claimed epsilon" in page
    assert ">PASS<" not in page[page.index('id="attacks"') : page.index('id="claims"')]


def test_o28_counts_of_records_are_powers_of_two_wherever_they_are_written(toy):
    assert [bucket(n) for n in (0, 1, 2, 3, 500, 512, 588)] == [0, 1, 2, 2, 256, 512, 512]
    assert bucket(500) == bucket(408)  # one client more or less need not show
    for field in ("n_pos", "n_neg"):
        with pytest.raises(ValueError, match="powers of two"):
            row(**{field: 500})
    files = render(build_report(attacked(toy.view(), row())), ["html", "md"])
    for page in files.values():
        assert "at least 512" in page.decode() and "at least 2\u202f048" in page.decode()


def test_attacks_are_counted_by_who_applies_and_who_decided(toy):
    rows = (row(**UNSURE), row(**{**UNSURE, "what": "other"}), row(**ROUNDS))
    view = attacked(toy.view(), *rows)
    report = build_report(view)
    assert "1 attack decided nothing, or not all that was asked (A05)" in (
        report.verdict_strip[4].answer
    )
    evidence = " ".join(text for one in report.obligations for text in one.evidence)
    said = "2 of 2 attacks apply; 1 decided all that was asked"
    assert said in evidence and said in report.verdict_strip[4].answer
    assert "was tested" not in report.verdict_strip[4].answer
    found = type("Found", (), {"rows": rows})()
    assert (tally(found), undecided(found)) == (said, ["A05"])
    idle = type(
        "Found",
        (),
        {"rows": (*rows, row(**{**BLANK, "id": "A10"}, verdict="NOT_APPLICABLE", reason="no"))},
    )()
    assert tally(idle) == "2 of 3 attacks apply; 1 decided all that was asked"


def test_why_is_a_row_of_its_own_under_each_attack(toy):
    blank = row(**BLANK, verdict="NOT_APPLICABLE", reason="no noise")
    page = render(build_report(attacked(toy.view(), row(), blank)), ["html"])["report.html"]
    table = page.decode().partition('<caption><span class="cap">Attacks')[2]
    table = table.partition("</table>")[0]
    assert table.count('<td colspan="8" class="why">') == 2 == table.count('<tbody class="pair">')
    assert table.count('scope="col"') == 8
    assert table.count("(AUC of members") == 1  # what measured nothing has no score


def test_a_row_without_figures_names_no_score_in_the_spreadsheet(toy):
    blank = row(**BLANK, verdict="NOT_TESTED", reason="no")
    data = render(build_report(attacked(toy.view(), row(), blank)), ["csv"])["attacks.csv"]
    one, two = csv.DictReader(io.StringIO(data.decode()))
    assert one["metric"] and one["margin"] == "0.05"
    assert (two["metric"], two["margin"], two["gate"]) == ("", "", "")


@pytest.mark.parametrize(
    ("gap", "said"),
    [
        ((-0.25, -0.417, -0.083), "0.250 (0.083 to 0.417) below"),
        ((0.194, 0.067, 0.312), "0.194 (0.067 to 0.312) above"),
        ((1.0, 1.0, 1.0), "1.000 above"),
        ((0.0, 0.0, 0.0), "no more than"),
    ],
)
def test_a_difference_is_above_or_below_and_a_fact_has_no_interval(gap, said):
    assert _beside(Interval(*gap, 5)).startswith(said)


def test_a_pass_names_no_interval_that_is_none():
    assert _within(Interval(0.0, 0.0, 0.0, 5)) == ""
    assert _within(Interval(-0.1, -0.2, -0.01, 5)) == ": the whole interval ends below it"
    assert _within(Interval(0.0, -0.02, 0.031, 5)) == ": the interval ends 0.031 above it"


def test_the_smallest_cohort_allowed_and_the_smallest_opened_are_two_facts(toy):
    report = build_report(toy.view())
    facts = {fact.name: fact.value for fact in report.scope.data}
    assert facts["Smallest cohort allowed by the policy"] == "4 clients"
    assert facts["Smallest cohort whose total was opened"] == "4 clients"
    assert "the smallest total that was opened is over 4 clients" in report.summary


def test_the_smallest_opened_is_what_was_opened_and_not_what_was_allowed():
    names = tuple(f"client-{n}" for n in range(6))
    report = build_report(run_toy(clients=names).view())
    facts = {fact.name: fact.value for fact in report.scope.data}
    assert facts["Smallest cohort allowed by the policy"] == "4 clients"
    assert facts["Smallest cohort whose total was opened"] == "6 clients"
    assert "over 6 clients (the policy asks for at least 4)" in report.summary


def test_the_markdown_names_the_item_of_every_envelope(toy):
    report = build_report(toy.view())
    said = render(report, ["md"])["report.md"].decode()
    section = said.partition("## 3.")[2].partition("### ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")][2:]
    assert len(set(rows)) == len(rows) == len(report.egress)
    assert all(one.item.replace("_", "\\_") in section for one in report.egress)
