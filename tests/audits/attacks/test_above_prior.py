"""ABOVE_PRIOR: rows that decide nothing, and in which a message tells something all the same.

Trials: 5,000 reports of 36 rows each in which no message tells anything, their scores drawn as the
attacks' are, among them splits that are no draw; 2,000 reports with one planted gain. The seeds are
pinned, so no result here is false by chance.
"""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as Xml
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy.special import stdtrit

from audits.attacks._shared.models import AttackRow, NotTested
from audits.attacks._shared.together import LEVELS, evidence, settled
from audits.attacks._shared.verdicts import LEVEL, gain_p, holm, more_needed, trials
from audits.bundle.statements import test_result
from audits.explain import find
from audits.exporters import junit, sarif
from audits.findings.gate import answers, withheld
from audits.findings.release import SITE, unanswered
from audits.findings.rules import SEVERITIES
from audits.formats import render
from audits.report.attack_rows import QUESTION, Outcome
from audits.report.build import build_report
from audits.report.models import Report
from audits.report.sections import Tried
from secure_fgl.cli._shared.gate import FailOn, codes_of
from tests.audits.attack_tools import UNSURE, attacked, row
from tests.audits.attacks.test_nulls import Array, ranked
from tests.audits.toy_run import run_toy

REPORTS = 5000
SIGNS = {
    "verdict": "INCONCLUSIVE", "null": "0.5 0.49 0.51", "prior": "0.5 0.5 0.5",
    "protected": "0.537 0.521 0.557", "gap": "0.037 0.021 0.057", "reason": "weak attack.",
    "raw": "0.6 0.58 0.62", "raw_gap": "0.1 0.08 0.12",
}  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """Rows of one kind: how a client's score is drawn, over how many, and of how many records.

    Attributes:
        shared: what a client's scores have in common, as where members are unlike others.
        lift: of null control and score alike: the split is no draw.
    """

    draw: Callable[[tuple[int, int]], Array]
    clients: int
    records: float
    prior: float = 0.5
    shared: float = 0.0
    lift: float = 0.0

    def p(self, rng: np.random.Generator, gain: float = 0.0) -> Array:
        """Return p-values (REPORTS,) of rows whose message tells nothing, or `gain`."""
        size = REPORTS, self.clients
        own = self.lift + self.shared * rng.normal(size=size)
        null, seen = (np.clip(self.draw(size) + own + more, 0.0, 1.0) for more in (0.0, gain))
        gap, excess = (lower(seen - other) for other in (self.prior + self.lift, null))
        scores = (seen.mean(axis=1), null.mean(axis=1))
        return gain_p(gap, excess, scores, self.clients, self.records)


def lower(values: Array) -> tuple[Array, Array]:
    """Return means over clients (R, n) and the lower ends of their intervals, as rows do."""
    n, middle = values.shape[1], values.mean(axis=1)
    wide = stdtrit(n - 1, (1 + LEVEL) / 2) * values.std(axis=1, ddof=1) / np.sqrt(n)
    low = np.floor((middle - wide) * 1e4) / 1e4
    return np.maximum(np.round(middle, 4), low), low


def kinds(rng: np.random.Generator) -> list[Kind]:
    """Return twelve kinds of rows, as those whose null controls are simulated."""
    long, short = ranked(rng, 10, 60), ranked(rng, 4, 4)
    return [
        *(Kind(partial(rng.choice, long), n, trials(8 * n, 32 * n, n)) for n in (8, 40)),
        *(Kind(partial(rng.choice, short), n, trials(4 * n, 4 * n, n)) for n in (2, 3, 8)),
        Kind(partial(rng.choice, long), 5, trials(32, 256, 5), shared=0.1),
        Kind(partial(rng.choice, long), 10, trials(64, 512, 10), shared=0.05, lift=0.1),
        Kind(rng.random, 12, trials(12, 16 * 12, 12)),
        Kind(lambda s: rng.binomial(10, 0.01, s) / 10, 20, trials(128, 1024, 20), 0.01),
        Kind(lambda s: rng.binomial(1, 0.05, s) * 1.0, 20, trials(16, 0, 20), 0.05),
        Kind(lambda s: rng.beta(2, 5, s), 12, trials(64, 0, 12), 2 / 7),
        Kind(lambda s: rng.beta(5, 2, s), 12, trials(64, 0, 12), 5 / 7),
    ]


@pytest.fixture(scope="module")
def sound() -> Array:
    """p-values (REPORTS, 36) of reports in which no message tells anything."""
    rng = np.random.default_rng(17)
    return np.array([kind.p(rng) for kind in kinds(rng) for _ in range(3)]).T


