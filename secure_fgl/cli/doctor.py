"""``secure-fgl doctor``: is this machine fit, before anything runs on it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def doctor(
    folder: Annotated[
        Path, typer.Option("--runs", metavar="FOLDER", help="Where runs are to be written.")
    ] = Path("runs"),
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit 4 where something was not checked.")
    ] = False,
    format: FormatOption = Format.table,
) -> int:
    """Look at this machine: versions, packages, extras, floors, entropy, disk, clock, data.

    Nothing is sent, changed or left behind. Of the folders of keys, budgets and
    data only names, modes and free space are looked at.

    Exits 2 if something is wrong, 4 with --strict where something was not checked.
    """
    from secure_fgl.cli._shared.checks import show
    from secure_fgl.doctor import examine

    return show(list(examine(folder)), format, strict=strict)
