"""Which model of a run a command is to use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

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
    from secure_fgl.store.client_models import NoSuchModel
    from secure_fgl.store.finished_run import Run

    finished, wanted = Run(run), of or folder.expanduser().resolve().name
    with advice():
        try:
            trained = finished.trained(wanted)
        except NoSuchModel:
            if of is not None:
                raise
            trained = finished.trained()
    whose, facts = trained.facts.get("site"), trained.facts
    if facts.get("after_rounds") != facts.get("best_after_rounds"):
        say(
            f"It is the one after {facts['after_rounds']} rounds: this client was away when the "
            f"best one was scored, after {facts['best_after_rounds']}.",
            style="yellow",
        )
    if trained.agreed is None and not trained.spec.columns and trained.spec.task != "rating":
        say(
            "The model knows its columns by number alone: nothing can check that these are they.",
            style="yellow",
        )
    say(f"Model: {f'that of {whose}' if whose else 'the shared one'}, {trained.facts['algorithm']}")
    return trained


def data_digest(run: Path, site: str) -> str | None:
    """Return the digest of the records that a site had in a run; None if nothing here knows it."""
    from secure_fgl.store.client_models import NoSuchModel
    from secure_fgl.store.finished_run import Run

    try:
        return cast(str | None, Run(run).about(site).get("data_sha256"))
    except NoSuchModel:
        return None
