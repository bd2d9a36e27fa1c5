"""What ``audit report`` keeps in a run folder: baseline, waivers and rehearsal it was given.

A report is a pure function of a run's files, so that ``audit verify`` can render it again. What a
reader brings along is therefore first taken over into the run, with the day on which expiry was
judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from audits.evidence.run_files import RunView
    from audits.findings.changes import Snapshot
    from audits.report.models import Report
    from secure_fgl.store.finished_run import Run

BASELINE, WAIVERS, REHEARSAL = "baseline.json", "waivers.json", "rehearsal.json"

_GIVE = "give a run folder, or the report.json of one"
_ADVICE = {
    "report": "the ledgers are another matter (secure-fgl audit verify tells about them): move the "
    "folder report/ away, find out who changed it, waivers.json, baseline.json or attacks.json, "
    "and make it anew with: secure-fgl audit report RUN",
    "waivers": "give the waivers again with --waivers, or take waivers.json away with --no-waivers",
    "baseline": "give the earlier report again with --baseline, or take it away with --no-baseline",
}


@contextmanager
def advice() -> Iterator[None]:
    """Tell of a spoilt report, waivers or baseline what helps; no party's ledger does."""
    from protocols.errors import EvidenceError

    try:
        yield
    except EvidenceError as error:
        error.fix = _ADVICE.get(error.step, error.fix)
        raise


def load_snapshot(path: Path) -> Snapshot:
    """Return what is compared of a run folder (its report is made anew) or of a ``report.json``.

    Raises:
        UsageError: it is neither.
        EvidenceError: the documents of the run cannot be read.
    """
    from audits.findings.changes import REPORT_LIMIT, excerpt
    from audits.report.build import build_report
    from protocols.errors import EvidenceError
    from secure_fgl.errors import UsageError
    from secure_fgl.store.bundles import looks_packed
    from secure_fgl.store.finished_run import Run

    if path.is_dir():
        return excerpt(build_report(Run(path).view()))
    data = read_bytes(path, "run or report", REPORT_LIMIT)
    if looks_packed(data):
        raise UsageError(
            f"{path} is packed, as a bundle is; what it holds is not compared.",
            fix=f"{_GIVE}; a bundle's report: unzip -p BUNDLE report/report.json > report.json",
        )
    try:
        return excerpt(data)
    except EvidenceError as error:
        why = error.what
        raise UsageError(f"{path} is no report of this program.", why=why, fix=_GIVE) from error


def read_bytes(path: Path, what: str, limit: int) -> bytes:
    """Return a file's content; raises UsageError if it cannot be read or is too large."""
    from secure_fgl.errors import UsageError
    from secure_fgl.store.files import content

    try:
        data = content(path, limit)
    except OSError as error:
        raise UsageError(
            f"The {what} {path} cannot be read ({error.strerror}).", fix="check the path"
        ) from error
    if data is None:
        raise UsageError(f"{path} is too large to be a {what}.", fix="check the path")
    return data


def with_baseline(view: RunView, given: Path | None, *, drop: bool) -> RunView:
    """Return the view with the baseline that is in force now."""
    from audits.findings.changes import text

    if given is not None:
        return replace(view, baseline_text=text(load_snapshot(given)))
    return replace(view, baseline_text=b"") if drop else view


def with_waivers(view: RunView, given: Path | None, *, drop: bool) -> RunView:
    """Return the view with the waivers that are in force now, judged today (UTC)."""
    from audits.findings.waivers import judged_again, taken
    from protocols.errors import EvidenceError

    today = datetime.now(UTC).date()
    if given is not None:
        return replace(view, waivers_text=taken(read_bytes(given, "waivers file", 1 << 20), today))
    if drop or not view.waivers_text:
        return replace(view, waivers_text=b"")
    try:
        return replace(view, waivers_text=judged_again(view.waivers_text, today))
    except EvidenceError:
        return view  # spoilt: none is in force, and the report has a finding that says so


def with_rehearsal(view: RunView, given: Path | None, *, drop: bool) -> RunView:
    """Return the view with the rehearsal that is quoted now.

    Raises:
        UsageError: it is none, or of another plan: both digests are named.
    """
    from audits.elsewhere.rehearsal import REHEARSAL_LIMIT, read_rehearsal
    from audits.evidence.steps import Case
    from protocols.errors import EvidenceError, OtherVersion
    from secure_fgl.errors import UsageError

    if given is None:
        return replace(view, rehearsal_text=b"") if drop else view
    data = read_bytes(given, "rehearsal", REHEARSAL_LIMIT)
    try:
        read_rehearsal(data, Case(view).plan_digest)
    except OtherVersion:
        raise
    except EvidenceError as error:
        raise UsageError(
            f"{given} is no rehearsal of this run; nothing of it is quoted.",
            why=error.what,
            fix="rehearse this run's own configuration: secure-fgl audit rehearse CONFIG",
        ) from error
    return replace(view, rehearsal_text=data)


def judge_again(run: Run) -> None:
    """Judge today whether the waivers that a run keeps are still in force; render what changes.

    Raises:
        EvidenceError: its report is not what its files give, so it is not overwritten.
    """
    from secure_fgl.store.finished_run import FORMATS

    before = run.view()
    view = with_waivers(before, None, drop=False)
    if view.waivers_text != before.waivers_text:
        with advice():
            run.check_report()
        keep(run, view)
        run.report(FORMATS)


def tell_kept(report: Report, view: RunView, *, given: tuple[Path | None, ...]) -> None:
    """Say on stderr what is in force although nobody gave it, and which waivers are not.

    Args:
        report: as it was made.
        view: what the run keeps now.
        given: baseline, waivers and rehearsal, where the command was given them.
    """
    from secure_fgl.cli._shared.output import say

    baseline, waivers, rehearsal = given
    if view.baseline_text and baseline is None:
        run = report.changes.baseline_run if report.changes else "unreadable"
        say(f"Baseline: {BASELINE} of an earlier report stays in force (run {run}; --no-baseline).")
    if view.waivers_text and waivers is None:
        say(f"Waivers: {WAIVERS} of an earlier report stays in force (--no-waivers).")
    if view.rehearsal_text and rehearsal is None:
        say(f"Rehearsal: {REHEARSAL} that was given earlier is still quoted (--no-rehearsal).")
    for finding in report.findings:
        if finding.waiver is not None:
            owner, until = finding.waiver.owner, finding.waiver.until
            say(f"WAIVED {finding.id} {finding.rule} by {owner} until {until}.")
        if finding.rule.startswith("WAIVER_"):
            say(f"{finding.rule.replace('_', ' ')}: {finding.message}", style="yellow")


def kept_of(view: RunView) -> dict[str, bytes]:
    """Return the files that a run keeps of what reports were given, by name."""
    return {
        BASELINE: view.baseline_text,
        WAIVERS: view.waivers_text,
        REHEARSAL: view.rehearsal_text,
    }


def keep(run: Run, view: RunView) -> None:
    """Write these files, or remove them; each as a whole or not at all."""
    for name, content in kept_of(view).items():
        run.keep(name, content)
