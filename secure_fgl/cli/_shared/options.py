"""Options that several verbs take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from secure_fgl.charters.identity_file import Passphrase

__all__ = [
    "CheckpointOption",
    "PassphraseFileOption",
    "PassphraseOption",
    "PluginOption",
    "TrackOption",
    "as_settings",
    "new_passphrase",
]

PluginOption = Annotated[
    list[str],
    typer.Option(
        "--plugin",
        metavar="FILE|NAME",
        help="Code of your own: an algorithm, a model or data in one file, or the name of an "
        "installed one. Trusted code; may be given several times.",
    ),
]

TrackOption = Annotated[
    list[str],
    typer.Option(
        metavar="KIND:PLACE",
        help="Released metrics go there, too: tensorboard:FOLDER or mlflow:URI.",
    ),
]
CheckpointOption = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Keep the model of every N-th round.")
]

PassphraseOption = Annotated[
    bool, typer.Option("--passphrase", help="Lock the keys; the passphrase is asked for.")
]
PassphraseFileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Lock the keys under the passphrase in this file."),
]


def as_settings(track: list[str], checkpoint_every: int | None) -> list[str]:
    """Return what ``--track`` and ``--checkpoint-every`` say as ``--set`` would take it."""
    kept = [] if checkpoint_every is None else [f"checkpoint_every={checkpoint_every}"]
    return [*kept, *([f"tracking={json.dumps(track)}"] if track else [])]


def new_passphrase(party: Path, ask: bool, file: Path | None) -> Passphrase | None:
    """Return the passphrase that keys are to be locked under; None: they are not.

    Raises:
        UsageError: it is given twice, cannot be read, or is none.
    """
    from secure_fgl.charters.identity_file import asked_twice, from_file
    from secure_fgl.errors import UsageError

    if ask and file is not None:
        raise UsageError("The passphrase is given twice.", fix="leave one of the options out")
    if file is not None:
        return from_file(file)
    return asked_twice(f"{party}/identity.json") if ask else None
