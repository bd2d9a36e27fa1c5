"""``secure-fgl model``: take the shared model out of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.verb import EXAMPLE, verb

app = typer.Typer(
    no_args_is_help=True,
    help="Take the shared model out of a finished run.",
    epilog=EXAMPLE["model"],
)


@app.command("export", epilog=EXAMPLE["model"])
@verb
def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    to: Annotated[
        Path, typer.Option("--to", metavar="FILE", help="File to write, for example model.npz.")
    ],
) -> int:
    """Write the model of the best round as weights of PyTorch Geometric's layers.

    FILE is an npz with one array for each entry of the state_dict. Beside it,
    with the ending .json, stand architecture, inputs, scaling and digests.

    The evidence is verified first. What clients keep for themselves is not
    in it. A model tells something of the records that trained it: see
    secure-fgl audit attack.

    Exits 5 if the evidence is broken; nothing is written then.
    """
    from secure_fgl.cli._shared.report_files import advice
    from secure_fgl.store.finished_run import Run

    with advice():
        written = Run(run).trained().write(to)
    for path in written:
        typer.echo(str(path))
    return 0
