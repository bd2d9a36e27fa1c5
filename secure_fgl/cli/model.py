"""``secure-fgl model``: take a model out of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.inputs import RunArgument, given_plugins
from secure_fgl.cli._shared.options import PluginOption
from secure_fgl.cli._shared.verb import EXAMPLE, verb

app = typer.Typer(
    no_args_is_help=True,
    help="Take a model out of a finished run, or destroy the clients' own.",
    epilog=EXAMPLE["model"],
)


@app.command("export", epilog=EXAMPLE["model"])
@verb
def export(
    run: RunArgument,
    to: Annotated[
        Path,
        typer.Option("--to", metavar="FILE", help="File to write: model.npz, or model.onnx."),
    ],
    site: Annotated[
        str | None,
        typer.Option("--site", metavar="SITE", help="Whose own model; by default the shared one."),
    ] = None,
    plugins: PluginOption = [],  # noqa: B006 - typer's way to say "none given"; never changed
) -> int:
    """Write the model of the best round.

    FILE is an npz that predict, evaluate and load_model read, or with the ending
    .onnx a file for programs without PyTorch. Beside it, with the ending .json,
    stand architecture, names, scaling and digests.

    The shared model is written after the evidence was verified. A client's own
    model opens only where the key of its site is.

    A model tells something of the records that trained it: see
    secure-fgl audit attack.

    Exits 5 if the evidence is broken; nothing is written then.
    """
    from audits.report.learning import NEVER, NEVER_TRAINED
    from secure_fgl.cli._shared.output import say
    from secure_fgl.cli._shared.report_files import advice
    from secure_fgl.errors import UsageError
    from secure_fgl.store.finished_run import Run

    if to.suffix not in (".npz", ".onnx"):
        raise UsageError(
            f"--to {to}: models are written as .npz or .onnx.",
            why="a .pt file is a pickle, which runs code when it is opened",
            fix="name a file like model.npz",
        )
    with advice(), given_plugins(run, plugins):
        trained = Run(run).trained(site)
    if trained.facts["chosen"] == NEVER:
        say(f"{NEVER_TRAINED}.", style="bold yellow")
    if to.suffix == ".onnx":
        from secure_fgl.store.trained_model import onnx_bytes as content
    else:
        from secure_fgl.model_file import model_bytes as content
    for path in trained.write_with(to, content(trained)):
        typer.echo(str(path))
    return 0


@app.command("forget", epilog=EXAMPLE["model forget"])
@verb
def forget(run: RunArgument) -> int:
    """Destroy the keys of the clients' own models that are here, and the models.

    What a backup still holds of these models is then locked for good, unless it
    holds the keys too. The shared model and the evidence stay.
    """
    from secure_fgl.store.finished_run import Run

    count = Run(run).client_models.forget()
    typer.echo(f"Destroyed the keys of {count} clients' models, and the models.")
    return 0
