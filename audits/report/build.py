"""The leakage report as data, a pure function of a run's files: no clock, no environment."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence

from audits.attacks._shared.models import AttackRow
from audits.elsewhere.rehearsal import Rehearsed, quoted, read_rehearsal
from audits.elsewhere.sites import AtSites, SiteFigures, joined, read_figures
from audits.evidence.charter_file import CharterFile
from audits.evidence.cluster_sizes import cluster_sizes
from audits.evidence.dropouts import dropouts
from audits.evidence.mixtures import mixtures
from audits.evidence.own_files import HEADS
from audits.evidence.own_files import evidence as evidence_of
from audits.evidence.run_files import RunView
from audits.evidence.steps import Case, Status, Verification, run_checks
from audits.findings.changes import read_snapshot, since
from audits.findings.rules import findings, flattened, made, ranked, ranks, thin
from audits.findings.waivers import waived
from audits.report.attack_rows import outcome, succeeded
from audits.report.budget import accounts, spending
from audits.report.learning import curves, in_words, little, never_trained, table, worth
from audits.report.limits import limits
from audits.report.method import method, obligations
from audits.report.models import Dropouts, Egress, Finding, Head, Integrity, Report, Subject
from audits.report.roles import role_views
from audits.report.scope import (
    inventory,
    own_summary,
    parties,
    plan_diff,
    roll_up,
    rounds,
    scope,
    smallest_opened,
    weighed,
)
from audits.report.sections import Fact, StepFacts
from audits.report.summary import notes, strip, summary
from crypto.merkle import root
from protocols.errors import EvidenceError

_RESULTS = (
    "backend",
    "metrics",
    "bytes_up",
    "bytes_down",
    "exchanges",
    "model_sha256",
)
_MOST_FACTS, _LONGEST_FACT = 64, 120

__all__ = ["Report", "build_report", "report_of"]


def build_report(view: RunView) -> Report:
    """Return the report of a run; two reports of the same files are equal.

    What a verifier brings along (held heads, an expected plan) does not enter.

    Raises:
        EvidenceError: plan, policy, roster, result or metrics cannot be read at all. A run whose
            evidence fails further on still gets its report, which says so first.
    """
    return report_of(Case(view))


def report_of(case: Case) -> Report:
    """Return the report of a case: :func:`build_report` for files that were already read."""
    case = case.folder_only()
    plan, evidence = case.plan, run_checks(case, (*evidence_of(case), HEADS))
    yardstick = case.yardstick
    releases, simulated = case.ledger_index.releases(), case.roster_file.simulated
    diff, egress = plan_diff(case.ledger_index, releases, yardstick), roll_up(releases, yardstick)
    side = case.view.side  # of one party's ledger nobody's absence can be told
    gone = Dropouts(vanished=(), lost=()) if side else dropouts(case)
    tried = outcome(case, egress)
    spent = accounts(case, tried.claims)
    smallest = smallest_opened(case.ledger_index)
    rehearsed, refused = _rehearsed(case, tried.rows)
    charter = _named(case, evidence)
    at_sites, told = _at_sites(case)
    used, scores = tried.tried.used, case.metrics
    cautions = limits(plan, simulated=simulated, attacked=used, side=side, scores=scores)
    known = findings(plan, diff, egress, gone, spent, evidence, case.result, simulated=simulated)
    found = _judged(case.view, ranked((*known, *_of_parts(case), *refused, *told, *tried.findings)))
    report = Report(
        subject=_subject(case),
        transport=case.roster_file.transport,
        notes=_banners(case, egress, evidence, charter),
        summary=own_summary(case, egress)
        if side
        else summary(plan, case.policy, diff, egress, gone, smallest, _worth(case.result)),
        verdict_strip=strip(case, diff, egress, found, evidence, spent, tried, len(cautions)),
        side=side,
        scope=scope(plan, egress, smallest, case.result.get("answers")),
        parties=parties(case.ledger_index, yardstick, charter),
        plan_diff=diff,
        rounds=rounds(plan, releases, yardstick),
        dropouts=gone,
        clusters=cluster_sizes(case),
        views=role_views(case),
        egress=egress,
        rows=weighed(case.ledger_index, case.plan),
        inventory=inventory(releases, yardstick),
        accounting=spent,
        spending=spending(case, tried.claims),
        tried=tried.tried,
        attacks=tried.rows,
        not_tested=tried.not_tested,
        claims=tried.claims,
        rehearsed=rehearsed,
        at_sites=at_sites,
        findings=found,
        obligations=obligations(diff, egress, spent, tried, found, evidence, cautions),
        results=_results(case),
        references=tuple(Fact(name=name, value=value) for name, value in table(case.result)),
        curves=curves(case.metrics),
        method=method(case.result, tried),
        limits=cautions,
        integrity=_integrity(case.view, evidence),
    )
    return _compared(case.view, report)


def _banners(
    case: Case, egress: Sequence[Egress], evidence: Verification, charter: CharterFile | None
) -> tuple[str, ...]:
    """Return the banners of a report; see `audits.report.summary.notes`."""
    return notes(
        case.plan,
        egress,
        evidence,
        simulated=case.roster_file.simulated,
        rehearsed=charter is not None and charter.rehearsed,
        untrained=never_trained(case.result),
    )


def _worth(result: Mapping[str, object]) -> str:
    """Say what the model is worth: beside references, or that an accuracy alone says little."""
    compared = worth(result)
    return little(result) if compared is None else in_words(compared)


def _of_parts(case: Case) -> Iterator[Finding]:
    """Yield the findings about weights, neighbourhoods, mixtures and the baseline."""
    yield from flattened(case.ledger_index)
    yield from ranks(case.ledger_index)
    yield from thin(case.plan)
    yield from mixtures(case.ledger_index, case.policy)
    yield from _baseline_refused(case.view)


def _named(case: Case, evidence: Verification) -> CharterFile | None:
    """Return the charter whose names are printed: one that all parties are shown to have signed."""
    steps = {step.name: step.status for step in evidence.steps}
    held = steps["approvals"] is Status.OK and bool(case.view.charter_text)
    return case.charter if held else None


def _rehearsed(
    case: Case, rows: tuple[AttackRow, ...]
) -> tuple[Rehearsed | None, tuple[Finding, ...]]:
    """Return what is quoted of a rehearsal; of one that cannot be read a finding and no row."""
    if not case.view.rehearsal_text:
        return None, ()
    try:
        found = read_rehearsal(case.view.rehearsal_text, case.plan_digest)
    except EvidenceError as error:
        refused = made(
            "REHEARSAL_REFUSED",
            "medium",
            f"rehearsal.json was not used: {error.what}. Nothing is quoted from it.",
            "Give the rehearsal again: secure-fgl audit report RUN --rehearsal FILE.",
        )
        return None, (refused,)
    return quoted(found, rows), ()


def _at_sites(case: Case) -> tuple[AtSites | None, list[Finding]]:
    """Return what sites' own figures come to, and findings; None where no site handed any on."""
    kept, found = dict[str, SiteFigures](), list[Finding]()
    for party, data in sorted(case.view.figures.items()):
        try:
            kept[party] = read_figures(data, case, party)
        except EvidenceError as error:
            found.append(
                made(
                    "FIGURES_REFUSED",
                    "high",
                    f"{error.what[:400]}. Nothing of them is counted.",
                    "Ask that site for another hand-over, and find out where the file came from.",
                    item=party[:60],
                )
            )
    if not case.view.figures:
        return None, []
    for party, one in kept.items():  # what is of no client is not put together: a site's noise code
        whole = [row for row in one.attacks.rows if not row.n_clients]
        found += succeeded(whole, f"at {party}: ")
    told = joined(kept, case.plan.clients)
    return told, [*found, *succeeded(told.rows, "at sites: ")]


