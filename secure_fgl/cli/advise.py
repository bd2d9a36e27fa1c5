"""``secure-fgl audit advise``: what else could be run, its leakage and its cost."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secure_fgl.cli._shared.options import PluginOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from secure_fgl.advising.trials import Trial


@verb
def advise(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep trials, table and plot here, and go on from them."),
    ] = None,
    candidates: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="YAML, in place of the usual: [{name, policy, set}]."),
    ] = None,
    attacks: Annotated[
        str, typer.Option(metavar="LIST", help="Ids or names of attacks, separated by commas.")
    ] = "A01,A04,A05",
    points: Annotated[
        float, typer.Option(min=0, max=100, help="How much validation score it may cost, of 100.")
    ] = 2.0,
    data: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="The data folder; else the one in SECURE_FGL_DATA."),
    ] = None,
    plugins: PluginOption = [],  # noqa: B006 - typer's way to say "none given"; never changed
    format: FormatOption = Format.table,
) -> int:
    """Train with other policies, attack what would leave, and show leakage against accuracy.

    Runs where all data of a run lie. Each candidate changes one thing: a larger
    cohort, rows of more holders, a coarser grid, noise (calibrated, ldp), fewer
    releases. The run's own captures are attacked again where the training stays
    the same, and that is marked "replayed"; what cannot be tried with this run's
    sites says so. Validation scores choose; test scores are only shown. Of a
    candidate whose attacks all pass, one seed and one run were looked at.

    A trial's noise is taken from a budget of its own, and its run is deleted.
    DIR holds trials.jsonl, advice.json, advice.md and frontier.svg; done again,
    a command goes on from the trials that are there.

    Exit code: 0, also if nothing passes; 5 if the run's evidence is broken.
    """
    from secure_fgl.advising.candidates import candidates as listed
    from secure_fgl.advising.trials import Trials
    from secure_fgl.attack_inputs.verified_run import config_of, plugins_of, verified
    from secure_fgl.cli._shared.output import say
    from secure_fgl.errors import OK, UsageError, usage
    from secure_fgl.store.finished_run import Run

    finished = Run(run)
    if finished.party is not None:
        raise UsageError(
            "One party's side cannot be trained again.",
            why="the other sites' data are not here",
            fix="advise on a simulation, or on a run of one machine",
        )
    case = verified(finished)
    config = config_of(case, data)
    given = plugins_of(case, plugins)
    chosen = listed(case, config, candidates)
    ids = tuple(word for word in re.split(r"[,\s]+", attacks) if word)
    with tempfile.TemporaryDirectory() as passing:
        folder = out if out is not None else Path(passing)
        folder.mkdir(parents=True, exist_ok=True)
        trials = Trials(finished, case, config, data, tuple(given), ids, folder)
        try:
            found = list(trials.all(chosen, lambda line: say(f"Trying {line}.")))
        except ValueError as error:
            raise usage(error) from error
    if out is not None:
        _keep(out, found, points)
    _print(found, points, format)
    return OK


def _keep(out: Path, found: Sequence[Trial], points: float) -> None:
    import json

    from secure_fgl.advising.pages import document, markdown, plot
    from secure_fgl.store.files import replace

    text = json.dumps(document(found, points), indent=2, sort_keys=True) + "\n"
    replace(out / "advice.json", text.encode())
    replace(out / "advice.md", markdown(found, points).encode())
    if (picture := plot(found)) is not None:
        replace(out / "frontier.svg", picture.encode())


def _print(found: Sequence[Trial], points: float, format: Format) -> None:
    from secure_fgl.advising.pages import cells, document, sentence
    from secure_fgl.advising.trials import worst
    from secure_fgl.cli._shared.output import WORDS, cell, console, grid, print_json, say

    if format is Format.json:
        print_json(document(found, points))
        return
    table = grid(["Tried", ">Validation", ">Cost", ">Test", "Worst", "Above prior", "Verdict"])
    for trial in found:
        if trial.how == "not tried":
            say(f"Not tried: {trial.name}: {trial.why_not}.", stderr=False)
            continue
        row = worst(trial)
        mark = " (replayed)" if trial.how == "replayed" else ""
        figures = cells(trial, found)
        table.add_row(
            cell(trial.name + mark), *map(cell, figures[2:5]), row.id if row else "-",
            cell(figures[6]), cell(trial.verdict, WORDS.get(trial.verdict, "")),
        )  # fmt: skip
    table.caption = (
        "Above prior: of the worst row, over an attacker without the message, with its 95 % "
        "interval. Verdict: the gravest. Replayed: the run's own captures."
    )
    table.caption_justify = "left"
    console(stderr=False).print(table)
    say(sentence(found, points), style="bold", stderr=False)
