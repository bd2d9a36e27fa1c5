"""``secure-fgl audit account``: what a run spent of its clients' privacy."""

from __future__ import annotations

import re
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secure_fgl.cli._shared.verb import Format, FormatOption, verb

if TYPE_CHECKING:
    from audits.accounting.otherwise import Otherwise
    from audits.evidence.run_files import RunView
    from audits.evidence.steps import Case
    from audits.report.sections import Labelled

_RANGE = re.compile(r"(\d{1,6})(?:\.\.(\d{1,6}))?")
_MOST = 200  # rows of a range
_DELTA = 1e-5  # of --store; the cap's own is in no budget


class Unit(StrEnum):
    """Whose presence is bounded."""

    client = "client"
    record = "record"


@verb
def account(
    run: Annotated[
        Path | None,
        typer.Argument(metavar="RUN", help="A run folder; with --store, a folder of budgets."),
    ] = None,
    missing: Annotated[
        str,
        typer.Option(metavar="N|N..M", help="Count anew: so many others are away or collude."),
    ] = "",
    delta: Annotated[
        float | None, typer.Option(help="Count anew for this delta, in place of the plan's.")
    ] = None,
    unit: Annotated[
        Unit | None, typer.Option(help="Count anew for a client, or for a training record.")
    ] = None,
    anchors: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Heads of budgets that others kept, <site>.checkpoint each: the budgets on this "
            "machine must extend them.",
        ),
    ] = None,
    store: Annotated[
        bool,
        typer.Option("--store", help="Show what all runs together spent, in place of one run."),
    ] = False,
    format: FormatOption = Format.table,
) -> int:
    """Count the privacy loss of a run: what its noise was planned to give, and what was recorded.

    Every epsilon stands with its unit, adjacency, trust model, scope, delta and assumptions,
    and with what attacks on this run say of it: falsified, not falsified or untested.
    Nothing is changed by reading.

    With --missing, --delta or --unit the run is counted anew under these assumptions,
    in place of the plan's; the rest of the account is left out. The exit code is that
    of the whole account.

    With --store no run is counted: the budgets of a folder (by default the one that
    SECURE_FGL_BUDGETS names) are read, and what all runs together spent of each site's
    data is shown, at --delta. With --anchors the budgets that a run took from are read
    on this machine and held to what the aggregator signed: one that was put back or
    edited is broken evidence.

    Exit code, the first that applies:

    5: the evidence, or a budget, is broken, so the numbers cannot be relied on.

    6: something left that was not planned.

    7: the privacy budget is exceeded, or the record does not bear the plan's target out.

    0: none of these, which is no proof; without noise there is no claim either.
    """
    from secure_fgl.errors import UsageError

    if store:
        return _store(run, delta, format, others=bool(missing or unit or anchors))
    if run is None:
        raise UsageError("RUN is missing.", fix="give a run folder, or --store for all budgets")
    if anchors is not None and anchors.resolve().is_relative_to(run.resolve()):
        raise UsageError(
            f"The notes in {anchors} belong to the run folder itself.",
            why="whoever rewrote the run could have rewritten them; they prove nothing",
            fix="ask the other parties for the notes that they kept",
        )
    return _of_run(run, (missing, delta, unit), anchors, format)


def _of_run(
    run: Path, anew: tuple[str, float | None, Unit | None], notes: Path | None, format: Format
) -> int:
    """Count one run, and hold its budgets to notes."""
    from audits.accounting.account import account as count
    from audits.evidence.steps import Case
    from audits.report.words import plural
    from secure_fgl.cli._shared.account import judge, print_account, print_totals, print_words
    from secure_fgl.cli._shared.output import print_json, say
    from secure_fgl.errors import UsageError
    from secure_fgl.store.finished_run import Run
    from secure_fgl.store.sides.budget_totals import anchored

    view = Run(run).view()
    if view.side and not Case(view).yardstick.clients:
        raise UsageError(
            f"{view.side} is no client, and what clients spent is not in its ledger.",
            fix="count on a client's side, or on a run folder into which all sides were gathered",
        )
    found, proved = count(view), _by_attack(Case(view))
    missing, delta, unit = anew
    held = anchored(Case(view), notes, delta) if notes is not None else ()
    if missing or delta is not None or unit is not None:
        _anew(view, missing, delta, unit or Unit.client, format)
        return judge(found)
    if format is Format.json:
        told = {"budgets": [asdict(one) for one in held]} if held else {}
        words = {"empirical": [row.model_dump(mode="json") for row in proved]}
        print_json({**found.model_dump(mode="json"), **words, **told})
    else:
        print_account(found)
        print_words(proved)
        if held:
            print_totals(held)
            budgets = len(Case(view).plan.clients) * len(Case(view).policy.budgets)
            say(f"Notes of others say something of {len(held)} of {plural(budgets, 'budget')}.")
    return judge(found)


def _by_attack(case: Case) -> list[Labelled]:
    """Return every epsilon that the report shows, with what its attacks say of it."""
    from audits.report.attack_rows import outcome
    from audits.report.budget import spending

    claims = outcome(case, ()).claims
    return [row for part in spending(case, claims) for row in part.rows]


def _store(folder: Path | None, delta: float | None, format: Format, *, others: bool) -> int:
    """Show the budgets of a folder."""
    from secure_fgl.cli._shared.account import print_totals
    from secure_fgl.cli._shared.output import print_json
    from secure_fgl.errors import OK, UsageError
    from secure_fgl.store.budgets import BudgetStore
    from secure_fgl.store.sides.budget_totals import totals

    if others:
        raise UsageError(
            "--store goes with --delta and --format alone.", why="the others are about one run"
        )
    found = totals(BudgetStore(folder), _DELTA if delta is None else delta)
    if format is Format.json:
        print_json([asdict(one) for one in found])
    else:
        print_totals(found)
    return OK


def _anew(view: RunView, missing: str, delta: float | None, unit: Unit, format: Format) -> None:
    """Count under other assumptions, and print that."""
    from audits.accounting.otherwise import otherwise
    from secure_fgl.cli._shared.account import shown
    from secure_fgl.cli._shared.output import cell, console, grid, print_json, print_pairs

    rows: tuple[Otherwise, ...]
    rows = otherwise(view, missing=_range(missing), delta=delta, unit=unit.value)
    if format is Format.json:
        print_json([row.model_dump(mode="json") for row in rows])
        return
    first = rows[0].planned
    labels = ("unit", "adjacency", "model", "scope", "delta")
    print_pairs([(name, str(getattr(first, name))) for name in labels])
    table = grid([">Missing", ">ε planned", ">ε recorded", "Assumes"])
    for row in rows:
        number = "-" if row.missing is None else str(row.missing)
        told = "; ".join(row.planned.assumptions)
        table.add_row(number, shown(row.planned), shown(row.recorded), cell(told))
    console(stderr=False).print(table)


def _range(text: str) -> range:
    from secure_fgl.errors import UsageError

    if not text:
        return range(0)
    found = _RANGE.fullmatch(text)
    if found is None:
        raise UsageError("--missing is a number, or two as in 0..5.")
    first, last = int(found[1]), int(found[2] or found[1])
    if not first <= last < first + _MOST:
        raise UsageError(f"--missing goes up, over {_MOST} numbers at most.")
    return range(first, last + 1)
