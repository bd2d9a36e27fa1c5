"""Which model of a run a command is to use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from secure_fgl.store.trained_model import TrainedModel

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
SiteFolder = Annotated[
    Path, typer.Option("--site", metavar="DIR", help="A site's folder, as docs/own-data.md says.")
]
OfOption = Annotated[
    str | None,
    typer.Option(
        "--of",
        metavar="SITE",
        help="Whose model; by default that of DIR's own name where it opens here, else the "
        "shared one.",
    ),
]


def model_for(run: Path, folder: Path, of: str | None) -> TrainedModel:
    """Return the model of a site, or the shared one, and say which it is."""
    from secure_fgl.cli._shared.output import say
    from secure_fgl.cli._shared.report_files import advice
    from secure_fgl.errors import UsageError
    from secure_fgl.store.finished_run import Run

    finished, wanted = Run(run), of or folder.expanduser().resolve().name
    with advice():
        try:
            trained = finished.trained(wanted)
        except UsageError:
            if of is not None:
                raise
            trained = finished.trained()
    whose = trained.facts.get("site")
    say(f"Model: {f'that of {whose}' if whose else 'the shared one'}, {trained.facts['algorithm']}")
    return trained