@pytest.mark.parametrize("level", LEVELS)
def test_sound_reports_hold_such_a_row_as_rarely_as_is_said(sound: Array, level: Any) -> None:
    """1 in 20 of 5,000 are 250, and 1 in 1,000 are 5. Measured: 12 and 0."""
    wrong = sum(any(holm(report, LEVELS[level])) for report in sound.tolist())
    assert wrong <= {"signs": 25, "there": 1}[level] < REPORTS * LEVELS[level]
    if level == "signs":  # the control: row by row, without Holm
        assert (sound < LEVELS[level]).any(axis=1).sum() > 4 * REPORTS * LEVELS[level]


def test_control_against_a_half_a_split_that_is_no_draw_is_leakage() -> None:
    """Members unlike others lift the score of any message, and its null control as much."""
    rng = np.random.default_rng(3)
    kind = kinds(rng)[6]
    against_half = replace(kind, lift=0.0, draw=lambda size: kind.draw(size) + kind.lift)
    assert (kind.p(rng) < 0.05).mean() < 0.05
    own = against_half.draw((REPORTS, 10))
    gap = lower(own - 0.5)
    p = gain_p(gap, gap, (own.mean(axis=1), np.full(REPORTS, 0.5)), 10, kind.records)
    assert (p < 0.05).mean() > 0.5  # without the null control


def test_a_gain_is_found() -> None:
    rng = np.random.default_rng(23)
    kind = Kind(partial(rng.choice, ranked(rng, 10, 60)), 20, trials(256, 1024, 20))
    found = [float((kind.p(rng, gain) < LEVELS["there"] / 36).mean()) for gain in (0.0, 0.15, 0.25)]
    assert found[0] == 0.0 and found[1] > 0.3 and found[2] > 0.95


# --- rows ---------------------------------------------------------------------------------------


def made(**changes: Any) -> AttackRow:
    return row(**{**SIGNS, **changes})


def test_what_is_too_weak_to_tell_and_tells_is_above_prior() -> None:
    """The figures that a demo showed: 0.537 (0.521 to 0.557), which read "too weak to tell"."""
    few = made(n_clients=5, n_pos=1024, n_neg=4096)
    exact = {"protected": "0.537 0.531 0.543", "gap": "0.037 0.031 0.043"}
    exact["null"] = "0.5 0.495 0.505"
    strong = made(n_clients=20, n_pos=4096, n_neg=8192, what="b", **exact)
    silent = [row(**UNSURE, what=f"row {n}") for n in range(6)]
    found = settled([few, strong, *silent])
    assert [(r.verdict, r.evidence) for r in found[:3]] == [
        ("ABOVE_PRIOR", "signs"),
        ("ABOVE_PRIOR", "there"),
        ("INCONCLUSIVE", ""),
    ]
    assert found[0].reason.startswith("signs of leakage: 0.037 (0.021 to 0.057) above")
    assert re.search(r"test with more records \(n = [\d,]+\)", found[0].reason)
    assert found[1].reason.startswith("leakage is there, about this much: 0.037")
    assert all(row.reason.count(". ") == 0 for row in found), "one sentence, one need"
    assert settled(found) == found


def test_of_a_row_alone_an_interval_without_the_guess_is_no_verdict() -> None:
    """Among 36 questions one such interval is luck: it is shown, and stays undecided."""
    near = made(
        n_clients=20, n_pos=4096, n_neg=8192, protected="0.53 0.505 0.555", gap="0.03 0.005 0.055"
    )
    rows = [near, *(row(**UNSURE, what=f"row {n}") for n in range(35))]
    assert settled(rows)[0].verdict == "INCONCLUSIVE"
    (alone,) = settled([near])
    assert alone.evidence == "signs"


@pytest.mark.parametrize(
    "changes",
    [
        {"null": "0.536 0.52 0.556"},  # somebody else's message tells as much
        {"prior": "0.53 0.51 0.55", "gap": "0.007 -0.013 0.027", "raw_gap": "0.07 0.05 0.09"},
        {"n_clients": 1},
        {"n_pos": 16, "n_neg": 16},  # so few records do this by luck, whatever clients agree on
        {"verdict": "PASS", "gap": "0.037 0.021 0.05"},
    ],
    ids=["as the null control", "as the prior", "one client", "few records", "within the margin"],
)
def test_what_is_no_gain_stays_what_it_was(changes: dict[str, str]) -> None:
    facts = {"n_clients": 20, "n_pos": 4096, "n_neg": 8192, **changes}
    one = made(**facts)
    assert evidence([one]) == [""] or one.verdict == "PASS"
    assert settled([one]) == (one,)


