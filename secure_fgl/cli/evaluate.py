"""``secure-fgl evaluate``: how good a trained model is at one site."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secure_fgl.cli._shared.models import OfOption, RunArgument, SiteFolder
from secure_fgl.cli._shared.verb import Format, FormatOption, verb

if TYPE_CHECKING:
    from secure_fgl.predicting.evaluation import Evaluation


class Part(StrEnum):
    """Which records are looked at."""

    test = "test"
    val = "val"
    train = "train"
    all = "all"


@verb
def evaluate(
    run: RunArgument,
    site: SiteFolder,
    of: OfOption = None,
    part: Annotated[Part, typer.Option(help="Which of the site's records.")] = Part.test,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where files go; by default in DIR.")
    ] = None,
    format: FormatOption = Format.table,
) -> int:
    """Confusion, ROC and calibration of a model on a site's own labels.

    Records have the roles that they had in the run: by the column split, or
    drawn from the run's seed and the folder's name.

    Written to DIR/evaluation: evaluation.json, confusion.csv, roc.csv and
    calibration.csv. One site's numbers say more of its records than a run's
    totals: they stay where they are, unless you pass them on.
    """
    from secure_fgl.cli._shared.models import model_for
    from secure_fgl.cli._shared.output import print_json, say
    from secure_fgl.data.own import load_site, site_rng
    from secure_fgl.errors import UsageError
    from secure_fgl.predicting.evaluation import evaluate as evaluated
    from secure_fgl.predicting.new_records import spec_for
    from secure_fgl.run.naming import learning_seed
    from secure_fgl.store.files import replace

    trained, name = model_for(run, site, of), site.expanduser().resolve().name
    rng = site_rng(learning_seed(trained.seed, "split"), name)
    found = evaluated(trained, load_site(site, spec_for(trained, site), rng), part.value)
    folder = out or site.expanduser() / "evaluation"
    try:
        for file, content in found.files().items():
            replace(folder / file, content)
    except OSError as error:
        raise UsageError(
            f"The evaluation cannot be written to {folder} ({error.strerror}).",
            fix="choose another folder with --out",
        ) from error
    if format is Format.json:
        print_json(found.files()["evaluation.json"].decode())
        return 0
    _show(found)
    say(f"Written to {folder}")
    return 0


def _show(found: Evaluation) -> None:
    from rich.text import Text

    from secure_fgl.cli._shared.output import clean, console, grid, print_pairs

    def said(value: object) -> str:
        return (
            "not defined"
            if value is None
            else f"{value:.4f}"
            if isinstance(value, float)
            else f"{value}"
        )

    plain = {k: v for k, v in found.numbers.items() if not isinstance(v, dict)}
    pairs = [(name.replace("_", " "), said(value)) for name, value in plain.items()]
    areas = found.numbers.get("auc", {})
    print_pairs([*pairs, *((f"AUC {name}", said(area)) for name, area in areas.items())])
    if found.confusion is None or len(found.names) > _WIDEST:
        return
    table = grid(["true \\ predicted", *(f">{clean(name)}" for name in found.names)])
    for name, row in zip(found.names, found.confusion, strict=True):
        table.add_row(Text(clean(name)), *(Text(str(int(n))) for n in row))
    console(stderr=False).print(table)


_WIDEST = 8
"""Classes of a table that fits 80 columns; the file has them all."""
