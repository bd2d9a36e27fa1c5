"""Which model of a run a command is to use."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

if TYPE_CHECKING:
    from secure_fgl.store.trained_model import TrainedModel

RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")]
RunOrModel = Annotated[
    Path, typer.Argument(metavar="RUN|FILE", help="A run folder, or a model's file.")
]
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
    """Return the model of a site, or the shared one, or that of a file, and say which it is."""
    from secure_fgl.cli._shared.report_files import advice
    from secure_fgl.store.client_models import NoSuchModel
    from secure_fgl.store.finished_run import Run

    if run.is_file():
        return _told(_of_file(run, of))
    finished, wanted = Run(run), of or folder.expanduser().resolve().name
    with advice():
        try:
            trained = finished.trained(wanted, folder=of is None)
        except NoSuchModel:
            if of is not None:
                raise
            trained = finished.trained()
    return _told(trained, finished.checkpoint()[1])


def _of_file(path: Path, of: str | None) -> TrainedModel:
    from secure_fgl.errors import UsageError
    from secure_fgl.model_file import load_model

    trained = load_model(path)
    if of not in (None, trained.facts.get("site"), trained.facts.get("client")):
        raise UsageError(
            f"{path} holds one model, and it is not that of {of}.", fix="leave --of out"
        )
    return trained


def _told(trained: TrainedModel, checkpoint: bytes = b"") -> TrainedModel:
    """Say which model it is, and what to know of it.

    Args:
        trained: the model.
        checkpoint: of the one that all share, of whose weights a client's may be; empty for none.
    """
    from audits.report.learning import NEVER, NEVER_TRAINED
    from secure_fgl.cli._shared.output import say
    from secure_fgl.run.model_digest import npz_digest

    whose, facts = trained.facts.get("site"), trained.facts
    if checkpoint and npz_digest(checkpoint) == facts["weights_sha256"]:
        whose = None
    if facts.get("chosen") == NEVER:
        say(f"{NEVER_TRAINED}.", style="bold yellow")
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

    if run.is_file():
        facts = _of_file(run, None).facts
        return facts.get("data_sha256") if facts.get("site") == site else None
    try:
        return cast(str | None, Run(run).about(site).get("data_sha256"))
    except NoSuchModel:
        return None