def test_an_earlier_row_that_is_luck_beside_more_rows_is_undecided_again() -> None:
    (alone,) = settled([made(n_clients=5, n_pos=1024, n_neg=4096)])
    assert alone.verdict == "ABOVE_PRIOR"
    again = settled([alone, *(row(**UNSURE, what=f"row {n}") for n in range(60))])[0]
    assert (again.verdict, again.evidence) == ("INCONCLUSIVE", "")


def test_more_records_make_the_same_gain_plain() -> None:
    assert more_needed(0.01, 0.0001, 1000) == pytest.approx(2556, abs=2)
    assert more_needed(1e-6, 0.01, 1000) == 1000


# --- in reports ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report() -> Report:
    strong = {"n_clients": 20, "n_pos": 4096, "n_neg": 8192, "protected": "0.537 0.531 0.543"}
    strong |= {"null": "0.5 0.495 0.505", "gap": "0.037 0.031 0.043", "what": "b"}
    weak = made(n_clients=5, n_pos=1024, n_neg=4096)
    rows = settled([weak, made(**strong), row(**UNSURE, what="c")])
    view = attacked(run_toy("he").view(reports=False), *rows)
    made_of = build_report(view)
    assert made_of.tried.used, made_of.tried.state
    return made_of


def test_a_report_takes_the_verdict_and_says_how_sure_it_is(report: Report) -> None:
    assert [r.evidence for r in report.attacks] == ["signs", "there", ""]
    found = {(f.rule, f.item): f.severity for f in report.findings}
    assert found["ABOVE_PRIOR_A05", "Answer.delta"] == "low"
    assert found["ABOVE_PRIOR_A05", "b"] == "medium"
    assert found["INCONCLUSIVE_A05", "c"] == "low"
    page = render(report, ["md"]).popitem()[1].decode()
    assert "Leakage is there" in page or "leakage is there" in page
    third = next(line for line in report.verdict_strip if line.question == QUESTION)
    assert third.state == "ATTENTION" and "Leakage is there" in third.answer


def test_no_edited_file_hides_it(report: Report) -> None:
    """The verdict follows from the figures: neither it nor how sure it is can be taken out."""
    view = run_toy("he").view(reports=False)
    (known,) = settled([made(n_clients=5, n_pos=1024, n_neg=4096)])
    gone = {"verdict": "INCONCLUSIVE", "evidence": ""}
    for edited in (gone, {"evidence": "there"}, {**gone, "excess": None}):
        spoilt = attacked(view, known.model_copy(update=edited))
        assert not build_report(spoilt).tried.used
    assert build_report(attacked(view, known)).tried.used  # the control


def test_exports_and_gates_do_not_take_it_for_a_pass(report: Report) -> None:
    log = json.loads(sarif.export(report, "{}"))["runs"][0]["results"]
    kinds = {(r["ruleId"], r["level"]) for r in log if r["kind"] == "fail"}
    assert {("ABOVE_PRIOR_A05", "warning"), ("ABOVE_PRIOR_A05", "note")} <= kinds
    cases = Xml.fromstring(junit.export(report)).iter("testcase")
    failed = [c.get("name") for c in cases if c.find("failure") is not None]
    assert "A05 grad-span P05 b" in failed and "A05 grad-span P05 Answer.delta" not in failed
    assert len(withheld(answers(report, ["A05"]))) == 3
    assert unanswered([("A05", "ABOVE_PRIOR", "")], replace(SITE, waivable=()))
    assert not unanswered([("A05", "INCONCLUSIVE", "")], replace(SITE, waivable=()))
    assert test_result(report, ())["warnedTests"]
    assert {p.word for p in find("ABOVE_PRIOR_A05")} >= {"ABOVE_PRIOR", "A05"}
    assert {p.word for p in find("ABOVE_PRIOR")} >= {"ABOVE PRIOR"}
    assert 4 in codes_of(report, FailOn.never, strict=True)
    assert codes_of(report, FailOn.medium, strict=False)[0] == 3


@pytest.mark.parametrize("payload", ["P05", "P17"])
def test_an_attack_that_could_not_tell_is_never_milder_than_none(payload: str) -> None:
    """A gate that an attack launders: untested it failed, and attacked in vain it did not."""
    silent = row(**UNSURE).model_copy(update={"payload": payload})
    none = NotTested(payload=payload, why="why")
    found = Outcome(Tried(state="", used=True), rows=(silent,), not_tested=(none,)).findings
    assert [f.rule for f in found] == ["INCONCLUSIVE_A05", "NOT_TESTED"]
    assert SEVERITIES.index(found[0].severity) <= SEVERITIES.index(found[1].severity)
