"""Whether a model may leave, by the attacks that whoever lets it out asks for.

Stricter than the policy's own rule (`audits.findings.release.SITE`): every row of an attack must
PASS, or be a FAIL, ABOVE_PRIOR or INCONCLUSIVE that somebody accepted with a waiver of the report
that is in force. What was not run, what crashed, what its own control calls invalid and what does
not apply is no answer, and no waiver stands in for it. A margin may be set below the attacks' own,
never above: rows are then judged anew from their figures, and a waiver of a milder verdict does not
count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from audits.attacks._shared.models import FIGURES, AttackRow
from audits.attacks._shared.verdicts import Figures, verdict_of
from audits.findings.release import Rule, unanswered
from audits.report.attack_rows import RUN
from audits.report.models import Finding, Report
from audits.report.sections import Waived

__all__ = ["GATE", "Answer", "answers", "predicate", "withheld"]

GATE = Rule(("PASS",), ("FAIL", "ABOVE_PRIOR", "INCONCLUSIVE"))
"""Of ``audit release``."""


@dataclass(frozen=True)
class Answer:
    """What one row of an attack says, as a release needs it.

    Attributes:
        attack, payload, what: which row; only the attack where there is none.
        verdict: at the margin asked for.
        margin: by which it was judged, as decimal text; empty where nothing was.
        waiver: who accepted it, if it needs that.
    """

    attack: str
    payload: str = ""
    what: str = ""
    verdict: str = "NOT_TESTED"
    margin: str = ""
    waiver: Waived | None = None

    @property
    def named(self) -> str:
        """Return which row it is, in words."""
        about = ", ".join(filter(None, (self.payload, self.what)))
        return f"{self.attack} on {about}" if about else self.attack

    def document(self) -> dict[str, Any]:
        """Return plain data without floats, to be signed."""
        waiver = self.waiver.model_dump(mode="json") if self.waiver is not None else None
        return {
            "id": self.attack,
            "margin": self.margin,
            "payload": self.payload,
            "verdict": self.verdict,
            "waiver": waiver,
            "what": self.what,
        }


def answers(report: Report, requires: Sequence[str], margin: str = "") -> tuple[Answer, ...]:
    """Return the rows of the attacks that are asked for; one without a row was not tested.

    What fails over sites is among them. Another verdict over sites stands in for nothing.

    Args:
        report: with the waivers that are in force.
        requires: ids of attacks.
        margin: decimal text, above 0; empty: the attacks' own.
    """
    return tuple(answer for attack in requires for answer in _of(report, attack, margin))


def _of(report: Report, attack: str, margin: str) -> Iterator[Answer]:
    known = report.tried.state == RUN
    rows = [row for row in report.attacks if row.id == attack] if known else []
    # Beside rows that were judged, one of a kind of payload that this run does not send says less.
    told = [row for row in rows if row.verdict != "NOT_APPLICABLE"] or rows[:1]
    if not told:
        yield Answer(attack)
    sites = report.at_sites.rows if report.at_sites is not None else ()
    lost = [row for row in sites if row.id == attack and row.verdict == "FAIL"]
    for row in (*told, *(one.model_copy(update={"what": f"at sites: {one.what}"}) for one in lost)):
        verdict, by = _judged(row, margin)
        needs = verdict in (GATE.waivable or ()) and verdict == row.verdict
        waiver = _waiver(report.findings, row) if needs else None
        yield Answer(attack, row.payload, row.what, verdict, by, waiver)


def _judged(row: AttackRow, margin: str) -> tuple[str, str]:
    """Return a row's verdict at the smaller of two margins, and that margin."""
    by = min((row.margin, margin or row.margin), key=float)
    values = {name: found for name in FIGURES if (found := getattr(row, name)) is not None}
    judged = row.verdict in ("PASS", "ABOVE_PRIOR", "INCONCLUSIVE") and len(values) == len(FIGURES)
    if by == row.margin or not judged:
        return row.verdict, by
    figures = Figures.of(row.chance, values)
    facts = (float(by), float(row.gate), row.exact, figures.gap.n)
    found = verdict_of(figures, *facts, biased=False)  # else the row would be INVALID
    # Figures of another program's attacks give PASS where the report takes none of theirs; and what
    # is above the prior stays so, unless it is above this margin.
    kept = found == "PASS" or (row.verdict == "ABOVE_PRIOR" and found != "FAIL")
    return (row.verdict if kept else found), by


def _waiver(findings: Sequence[Finding], row: AttackRow) -> Waived | None:
    rule = f"{'ATTACK' if row.verdict == 'FAIL' else row.verdict}_{row.id}"
    wanted = (rule, row.payload, row.what)
    found = (f.waiver for f in findings if (f.rule, f.payload, f.item) == wanted)
    return next(found, None)


def withheld(found: Sequence[Answer]) -> list[str]:
    """Return why a model may not leave, a clause a row; empty: it may."""
    lacking = ("" if answer.waiver is not None else "no waiver is in force" for answer in found)
    told = ((a.named, a.verdict, why) for a, why in zip(found, lacking, strict=True))
    return unanswered(told, GATE)


def predicate(report: Report, found: Sequence[Answer], margin: str, day: str) -> dict[str, Any]:
    """Return what is signed: run, digests, heads, the answers and the day, and nothing else.

    Args:
        report: of the run.
        found: from `answers`.
        margin: as it was asked for.
        day: on which waivers were judged, YYYY-MM-DD (UTC).
    """
    subject = report.subject
    return {
        "attacks": [answer.document() for answer in found],
        "day": day,
        "evidence": report.integrity.verdict,
        "heads": [
            {"entries": str(head.entries), "party": head.party, "root": head.root}
            for head in subject.heads
        ],
        "margin": margin,
        "planDigest": {"sha256": subject.plan_digest},
        "policyDigest": {"sha256": subject.policy_digest},
        "requires": list(dict.fromkeys(answer.attack for answer in found)),
        "rosterDigest": {"sha256": subject.roster_digest},
        "run": subject.run,
        "tool": {"name": report.tool.name, "reportVersion": str(report.schema_version)},
        "transport": report.transport,
    }
