"""``secure-fgl predict``: what a trained model makes of new records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.inputs import OfOption, RunOrModel, SiteFolder, given_plugins
from secure_fgl.cli._shared.options import PluginOption
from secure_fgl.cli._shared.verb import verb


@verb
def predict(
    run: RunOrModel,
    site: SiteFolder,
    of: OfOption = None,
    out: Annotated[
        Path, typer.Option(metavar="FILE", help="The table to write; it must not exist.")
    ] = Path("predictions.csv"),
    plugins: PluginOption = [],  # noqa: B006 - typer's way to say "none given"; never changed
) -> int:
    """Predict every record of a folder of own data, with its ids and class names.

    The folder is laid out as for training; labels need not be there and are not
    read. A table without one of the model's columns is refused, and so is a
    spec.yaml with others. Features are scaled as the model's site scaled its own.

    Nothing leaves this machine.
    """
    from secure_fgl.cli._shared.inputs import model_for
    from secure_fgl.errors import UsageError
    from secure_fgl.predicting import predict as predicted
    from secure_fgl.predicting import spec_for
    from secure_fgl.store.files import create

    with given_plugins(run, plugins):
        trained = model_for(run, site, of)
    found = predicted(trained, site, spec_for(trained, site))
    try:
        create(out, found.csv(), mode=0o600)
    except FileExistsError as error:
        raise UsageError(
            f"{out} is there already.",
            why="nothing that somebody wrote is replaced",
            fix="choose another --out",
        ) from error
    except OSError as error:
        raise UsageError(
            f"{out} cannot be written.", why=str(error), fix="choose another --out"
        ) from error
    typer.echo(str(out))
    return 0
