"""``secure-fgl audit``: the report of what left, and the proof that the record holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secure_fgl.cli._shared.verb import EXAMPLE, Format, FormatOption, verb
from secure_fgl.cli.account import account
from secure_fgl.cli.attack import attack
from secure_fgl.cli.bundle import bundle
from secure_fgl.cli.diff import diff
from secure_fgl.cli.explain import explain
from secure_fgl.cli.export import export
from secure_fgl.cli.gather import gather
from secure_fgl.cli.rehearse import rehearse
from secure_fgl.cli.release import release
from secure_fgl.cli.report import report

if TYPE_CHECKING:
    from audits.evidence.verify import Verification

app = typer.Typer(
    no_args_is_help=True,
    help="Report what left each client, verify the record, and count what it cost in privacy.",
    epilog=EXAMPLE["audit"],
)

app.command("report", epilog=EXAMPLE["report"])(report)
app.command("attack", epilog=EXAMPLE["attack"])(attack)
app.command("bundle", epilog=EXAMPLE["bundle"])(bundle)
app.command("gather", epilog=EXAMPLE["gather"])(gather)
app.command("diff", epilog=EXAMPLE["diff"])(diff)
app.command("rehearse", epilog=EXAMPLE["rehearse"])(rehearse)
app.command("release", epilog=EXAMPLE["release"])(release)


@app.command("verify", epilog=EXAMPLE["verify"])
@verb
def verify(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="BUNDLE|RUN|PARTY", help="A bundle.zip, a run folder, or a party's own folder."
        ),
    ],
    name: Annotated[
        str | None, typer.Option("--run", metavar="RUN", help="The run's name; of a party, which.")
    ] = None,
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
    trust: Annotated[
        Path | None,
        typer.Option(
            metavar="KEYS",
            help="Public keys known from elsewhere: a JSON file {name: 64 hex digits}; names that "
            "took no part in the run are auditors.",
        ),
    ] = None,
    svr: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Sign which steps of a bundle passed (in-toto); needs --key."
        ),
    ] = None,
    key: Annotated[
        Path | None, typer.Option(metavar="KEY.pem", help="The verifier's own key, for --svr.")
    ] = None,
    format: FormatOption = Format.table,
) -> int:
    """Check the record of a run step by step, offline.

    Of a party's folder it checks that party's own side: what only others can
    show is NOT CHECKED. Of a run that is still going it states how far the
    record reaches, and leaves to later what compares ledgers.

    Exits 5 and names the step if one fails, and 4 if the record has no end.
    A step that had nothing to look at is NOT CHECKED, which proves nothing.
    """
    from secure_fgl.cli._shared.inputs import load_heads
    from secure_fgl.cli.bundle import load_trust
    from secure_fgl.errors import UsageError
    from secure_fgl.store.bundles import load_key, verify_path

    _check_digest(expect_plan)
    _from_elsewhere(run, heads, "heads")
    _from_elsewhere(run, trust, "keys")
    if (svr is None) is not (key is None):
        raise UsageError("--svr and --key belong together.", fix="give both, or neither")
    outcome = verify_path(
        run,
        heads=load_heads(heads) if heads is not None else None,
        expect_plan=expect_plan,
        trusted=load_trust(trust) if trust is not None else None,
        run=name,
        svr=(svr, load_key(key)) if svr is not None and key is not None else None,
    )
    return _tell(outcome, format)


def _check_digest(expect_plan: str | None) -> None:
    from secure_fgl.errors import UsageError

    if expect_plan is not None and not re.fullmatch(r"[0-9a-f]{64}", expect_plan):
        raise UsageError(
            "--expect-plan takes the 64 hexadecimal digits of a plan's digest.",
            fix="secure-fgl plan CONFIG prints it as 'plan digest'",
        )


def _from_elsewhere(run: Path, file: Path | None, what: str) -> None:
    """Refuse what lies in the run folder itself."""
    from secure_fgl.errors import UsageError

    if file is not None and file.resolve().is_relative_to(run.resolve()):
        raise UsageError(
            f"The {what} in {file} belong to the run folder itself.",
            why="whoever rewrote the run could have rewritten them; they prove nothing",
            fix=f"ask the other parties for the {what} that they kept",
        )


def _tell(outcome: Verification, format: Format) -> int:
    from secure_fgl.cli._shared.output import WORDS, cell, console, grid, print_json, say
    from secure_fgl.cli.bundle import final_words
    from secure_fgl.errors import BROKEN, INCONCLUSIVE, OK

    failed = next((step for step in outcome.steps if str(step.status) == "FAIL"), None)
    integrity, completeness = final_words(outcome)
    if format is Format.json:
        steps = [
            {"name": s.name, "status": str(s.status), "detail": s.detail} for s in outcome.steps
        ]
        told = {"ok": outcome.ok and not outcome.so_far, "verdict": outcome.verdict}
        words = {"integrity": integrity, "completeness": completeness}
        print_json({**told, "failed": failed.name if failed else None, **words, "steps": steps})
    else:
        table = grid(["Step", "Status", "Detail"])
        for step in outcome.steps:
            word = str(step.status)
            table.add_row(cell(step.name), cell(word, WORDS.get(word, "")), cell(step.detail))
        console(stderr=False).print(table)
        say(f"Verdict: {outcome.verdict}", style="bold", stderr=False)
        say(integrity, stderr=False)
        say(completeness, stderr=False)
    if failed is not None:
        say(f"FAILED at {failed.name}: {failed.detail}", style="bold red")
    # Fail closed: an outcome that is not wholly fine is broken even if no step says so.
    if not outcome.ok or failed is not None:
        return BROKEN
    return INCONCLUSIVE if outcome.so_far else OK


app.command("account", epilog=EXAMPLE["account"])(account)
app.command("explain", epilog=EXAMPLE["explain"])(explain)
app.command("export", epilog=EXAMPLE["export"])(export)
