"""``secure-fgl audit report``: the report's files, what is accepted in it, and its exit code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from secure_fgl.cli._shared.gate import FailOn
from secure_fgl.cli._shared.verb import verb

if TYPE_CHECKING:
    from audits.evidence.run_files import RunView
    from audits.report.models import Report
    from crypto.signing import SigningKey
    from secure_fgl.store.finished_run import Run

BaselineOption = Annotated[
    Path | None,
    typer.Option(metavar="RUN|FILE", help="An earlier run or report.json to compare with."),
]
WaiversOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="YAML or JSON: a list of {fingerprint or rule, owner, reason, until: YYYY-MM-DD}.",
    ),
]
RehearsalOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="What audit rehearse wrote, of this run's plan.")
]
NoRehearsalOption = Annotated[
    bool, typer.Option("--no-rehearsal", help="Forget the rehearsal that the run keeps.")
]
NoBaselineOption = Annotated[
    bool, typer.Option("--no-baseline", help="Forget the baseline that the run keeps.")
]
NoWaiversOption = Annotated[
    bool, typer.Option("--no-waivers", help="Forget the waivers that the run keeps.")
]
FailOnOption = Annotated[
    FailOn, typer.Option(help="Exit 3 from this severity on. Hides none of 5, 6 and 7.")
]

KeyOption = Annotated[
    Path | None,
    typer.Option("--key", metavar="KEY.pem", help="Signs what intoto states; without, nobody."),
]
JsonOption = Annotated[
    bool, typer.Option("--json", help="Print one JSON document in place of the paths.")
]
OpenOption = Annotated[
    bool, typer.Option("--open", help="Open the page, which loads nothing, in a browser.")
]


@verb
def report(  # noqa: PLR0913, PLR0917 - one per option; the command line gives them by name
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    format: Annotated[
        str,
        typer.Option(metavar="LIST", help="Of html, json, md, csv, intoto; separated by commas."),
    ] = "html,json,md,csv",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the files; by default RUN/report.")
    ] = None,
    baseline: BaselineOption = None,
    no_baseline: NoBaselineOption = False,
    waivers: WaiversOption = None,
    no_waivers: NoWaiversOption = False,
    rehearsal: RehearsalOption = None,
    no_rehearsal: NoRehearsalOption = False,
    fail_on: FailOnOption = FailOn.high,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 4 where an attack was inconclusive or not run.")
    ] = False,
    key: KeyOption = None,
    as_json: JsonOption = False,
    open_page: OpenOption = False,
) -> int:
    """Write the leakage report and print the paths of its files.

    Baseline, waivers and rehearsal are copied into the run, so that the report
    can be checked against its files later, and stay in force until they are
    replaced. Expiry is judged today. A rehearsal's verdicts stand beside what
    was not tested, and in place of nothing; one of another plan is refused.

    intoto writes two in-toto statements about the run's files, leakage-audit and
    test-result, to the folder of --out: they are no part of the run's report.

    Exit code, the first that applies; all are listed on stderr:

    5: the evidence is broken, so the report cannot be relied on.

    6: something left that was not planned, whatever --fail-on says.

    7: more privacy was spent than planned, or a claim is falsified.

    3: there is a finding at or above --fail-on that nobody accepted, or an
    attack of that severity succeeded in the baseline and was not run again.

    4: with --strict, an attack was inconclusive or a payload was not tested.

    0: none of these.
    """
    from audits.bundle.making import statements
    from secure_fgl.cli._shared import report_files as keeping
    from secure_fgl.store.finished_run import Run

    _exclude("baseline", baseline, no_baseline)
    _exclude("waivers", waivers, no_waivers)
    _exclude("rehearsal", rehearsal, no_rehearsal)
    asked, formats = _asked(format)
    signer = _signer(out, key, stated=_STATED in asked)
    before = (finished := Run(run)).view()
    files = keeping.with_baseline(before, baseline, drop=no_baseline)
    files = keeping.with_waivers(files, waivers, drop=no_waivers)
    files = keeping.with_rehearsal(files, rehearsal, drop=no_rehearsal)
    moved = keeping.kept_of(files) != keeping.kept_of(before)
    if out is None or moved:
        with keeping.advice():
            finished.check_report()  # an edited report is evidence; it is not overwritten
    made, paths = _write(finished, files, formats, out, moved=moved)
    if _STATED in asked:
        paths += finished.write_report(statements(files, made, signer), out)
    keeping.tell_kept(made, files, given=(baseline, waivers, rehearsal))
    codes = _codes(made, fail_on, strict=strict)
    _print(made, paths, codes, fail_on, as_json=as_json)
    _tell(made, codes, fail_on, strict=strict)
    if open_page:
        _open(paths)
    return codes[0]


_STATED = "intoto"


def _asked(said: str) -> tuple[list[str], list[str]]:
    """Return the formats of a list, and those of them that are the report's own."""
    from secure_fgl.cli._shared.inputs import choose
    from secure_fgl.store.finished_run import FORMATS

    asked = [choose("report format", name.strip(), (*FORMATS, _STATED)) for name in said.split(",")]
    return asked, [name for name in asked if name != _STATED]