def _baseline_refused(view: RunView) -> Iterator[Finding]:
    """Yield a finding if the baseline cannot be read; the report then compares with nothing."""
    if not view.baseline_text:
        return
    try:
        read_snapshot(view.baseline_text)
    except EvidenceError as error:
        yield made(
            "BASELINE_REFUSED",
            "medium",
            f"baseline.json was not used: {error.what}. What moved since is not known.",
            "Give the earlier report again: secure-fgl audit report RUN --baseline FILE.",
        )


def _compared(view: RunView, report: Report) -> Report:
    """Return the report with what moved since its baseline, if it has one that can be read."""
    if not view.baseline_text:
        return report
    try:
        moved = since(view.baseline_text, report)
    except EvidenceError:
        return report  # a finding says so already
    return report.model_copy(update={"changes": moved})


def _judged(view: RunView, found: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Return the findings with their waivers; a file that cannot be read waives nothing."""
    if not view.waivers_text:
        return found
    try:
        return ranked(waived(view.waivers_text, found))
    except EvidenceError as error:
        refused = made(
            "WAIVERS_REFUSED",
            "medium",
            f"waivers.json was not used: {error.what}. Nothing is accepted by it.",
            "Give the waivers again: secure-fgl audit report RUN --waivers FILE.",
        )
        return ranked((*found, refused))


def _subject(case: Case) -> Subject:
    plan, ledger_index = case.plan, case.ledger_index
    times = sorted(
        str(e["time"])[:40] for entries in ledger_index.entries.values() for e in entries
    )
    return Subject(
        run=case.roster_file.run,
        algorithm=plan.algorithm,
        form=plan.form,
        dataset=plan.data.name,
        task=plan.data.task,
        synthetic=plan.data.synthetic,
        rounds=plan.rounds,
        clients=len(plan.clients),
        smallest_cohort=plan.smallest_cohort,
        scheme=plan.scheme,
        policy=plan.policy,
        plan_digest=case.plan_digest,
        policy_digest=case.policy.digest,
        roster_digest=case.roster.digest,
        first_entry=times[0] if times else "",
        last_entry=times[-1] if times else "",
        heads=tuple(
            Head(party=party, entries=len(leaves), root=root(leaves).hex())
            for party, leaves in sorted(ledger_index.leaves.items())
        ),
    )


def _results(case: Case) -> tuple[Fact, ...]:
    """Return the values of result.json that a reader expects, as short texts."""
    result, facts = case.result, list[Fact]()
    if best := case.view.weights.get("best"):
        facts.append(Fact(name="delivered_sha256", value=best[:_LONGEST_FACT]))
    for name in _RESULTS:
        value = result.get(name)
        parts = value.items() if isinstance(value, Mapping) else [("", value)]
        for key, part in sorted(parts, key=lambda pair: str(pair[0])):
            text = _text(part)
            if text and len(facts) < _MOST_FACTS:
                label = f"{name}.{key}" if key else name
                facts.append(Fact(name=label[:_LONGEST_FACT], value=text))
    return tuple(facts)


def _text(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int):
        return str(value) if abs(value) < 1 << 63 else ""
    return value[:_LONGEST_FACT] if isinstance(value, str) and value.isprintable() else ""


def _integrity(view: RunView, evidence: Verification) -> Integrity:
    return Integrity(
        verdict=evidence.verdict,
        steps=tuple(
            StepFacts(name=step.name, status=step.status.value, detail=step.detail)
            for step in evidence.steps
        ),
        result_digest=hashlib.sha256(view.result_text).hexdigest(),
        metrics_digest=hashlib.sha256(view.metrics_text).hexdigest(),
    )
