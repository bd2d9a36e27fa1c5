"""``secure-fgl charter merge``: signatures of several copies in one file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.charters import OutOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def merge(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Copies of one charter, signed.")
    ],
    out: OutOption,
    format: FormatOption = Format.table,
) -> int:
    """Put signatures and refusals of several copies into one file, and say who is missing.

    Exits 5 if a signature is none, and 2 if they are not copies of one charter.
    """
    from secure_fgl.charters.joining import merged
    from secure_fgl.cli._shared.charters import load_charter, tell, write_charter

    charter = merged([load_charter(file) for file in files])
    write_charter(out, charter, new=True)
    tell(charter, out, as_json=format is Format.json)
    return 0