def _signer(out: Path | None, key: Path | None, *, stated: bool) -> SigningKey | None:
    """Return who signs statements; raises UsageError if none are asked for, or no folder named."""
    from secure_fgl.errors import UsageError
    from secure_fgl.store.bundles import load_key

    if stated and out is None:
        raise UsageError("--format intoto needs --out DIR.", why="report/ holds the report alone")
    if key is not None and not stated:
        raise UsageError("--key signs statements.", fix="add intoto to --format")
    return load_key(key) if key is not None else None


def _open(paths: list[Path]) -> None:
    from secure_fgl.cli._shared.output import say
    from secure_fgl.errors import UsageError

    pages = [path for path in paths if path.suffix == ".html"]
    if not pages:
        raise UsageError("No page was written, so none is opened.", fix="add html to --format")
    if typer.launch(pages[0].absolute().as_uri()) != 0:
        say(f"Nothing here opens a page; it lies at {pages[0]}.", style="yellow")


def _codes(made: Report, fail_on: FailOn, *, strict: bool) -> list[int]:
    """Return the exit codes of a report and of what its baseline had and nobody measured again."""
    from audits.findings.changes import lost
    from secure_fgl.cli._shared.gate import codes_of, ordered
    from secure_fgl.cli._shared.output import say
    from secure_fgl.errors import FINDINGS

    codes = codes_of(made, fail_on, strict=strict)
    moves = made.changes.changes if made.changes is not None else ()
    gone = [change for change in moves if lost(change) and fail_on.reached(change.severity)]
    for change in gone:
        say(f"NO LONGER MEASURED {change.severity}: {change.what}")
    return ordered({*codes, FINDINGS}) if gone else codes


def _exclude(name: str, given: Path | None, dropped: bool) -> None:
    from secure_fgl.errors import UsageError

    if given is not None and dropped:
        raise UsageError(f"--{name} and --no-{name} contradict each other.", fix="give one of them")


def _write(
    run: Run, view: RunView, formats: Sequence[str], out: Path | None, *, moved: bool
) -> tuple[Report, list[Path]]:
    """Render first, then write what the run keeps and all files that follow from it."""
    from audits.formats import file_names, render
    from audits.report.build import build_report
    from secure_fgl.cli._shared.report_files import keep
    from secure_fgl.store.finished_run import FORMATS

    made = build_report(view)
    # Other formats lie there from an earlier report; they would no longer fit what is kept.
    stale = [f for f in FORMATS if moved and set(file_names(f)) & set(view.reports)]
    files = render(made, list(dict.fromkeys([*formats, *stale])))
    asked = {name: files[name] for f in formats for name in file_names(f)}
    if moved:
        keep(run, view)
        if view.reports:
            there = {name for f in stale for name in file_names(f)}
            run.write_report({name: files[name] for name in sorted(there)})
    return made, run.write_report(asked, out)


def _print(
    made: Report, paths: list[Path], codes: list[int], fail_on: FailOn, *, as_json: bool
) -> None:
    from secure_fgl.cli._shared.gate import failing, undecided
    from secure_fgl.cli._shared.output import print_json

    if not as_json:
        for path in paths:
            typer.echo(str(path))
        return
    document: dict[str, Any] = {
        "files": [str(path) for path in paths],
        "exit_code": codes[0],
        "exit_codes": codes,
        "evidence": made.integrity.verdict,
        "failing": [f.model_dump(mode="json") for f in failing(made, fail_on)],
        "waived": [f.model_dump(mode="json") for f in made.findings if f.waiver is not None],
        "undecided": list(undecided(made)),
    }
    print_json(document)


def _tell(made: Report, codes: list[int], fail_on: FailOn, *, strict: bool) -> None:
    """Say on stderr what was found and which exit codes apply."""
    from secure_fgl.cli._shared.gate import failing, tell_codes, undecided
    from secure_fgl.cli._shared.output import say

    severities = [finding.severity for finding in made.findings]
    counts = [f"{severities.count(s)} {s}" for s in dict.fromkeys(severities)]
    say(f"Findings: {', '.join(counts) or 'none'}. Evidence: {made.integrity.verdict}.")
    for finding in failing(made, fail_on):
        say(f"{finding.severity.upper()} {finding.id} {finding.rule}: {finding.message}")
    unplanned = made.plan_diff.unplanned
    for entry in unplanned[:1]:
        rest = f"; {len(unplanned)} releases in all" if len(unplanned) > 1 else ""
        say(f"NOT PLANNED: release {entry.entry} of {entry.party} {entry.what}{rest}.")
    if strict:
        for what in undecided(made):
            say(f"UNDECIDED {what}")
    tell_codes(codes)
