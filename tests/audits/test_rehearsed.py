"""What a report quotes of a rehearsal, beside which questions, and with what power."""

from __future__ import annotations

from audits.attacks import AttackReport, AttackRow, code_digest
from audits.elsewhere.rehearsal import Rehearsal, quoted
from audits.formats import render
from audits.report.build import build_report
from tests.audits.attack_tools import LEAK, row
from tests.audits.bundle_tools import TOY

DIGEST = "ab" * 32
SHADOWS = "the last model, by LiRA with {} shadow models"


def rehearsal(*rows: AttackRow) -> Rehearsal:
    report = AttackReport(
        run="a run", plan_digest=DIGEST, heads_digest=DIGEST, profile="quick",
        code_digest=code_digest(), simulated=True, rows=rows,
    )  # fmt: skip
    return Rehearsal(
        plan_digest=DIGEST, played_digest=DIGEST, differs=(), here=("one",), stand_ins=(),
        cannot=(), attacks=report,
    )  # fmt: skip


def test_what_the_run_answers_with_more_work_is_not_called_untested() -> None:
    """More shadow models are no other question: no PASS of a rehearsal stands beside the FAIL."""
    told = {"id": "A12", "payload": "P19"}
    found = rehearsal(row(**told, what=SHADOWS.format(4)))
    own = row(**{**LEAK, **told}, what=SHADOWS.format(16), profile="default")
    assert len(quoted(found, ()).rows) == 1  # the control
    assert not quoted(found, (own,)).rows
    assert len(quoted(found, (own.model_copy(update={"what": "a client's own model"}),)).rows) == 1


def test_a_pass_that_was_rehearsed_stands_beside_its_power() -> None:
    good, bad = row(), row(**LEAK, what="other")
    one, other = quoted(rehearsal(good, bad), ()).rows
    assert one.detectable == good.detectable != "" and other.detectable == ""
    foreign = rehearsal(good, bad)
    old = foreign.attacks.model_copy(update={"code_digest": DIGEST})
    (uncounted, _) = quoted(foreign.model_copy(update={"attacks": old}), ()).rows
    assert (uncounted.rehearsed, uncounted.detectable) == ("INCONCLUSIVE", "")
    told = quoted(rehearsal(good), ())
    report = build_report(TOY.view()).model_copy(update={"rehearsed": told})
    for name in ("report.md", "report.html"):
        page = render(report, ["md", "html"])[name].decode()
        assert good.detectable in page, name
