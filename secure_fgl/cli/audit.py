"""``secure-fgl audit``: the report of what left, and the proof that the record holds."""

from __future__ import annotations

import re
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secure_fgl.cli._verb import EXAMPLE, Format, FormatOption, verb

if TYPE_CHECKING:
    from audits.report import Report
    from audits.verify import Verification

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]

app = typer.Typer(
    no_args_is_help=True,
    help="Report what left each client, verify the record, and count what it cost in privacy.",
    epilog=EXAMPLE["audit"],
)


class FailOn(StrEnum):
    """The lightest finding that fails a report."""

    critical = "critical"
    high = "high"
    medium = "medium"
    low = "low"
    never = "never"

    def reached(self, severity: str) -> bool:
        """Tell whether a finding of this severity fails the report."""
        order = list(FailOn)[:-1]
        return self is not FailOn.never and severity in order[: order.index(self) + 1]


@app.command("report", epilog=EXAMPLE["report"])
@verb
def report(
    run: RunArgument,
    format: Annotated[
        str, typer.Option(metavar="LIST", help="Of html, json, md, csv; separated by commas.")
    ] = "html,json,md,csv",
    out: Annotated[
        Path | None, typer.Option(help="Folder of the files; by default RUN/report.")
    ] = None,
    fail_on: Annotated[
        FailOn, typer.Option(help="Exit 3 from this severity on. Hides neither 5 nor 6.")
    ] = FailOn.high,
) -> int:
    """Write the leakage report and print the paths of its files.

    Exit code, the first that applies:

    5: the evidence is broken, so the report cannot be relied on.

    6: something left that was not planned, whatever --fail-on says.

    3: there is a finding at or above --fail-on.

    0: none of these.
    """
    from audits.report import build_report
    from secure_fgl.cli._inputs import choose
    from secure_fgl.runs import FORMATS, Run

    formats = [choose("report format", name.strip(), FORMATS) for name in format.split(",")]
    finished = Run(run)
    if out is None:
        finished.check_report()  # an edited report is evidence; it is not overwritten
    for path in finished.report(formats, out):
        typer.echo(str(path))
    return _judge(build_report(finished.view()), fail_on)


def _judge(report: Report, fail_on: FailOn) -> int:
    """Say on stderr what was found, and return the gravest exit code (5, 6, 3, 0)."""
    from secure_fgl.cli._output import say
    from secure_fgl.errors import BROKEN, DRIFT, FINDINGS, OK

    severities = [finding.severity for finding in report.findings]
    counts = [f"{severities.count(s)} {s}" for s in dict.fromkeys(severities)]
    say(f"Findings: {', '.join(counts) or 'none'}. Evidence: {report.integrity.verdict}.")
    failing = [finding for finding in report.findings if fail_on.reached(finding.severity)]
    for finding in failing:
        say(f"{finding.severity.upper()} {finding.id} {finding.rule}: {finding.message}")
    unplanned = report.plan_diff.unplanned
    for entry in unplanned[:1]:
        rest = f"; {len(unplanned)} releases in all" if len(unplanned) > 1 else ""
        say(f"NOT PLANNED: release {entry.entry} of {entry.party} {entry.what}{rest}.")
    failed = {step.name for step in report.integrity.steps if step.status == "FAIL"}
    if unplanned:
        failed.discard("plan_vs_ledger")  # this is the drift itself; the record of it may hold
    if failed:
        return BROKEN
    if unplanned:
        return DRIFT
    return FINDINGS if failing else OK


@app.command("verify", epilog=EXAMPLE["verify"])
@verb
def verify(
    run: RunArgument,
    heads: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE|DIR",
            help="Heads that other parties hold: a JSON file {party: checkpoint}, or a folder of "
            "<party>.checkpoint files.",
        ),
    ] = None,
    expect_plan: Annotated[
        str | None, typer.Option(metavar="DIGEST", help="Digest of the plan that was approved.")
    ] = None,
    format: FormatOption = Format.table,
) -> int:
    """Check the record of a run step by step.

    Exits 5 and names the step if one fails.
    """
    from secure_fgl.cli._inputs import load_heads
    from secure_fgl.errors import UsageError
    from secure_fgl.runs import Run

    if expect_plan is not None and not re.fullmatch(r"[0-9a-f]{64}", expect_plan):
        raise UsageError(
            "--expect-plan takes the 64 hexadecimal digits of a plan's digest.",
            fix="secure-fgl plan CONFIG prints it as 'plan digest'",
        )
    if heads is not None and heads.resolve().is_relative_to(run.resolve()):
        raise UsageError(
            f"The heads in {heads} belong to the run folder itself.",
            why="whoever rewrote the run could have rewritten them; they prove nothing",
            fix="ask the other parties for the heads that they kept",
        )
    held = load_heads(heads) if heads is not None else None
    outcome = Run(run).verify(heads=held, expect_plan=expect_plan)
    return _tell(outcome, format)


def _tell(outcome: Verification, format: Format) -> int:
    from secure_fgl.cli._output import WORDS, cell, console, grid, print_json, say
    from secure_fgl.errors import BROKEN, OK

    failed = next((step for step in outcome.steps if str(step.status) == "FAIL"), None)
    if format is Format.json:
        steps = [
            {"name": s.name, "status": str(s.status), "detail": s.detail} for s in outcome.steps
        ]
        name = failed.name if failed else None
        print_json({"ok": outcome.ok, "verdict": outcome.verdict, "failed": name, "steps": steps})
    else:
        table = grid(["Step", "Status", "Detail"])
        for step in outcome.steps:
            word = str(step.status)
            table.add_row(cell(step.name), cell(word, WORDS.get(word, "")), cell(step.detail))
        console(stderr=False).print(table)
        say(f"Verdict: {outcome.verdict}", style="bold", stderr=False)
    if failed is not None:
        say(f"FAILED at {failed.name}: {failed.detail}", style="bold red")
    # Fail closed: an outcome that is not wholly fine is broken even if no step says so.
    return OK if outcome.ok and failed is None else BROKEN


@app.command("account", epilog=EXAMPLE["account"])
@verb
def account(run: RunArgument, format: FormatOption = Format.table) -> int:
    """Count the privacy loss of a run: what its noise was planned to give, and what was recorded.

    Every epsilon stands with its unit, adjacency, trust model, scope, delta and assumptions.
    Nothing is changed by reading.

    Exit code, the first that applies:

    5: the evidence is broken, so the numbers cannot be relied on.

    6: something left that was not planned.

    7: the privacy budget is exceeded, or the record does not bear the plan's target out.

    0: none of these, which is no proof; without noise there is no claim either.
    """
    from audits.account import account as count
    from secure_fgl.cli._account import judge, print_account
    from secure_fgl.cli._output import print_json
    from secure_fgl.runs import Run

    found = count(Run(run).view())
    if format is Format.json:
        print_json(found.model_dump_json(indent=2))
    else:
        print_account(found)
    return judge(found)
