"""Options that several verbs take."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from secure_fgl.transports.nvflare.keys.passphrase import Passphrase

__all__ = ["PassphraseFileOption", "PassphraseOption", "PluginOption", "new_passphrase"]

PluginOption = Annotated[
    list[str],
    typer.Option(
        "--plugin",
        metavar="FILE|NAME",
        help="Code of your own: an algorithm, a model or data in one file, or the name of an "
        "installed one. Trusted code; may be given several times.",
    ),
]

PassphraseOption = Annotated[
    bool, typer.Option("--passphrase", help="Lock the keys; the passphrase is asked for.")
]
PassphraseFileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Lock the keys under the passphrase in this file."),
]


def new_passphrase(party: Path, ask: bool, file: Path | None) -> Passphrase | None:
    """Return the passphrase that keys are to be locked under; None: they are not.

    Raises:
        UsageError: it is given twice, cannot be read, or is none.
    """
    from secure_fgl.errors import UsageError
    from secure_fgl.transports.nvflare.keys.passphrase import asked_twice, from_file

    if ask and file is not None:
        raise UsageError("The passphrase is given twice.", fix="leave one of the options out")
    if file is not None:
        return from_file(file)
    return asked_twice(f"{party}/identity.json") if ask else None
