"""``secure-fgl evaluate``: how good a trained model is at one site."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from secure_fgl.cli._shared.inputs import OfOption, RunOrModel, SiteFolder, given_plugins
from secure_fgl.cli._shared.options import PluginOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb

if TYPE_CHECKING:
    from secure_fgl.predicting import Evaluation


class Part(StrEnum):
    """Which records are looked at."""

    test = "test"
    val = "val"
    train = "train"
    all = "all"


@verb
def evaluate(
    run: RunOrModel,
    site: SiteFolder,
    of: OfOption = None,
    part: Annotated[Part, typer.Option(help="Which of the site's records.")] = Part.test,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where files go; by default in DIR.")
    ] = None,
    plugins: PluginOption = [],  # noqa: B006 - typer's way to say "none given"; never changed
    format: FormatOption = Format.table,
) -> int:
    """Confusion, ROC and calibration of a model on a site's own labels.

    Records of the folder that the run was trained on have the roles that they
    had there. Of any other folder, or one that was changed since, nobody knows
    which records were trained on: take --part all.

    Written to DIR/evaluation: evaluation.json, confusion.csv, roc.csv and
    calibration.csv. One site's numbers say more of its records than a run's
    totals: they stay where they are, unless you pass them on.
    """
    from secure_fgl.cli._shared.inputs import data_digest, model_for
    from secure_fgl.cli._shared.output import print_json, say
    from secure_fgl.data.about import digest_of
    from secure_fgl.data.own import load_site, site_rng
    from secure_fgl.errors import UsageError
    from secure_fgl.predicting import evaluate as evaluated
    from secure_fgl.predicting import spec_for
    from secure_fgl.run.naming import learning_seed
    from secure_fgl.store.files import Folder, replace

    with given_plugins(run, plugins):
        trained, name = model_for(run, site, of), site.expanduser().resolve().name
    rng = site_rng(learning_seed(trained.seed, "split"), name)
    records = load_site(site, spec_for(trained, site), rng)
    if part is not Part.all and digest_of(records) != data_digest(run, name):
        everything = "--part all (includes training records)"
        if run.is_file() and not trained.facts.get("site"):
            why = "the file does not say which records trained it"
            fix = f"take {everything}, or evaluate the run: secure-fgl evaluate RUN"
        else:
            why = f"they differ from the records that {name} had in the run, or its key is not here"
            fix = f"take {everything}, or the folder as it was in the run"
        raise UsageError(f"Which records of {site} were trained on is not known.", why=why, fix=fix)
    found = evaluated(trained, records, part.value)
    folder = out or site.expanduser() / "evaluation"
    inside = Folder(site.expanduser())  # no link in it is followed
    try:
        for file, content in found.files().items():
            if out is None:
                inside.write(f"evaluation/{file}", content)
            else:
                replace(out / file, content)
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
