"""``secure-fgl site hand-over``: one party's side of a run, as a file for whoever audits all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from secure_fgl.cli._shared.charters import RunOption
from secure_fgl.cli._shared.verb import Format, FormatOption, verb


@verb
def hand_over(
    party: Annotated[
        Path, typer.Argument(metavar="PARTY", help="The party's folder, with identity.json.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The file to write.")],
    run: RunOption = None,
    data: Annotated[
        Path | None,
        typer.Option("--data", metavar="DIR", help="The site's own tables: searched for, too."),
    ] = None,
    format: FormatOption = Format.table,
) -> int:
    """Write this party's side of a run as a file: charter, plan, its ledger and its head.

    No key, no kept state, no captured message, no model and no path goes in.
    Ledgers say which values were clipped and why a request was refused: give
    the file only to who may know. The same side gives the same bytes.

    It is searched before it is written, as by secure-fgl audit scan: for this
    party's keys and path, and with --data for what the site's tables hold.

    Exits 3, and writes nothing, if it holds any of that.

    Exits 5 if this side's own evidence is broken; the file is written and says so.
    """
    from secure_fgl.cli._shared.output import print_json, say
    from secure_fgl.cli.bundle import final_words
    from secure_fgl.errors import BROKEN, OK
    from secure_fgl.store.sides.hand_overs import write_hand_over

    path, outcome = write_hand_over(party, out, run=run, data=data)
    if format is Format.json:
        failed = outcome.failed.name if outcome.failed is not None else None
        print_json({"file": str(path), "verdict": outcome.verdict, "failed": failed})
    else:
        typer.echo(str(path))
    for line in final_words(outcome):
        say(line)
    return OK if outcome.ok else BROKEN
